//! The name of a content: its SHA-256 in lower-case hexadecimal digits.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of a content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads exactly what [`fmt::Display`] writes, so that one content has one name.
    pub fn parse(text: &str) -> Option<Self> {
        let lower = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let bytes = lower.then(|| hex::decode(text).ok()).flatten()?;
        bytes.try_into().ok().map(Self)
    }
}

/// The SHA-256 of a content that comes in pieces.
#[derive(Clone, Default)]
pub struct Digester(Sha256);

impl Digester {
    /// Adds the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of everything that was added.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Digester").finish_non_exhaustive()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_in_pieces_has_the_name_of_the_whole() {
        let mut pieces = Digester::default();
        assert_eq!(pieces.clone().finish(), Digest::of(b""));
        for piece in [&b"ab"[..], b"", b"c"] {
            pieces.add(piece);
        }
        assert_eq!(pieces.finish(), Digest::of(b"abc"));
    }

    #[test]
    fn a_content_has_one_name() {
        let name = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), name);
        assert_eq!(Digest::parse(name), Some(Digest::of(b"")));
        let (upper, long) = (name.to_uppercase(), format!("{name}0"));
        for wrong in ["", "..", &name[1..], &upper, &long, "é".repeat(32).as_str()] {
            assert_eq!(Digest::parse(wrong), None, "{wrong}");
        }
    }
}
