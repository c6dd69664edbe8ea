//! What the disk of a worker is called, and who takes the turns whose workspace is there.

use std::fmt;

/// A file system that workers have in common. Part of keys, so of few characters: none that keys are put together with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageId(String);

impl StorageId {
    /// What a name must be.
    pub const RULE: &str = "must be 1 to 64 of A-Z, a-z, 0-9, dot, _ and -";

    /// Accepts what [`Self::RULE`] says.
    pub fn parse(text: &str) -> Option<Self> {
        let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(letter);
        fits.then(|| Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StorageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who takes from a queue: the workers of a pool, `<pool>`, or those of them that have this storage, `<pool>@<storage>`.
pub fn takers(pool: &str, storage: Option<&StorageId>) -> String {
    match storage {
        None => pool.to_owned(),
        Some(storage) => format!("{pool}@{storage}"),
    }
}

/// The pool and the storage of [`takers`].
pub fn pool_and_storage(takers: &str) -> (&str, Option<StorageId>) {
    match takers.split_once('@') {
        None => (takers, None),
        Some((pool, storage)) => (pool, StorageId::parse(storage)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_holds_nothing_that_keys_are_made_with() {
        for good in ["a", "disk-1", "10.0.0.7", "node_B.example", &"x".repeat(64)] {
            assert!(StorageId::parse(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "a@b",
            "a:b",
            "{a",
            "a}",
            "a b",
            "ä",
            "a/b",
            "a*",
            "%1",
            &"x".repeat(65),
        ] {
            assert!(StorageId::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn who_takes_is_told_apart_again() {
        let disk = StorageId::parse("disk-1");
        assert_eq!(takers("default", None), "default");
        assert_eq!(takers("default", disk.as_ref()), "default@disk-1");
        assert_eq!(pool_and_storage("default"), ("default", None));
        assert_eq!(pool_and_storage("default@disk-1"), ("default", disk));
    }
}
