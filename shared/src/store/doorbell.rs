//! The doorbell: `<prev> <last> <kinds> <lengths>\n<events>`, published by every append. An accelerator, never the truth.

use bytes::Bytes;

use crate::domain::class::Kind;
use crate::ids::EntryId;

/// An event that a doorbell carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// Where it stands in the journal.
    pub id: EntryId,
    /// What it means.
    pub kind: Kind,
    /// Its bytes; none when the batch was too large for a doorbell.
    pub bytes: Option<Bytes>,
}

/// A parsed doorbell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doorbell {
    /// The entry that the batch follows.
    pub prev: EntryId,
    /// The last entry of the batch.
    pub last: EntryId,
    /// The batch, in order.
    pub events: Vec<Carried>,
}

impl Doorbell {
    /// Reads a message of a task's channel; `None` for anything that is not a doorbell.
    pub fn parse(payload: &Bytes) -> Option<Self> {
        let end = payload.iter().position(|b| *b == b'\n')?;
        let head = std::str::from_utf8(payload.get(..end)?).ok()?;
        let mut words = head.split(' ');
        let (prev, last): (EntryId, EntryId) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let kinds = words
            .next()?
            .split(',')
            .map(str::parse)
            .collect::<Result<Vec<Kind>, _>>()
            .ok()?;
        let lengths = words
            .next()?
            .split(',')
            .map(str::parse)
            .collect::<Result<Vec<usize>, _>>()
            .ok()?;
        if words.next().is_some() || kinds.len() != lengths.len() || last.seq != prev.seq + kinds.len() as u64 {
            return None;
        }
        let mut at = end + 1;
        let carries = payload.len() > at;
        let mut events = Vec::with_capacity(kinds.len());
        for (place, (kind, length)) in (1..).zip(kinds.into_iter().zip(lengths)) {
            let bytes = if carries {
                let to = at.checked_add(length).filter(|to| *to <= payload.len())?;
                let bytes = payload.slice(at..to);
                at = to;
                Some(bytes)
            } else {
                None
            };
            events.push(Carried {
                id: EntryId {
                    seq: prev.seq + place,
                    nonce: last.nonce,
                },
                kind,
                bytes,
            });
        }
        (!carries || at == payload.len()).then_some(Self { prev, last, events })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Doorbell> {
        Doorbell::parse(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn a_batch_is_cut_into_its_events() {
        let bell = parse("3-7 5-9 1.n,1.t 2,3\n{}[1]").unwrap();
        assert_eq!((bell.prev.seq, bell.last.nonce), (3, 9));
        assert_eq!(bell.events[1].id, EntryId { seq: 5, nonce: 9 });
        assert_eq!(bell.events[0].bytes.as_deref(), Some(&b"{}"[..]));
        assert_eq!(bell.events[1].bytes.as_deref(), Some(&b"[1]"[..]));
    }

    #[test]
    fn a_large_batch_carries_ids_only() {
        let bell = parse("0-0 1-9 1.n 99999\n").unwrap();
        assert_eq!(bell.events[0].bytes, None);
    }

    #[test]
    fn anything_else_is_not_a_doorbell() {
        for bad in [
            "",
            "gone",
            "1-1 2-2 1.n 2",
            "1-1 2-2 1.n 2\n{",
            "1-1 2-2 1.n 2\n{}x",
            "1-1 3-2 1.n 2\n{}",
            "1-1 2-2 1.x 2\n{}",
            "1-1 2-2 1.n 18446744073709551615\nx",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
