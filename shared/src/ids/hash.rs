//! Keys made of client text: 22 characters of base64url(SHA-256(length-prefixed parts)).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::Partition;

/// SHA-256 over parts that cannot run into each other: each is preceded by its length.
fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().into()
}

fn text(digest: &[u8; 32]) -> String {
    let mut text = URL_SAFE_NO_PAD.encode(digest);
    text.truncate(22);
    text
}

/// Who can see it: a tenant and a principal, both empty without authentication.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeKey(String);

impl ScopeKey {
    /// The scope of a principal inside a tenant.
    pub fn of(tenant: &str, subject: &str) -> Self {
        Self(text(&digest(&["tenant+principal", tenant, subject])))
    }

    /// Takes a key that a record holds.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The 22 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ScopeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A context of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextKey(String);

impl ContextKey {
    /// The key of `context_id` in `scope` and the partition it lives in, of `partitions`.
    pub fn of(scope: &ScopeKey, context_id: &str, partitions: u16) -> (Self, Partition) {
        let digest = digest(&["context", scope.as_str(), context_id]);
        (Self(text(&digest)), partition(&digest, partitions))
    }

    /// Takes a key that Redis returned.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The 22 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContextKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An idempotency key of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// The key of the client's `key` in `scope` and the partition it lives in, of `partitions`.
    pub fn of(scope: &ScopeKey, key: &str, partitions: u16) -> (Self, Partition) {
        let digest = digest(&["idempotency", scope.as_str(), key]);
        (Self(text(&digest)), partition(&digest, partitions))
    }

    /// The 22 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A principal that artifacts are counted for, whatever tenants its tasks are in: which those are, it says itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerKey(String);

impl OwnerKey {
    /// The key of a principal.
    pub fn of(subject: &str) -> Self {
        Self(text(&digest(&["owner", subject])))
    }

    /// Takes a key that Redis returned.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The 22 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where it is counted, of `partitions`.
    pub fn partition(&self, partitions: u16) -> Partition {
        partition(&digest(&["owner's place", &self.0]), partitions)
    }
}

impl fmt::Display for OwnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first 32 bits mod P.
fn partition(digest: &[u8; 32], partitions: u16) -> Partition {
    let [a, b, c, d, ..] = *digest;
    let place = u32::from_be_bytes([a, b, c, d]) % u32::from(partitions.max(1));
    Partition(u16::try_from(place).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_concatenations_are_different_keys() {
        assert_ne!(ScopeKey::of("a", "b:c"), ScopeKey::of("a:b", "c"));
        assert_ne!(ScopeKey::of("ab", ""), ScopeKey::of("a", "b"));
        let scope = ScopeKey::of("", "");
        assert_ne!(
            ContextKey::of(&scope, "a", 64).0,
            ContextKey::of(&ScopeKey::of("a", ""), "", 64).0
        );
    }

    #[test]
    fn keys_are_22_safe_characters_whatever_the_client_sent() {
        let long = "x".repeat(65_536);
        for hostile in ["", "{}", "a:b", "a/b", "\0", long.as_str(), "\u{202e}"] {
            let key = ScopeKey::of(hostile, hostile);
            assert_eq!(key.as_str().len(), 22);
            assert!(
                key.as_str()
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            );
        }
    }

    #[test]
    fn the_hash_is_fixed_for_ever() {
        let scope = ScopeKey::of("", "");
        let (context, partition) = ContextKey::of(&scope, "c-1", 64);
        assert_eq!((scope.as_str(), context.as_str(), partition.0), GOLDEN);
    }

    const GOLDEN: (&str, &str, u16) = ("2HsxVjiQfWElxYAvdFasPF", "MmdNz3o4cwkkWRRLywWS1o", 15);
}
