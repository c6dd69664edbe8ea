//! What may be in Redis when no turn lives, and when everything was deleted. Pure: keys are handed in.

use std::collections::BTreeMap;

use super::history::{Breach, Promise};

/// What a key holds, as far as it says whether something is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Fields and values.
    Hash(BTreeMap<String, String>),
    /// The members of a sorted set.
    Members(Vec<String>),
    /// A stream: how many entries, and how many of them are delivered and not acknowledged.
    Stream(usize, usize),
    /// Anything else.
    Other,
}

/// A key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its name behind the prefix and the tag of its partition.
    pub name: String,
    /// What it holds.
    pub kept: Kept,
    /// Whether Redis forgets it by itself.
    pub expires: bool,
}

impl Key {
    fn class(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }

    fn breach(&self, what: impl std::fmt::Display) -> Breach {
        Breach::new(Promise::Keys, format!("{}: {what}", self.name))
    }
}

/// Classes of keys that stay for as long as the cluster does, each of a bounded size.
const FOREVER: [&str; 5] = ["meta", "turns", "layout", "workers", "bell"];

/// Judges the keys of a cluster in which no turn lives: nothing waits, nothing is leased, nothing is timed.
pub fn judge_idle(keys: &[Key]) -> Vec<Breach> {
    let mut found = Vec::new();
    for key in keys {
        match (key.class(), &key.kept) {
            ("due" | "q", Kept::Members(members)) if !members.is_empty() => {
                found.push(key.breach(format_args!("holds {members:?}")));
            }
            ("turns", Kept::Stream(..)) if key.name.ends_with(":dead") => {}
            ("turns", Kept::Stream(entries, pending)) if *entries > 0 || *pending > 0 => {
                found.push(key.breach(format_args!("{entries} entries, {pending} of them pending")));
            }
            ("ctx", Kept::Hash(fields)) => {
                for field in ["turn", "tok", "cancel", "at"] {
                    let value = fields.get(field).map(String::as_str).unwrap_or_default();
                    if !value.is_empty() {
                        found.push(key.breach(format_args!("{field} is still {value}")));
                    }
                }
            }
            ("turn" | "idem", Kept::Hash(_)) if !key.expires => found.push(key.breach("never expires")),
            _ => {}
        }
    }
    found
}

/// Judges the keys after everything that is kept for a time was deleted: only what expires by itself or stays for ever is there.
pub fn judge_swept(keys: &[Key]) -> Vec<Breach> {
    let mut found = judge_idle(keys);
    for key in keys {
        if !key.expires && !FOREVER.contains(&key.class()) {
            found.push(key.breach("was not deleted"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, kept: Kept, expires: bool) -> Key {
        Key {
            name: name.to_owned(),
            kept,
            expires,
        }
    }

    fn hash(fields: &[(&str, &str)]) -> Kept {
        let fields = fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Kept::Hash(fields.collect())
    }

    fn idle() -> Vec<Key> {
        vec![
            key("meta", hash(&[("run", "1")]), false),
            key("turns:default", Kept::Stream(0, 0), false),
            key("turns:dead", Kept::Stream(7, 0), false),
            key("due", Kept::Members(Vec::new()), false),
            key("ctx:a", hash(&[("id", "c-1"), ("turn", ""), ("tok", "")]), false),
            key("turn:a", hash(&[("f", "1-1"), ("n", "1")]), true),
            key("idem:a", hash(&[("task", "t")]), true),
        ]
    }

    #[test]
    fn an_idle_cluster_holds_no_turn() {
        assert_eq!(judge_idle(&idle()), []);
        for (place, wrong) in [
            (1, Kept::Stream(1, 0)),
            (1, Kept::Stream(0, 1)),
            (3, Kept::Members(vec!["a".to_owned()])),
            (4, hash(&[("turn", "x")])),
            (4, hash(&[("tok", "x")])),
            (4, hash(&[("cancel", "1")])),
        ] {
            let mut keys = idle();
            keys[place].kept = wrong;
            assert_eq!(judge_idle(&keys).len(), 1, "{:?}", keys[place]);
        }
        for place in [5, 6] {
            let mut keys = idle();
            keys[place].expires = false;
            assert_eq!(judge_idle(&keys).len(), 1, "{:?}", keys[place]);
        }
    }

    #[test]
    fn a_swept_cluster_holds_nothing_that_would_stay() {
        let mut keys = idle();
        // A context that nobody deleted, and an empty sorted set that Redis cannot hold.
        assert_eq!(judge_swept(&keys).len(), 2);
        keys.retain(|key| key.class() != "ctx" && key.class() != "due");
        assert_eq!(judge_swept(&keys), []);
        keys.push(key("hist:t", Kept::Other, false));
        assert_eq!(judge_swept(&keys).len(), 1);
    }
}
