//! Journal positions: `<seq>-<nonce>` inside a task, `<taskId>.<seq>-<nonce>` on the wire.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::TaskId;

/// One random number per batch of journal entries. Two timelines of a journal never share it, so a full id names one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nonce(pub u64);

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a journal entry. `seq` counts 1, 2, 3 ... without holes; [`EntryId::START`] stands before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Position in the journal, from 1.
    pub seq: u64,
    /// The batch it was written in.
    pub nonce: u64,
}

impl EntryId {
    /// The position before the first entry.
    pub const START: Self = Self { seq: 0, nonce: 0 };

    /// The id that the entry `n` places after this one has, if a batch of `nonce` holds it.
    #[must_use]
    pub fn after(self, n: u64, nonce: Nonce) -> Self {
        Self {
            seq: self.seq + n,
            nonce: nonce.0,
        }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.seq, self.nonce)
    }
}

impl FromStr for EntryId {
    type Err = CursorError;

    /// Only the canonical form: two decimal numbers without sign, space or leading zero.
    fn from_str(text: &str) -> Result<Self, CursorError> {
        let (seq, nonce) = text.split_once('-').ok_or(CursorError)?;
        Ok(Self {
            seq: canonical(seq)?,
            nonce: canonical(nonce)?,
        })
    }
}

fn canonical(text: &str) -> Result<u64, CursorError> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let canonical = digits && (text == "0" || !text.starts_with('0'));
    if canonical {
        text.parse().map_err(|_wrong| CursorError)
    } else {
        Err(CursorError)
    }
}

impl Serialize for EntryId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EntryId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// A position on the wire: the SSE `id:`, the `Last-Event-ID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// The task whose journal it is.
    pub task: TaskId,
    /// The place in that journal.
    pub entry: EntryId,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.task, self.entry)
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let (task, entry) = text.split_once('.').ok_or(CursorError)?;
        Ok(Self {
            task: TaskId::parse(task).ok_or(CursorError)?,
            entry: entry.parse()?,
        })
    }
}

/// The text is not a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor: expected <taskId>.<seq>-<nonce>")]
pub struct CursorError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_as_it_was_written() {
        let task = TaskId::new(1_700_000_000_000, crate::ids::Partition(7), 42);
        let cursor = Cursor {
            task,
            entry: EntryId {
                seq: 12,
                nonce: u64::MAX,
            },
        };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }

    #[test]
    fn hostile_positions_are_refused_before_redis_sees_them() {
        for bad in [
            "",
            "-",
            "1",
            "1-",
            "-1",
            "01-1",
            "1-01",
            "+1-1",
            "1-1 ",
            "1-18446744073709551616",
            "x-1",
            "1-1-1",
        ] {
            assert!(bad.parse::<EntryId>().is_err(), "{bad}");
        }
        assert_eq!("0-0".parse::<EntryId>(), Ok(EntryId::START));
    }
}

#[cfg(test)]
mod hostile {
    use proptest::prelude::*;

    use super::*;

    /// What is read as a position is written as it was read: no two texts are the same position.
    fn read(text: &str) -> Result<(), TestCaseError> {
        if let Ok(cursor) = text.parse::<Cursor>() {
            prop_assert_eq!(cursor.to_string(), text);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_a_position_or_none(text in any::<String>()) {
            read(&text)?;
        }

        #[test]
        fn texts_like_positions_are_read_in_one_spelling(
            text in "[0-9a-fA-F]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}[.][+0-9]{0,21}-?[0-9]{0,21}",
        ) {
            read(&text)?;
        }
    }
}
