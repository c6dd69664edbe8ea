//! Identifiers: what names a task, a turn, a context, a scope, a journal entry, and in which partition each of them lives.
//!
//! Owns their text forms and their hashing. Pure: random bits and times come from the caller (`platform::entropy`,
//! `platform::clock`). Client text never becomes part of a key: it enters as 22 characters of a SHA-256 (see [`ScopeKey`]).

mod entry;
mod hash;
mod partition;
mod storage;
mod uuid7;

pub use entry::{Cursor, CursorError, EntryId, Nonce};
pub use hash::{ContextKey, IdempotencyKey, OwnerKey, ScopeKey};
pub use partition::{Layout, LayoutError, Partition, key_slot};
pub use storage::{StorageId, pool_and_storage, takers};
pub use uuid7::{TaskId, TurnId};

use std::fmt;

use serde::{Deserialize, Serialize};

/// 128 random bits that prove the right to write for a leased turn; 32 lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseToken(String);

impl LeaseToken {
    /// Makes a token of 128 random bits.
    pub fn new(random: u128) -> Self {
        Self(format!("{random:032x}"))
    }

    /// Takes a token that Redis returned.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The token as it is sent to Redis.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(***)")
    }
}

/// Fencing number of a context: rises at every take (`max(epoch + 1, Redis ms)`), is handed to agents and upstreams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names a worker process: the consumer name in the groups and the member of the worker registry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(String);

impl WorkerId {
    /// Accepts 1 to 64 characters of `[A-Za-z0-9_.-]`.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (1..=64).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        fits.then(|| Self(text.to_owned()))
    }

    /// Makes a name of 64 random bits, for a worker that was given none.
    pub fn random(random: u64) -> Self {
        Self(format!("w-{random:016x}"))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_32_digits_and_hides_in_debug_output() {
        let token = LeaseToken::new(1);
        assert_eq!(token.as_str(), "00000000000000000000000000000001");
        assert_eq!(format!("{token:?}"), "LeaseToken(***)");
    }

    #[test]
    fn a_worker_name_is_plain_text() {
        assert!(WorkerId::parse("host-1.a_b").is_some());
        for bad in ["", "a b", "a:b", "ä", &"x".repeat(65)] {
            assert!(WorkerId::parse(bad).is_none(), "{bad}");
        }
    }
}
