//! Sizes in bytes.

use std::fmt;

use super::Setting;
use super::value::quoted;

const UNITS: [(u64, &str); 4] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];

/// A number of bytes, written `"1MiB"`, `"64KiB"` or as a plain number. Decimal units are refused: nobody agrees on
/// what a megabyte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

impl ByteSize {
    /// That many bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of bytes as a length in memory, at most what memory can hold.
    pub fn as_len(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS
            .iter()
            .find(|(size, _)| self.0 > 0 && self.0.is_multiple_of(*size));
        match exact {
            Some((size, unit)) => write!(formatter, "{}{unit}", self.0 / size),
            None => write!(formatter, "0B"),
        }
    }
}

impl Setting for ByteSize {
    const EXPECTED: &'static str = "a size such as \"512B\", \"64KiB\", \"1MiB\" or \"2GiB\"";

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = match unit.trim_start() {
            "" => 1,
            unit => UNITS.iter().find(|(_, name)| *name == unit)?.0,
        };
        number.parse::<u64>().ok()?.checked_mul(unit).map(Self)
    }

    fn print(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_a_binary_unit_or_as_bytes() {
        assert_eq!(ByteSize::parse("1MiB"), Some(ByteSize::new(1 << 20)));
        assert_eq!(ByteSize::parse("64 KiB"), Some(ByteSize::new(1 << 16)));
        assert_eq!(ByteSize::parse("2GiB"), Some(ByteSize::new(1 << 31)));
        assert_eq!(ByteSize::parse("17"), Some(ByteSize::new(17)));
        for wrong in ["", "MiB", "1MB", "1mib", "-1", "1.5MiB", "99999999999GiB"] {
            assert_eq!(ByteSize::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_printed_size_reads_back_as_itself() {
        for (bytes, printed) in [
            (0, "0B"),
            (1 << 20, "1MiB"),
            (1_500, "1500B"),
            (3 << 10, "3KiB"),
            (1 << 40, "1024GiB"),
        ] {
            assert_eq!(ByteSize::new(bytes).to_string(), printed);
            assert_eq!(ByteSize::parse(printed), Some(ByteSize::new(bytes)));
        }
    }
}
