//! The laws of reading a journal from a position: what comes next is either its exact successor, or there is a gap.

use crate::ids::EntryId;

/// What a doorbell or a read says about a reader's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It continues exactly here.
    Continues,
    /// It is already delivered.
    Seen,
    /// Only the journal can tell: something was missed, or the timeline changed.
    Unknown,
}

/// Judges a doorbell `prev -> last` against the id of the last delivered entry.
///
/// Numbers are never compared across timelines: the same `seq` under another nonce is another event.
pub fn doorbell(position: EntryId, prev: EntryId, last: EntryId) -> Next {
    if prev == position {
        Next::Continues
    } else if last == position {
        Next::Seen
    } else {
        Next::Unknown
    }
}

/// Whether a read that began *at* `position` may be delivered: its first entry must be the position itself; from the start,
/// the first entry must be number 1.
pub fn read_is_continuous(position: EntryId, first: Option<EntryId>) -> bool {
    match first {
        None => position == EntryId::START,
        Some(first) if position == EntryId::START => first.seq == 1,
        Some(first) => first == position,
    }
}

/// How many entries of earlier turns a journal keeps when a turn ends, for readers that are behind.
const KEEP_ENTRIES: u64 = 256;

/// Where the journal is cut when the turn that began at `first` ends: that turn stays whole, and some entries before it.
pub fn trim_below(first: EntryId) -> Option<EntryId> {
    let seq = first.seq.saturating_sub(KEEP_ENTRIES);
    (seq > 1).then_some(EntryId { seq, nonce: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(seq: u64, nonce: u64) -> EntryId {
        EntryId { seq, nonce }
    }

    #[test]
    fn only_the_exact_predecessor_continues() {
        assert_eq!(doorbell(id(5, 1), id(5, 1), id(7, 2)), Next::Continues);
        assert_eq!(doorbell(id(7, 2), id(5, 1), id(7, 2)), Next::Seen);
        assert_eq!(doorbell(id(5, 9), id(5, 1), id(7, 2)), Next::Unknown);
        assert_eq!(doorbell(id(57, 1), id(50, 4), id(52, 8)), Next::Unknown);
    }

    #[test]
    fn a_cut_never_touches_the_turn_that_ends() {
        assert_eq!(trim_below(id(1, 5)), None);
        assert_eq!(trim_below(id(257, 5)), None);
        assert_eq!(trim_below(id(1000, 5)), Some(id(744, 0)));
    }

    #[test]
    fn a_position_that_is_gone_is_a_gap() {
        assert!(read_is_continuous(id(5, 1), Some(id(5, 1))));
        assert!(!read_is_continuous(id(5, 1), Some(id(5, 2))));
        assert!(!read_is_continuous(id(5, 1), Some(id(6, 2))));
        assert!(!read_is_continuous(id(5, 1), None));
        assert!(read_is_continuous(EntryId::START, Some(id(1, 3))));
        assert!(!read_is_continuous(EntryId::START, Some(id(2, 3))));
        assert!(read_is_continuous(EntryId::START, None));
    }
}
