//! Task and turn ids: UUIDv7 whose 12 `rand_a` bits are the partition, so any process finds the keys from the id alone.
//! Built by hand: uuid libraries put a counter or sub-millisecond time into those bits.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Partition;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Uuid7(u128);

impl Uuid7 {
    fn new(ms: u64, partition: Partition, random: u64) -> Self {
        let time = u128::from(ms & 0xffff_ffff_ffff) << 80;
        let version = 0x7_u128 << 76;
        let place = u128::from(partition.0 & 0x0fff) << 64;
        let variant = 0b10_u128 << 62;
        Self(time | version | place | variant | u128::from(random & 0x3fff_ffff_ffff_ffff))
    }

    fn ms(self) -> u64 {
        u64::try_from(self.0 >> 80).unwrap_or(0)
    }

    fn partition(self) -> Partition {
        Partition(u16::try_from((self.0 >> 64) & 0x0fff).unwrap_or(0))
    }

    /// Only the canonical form: 36 characters, lower case, version 7, RFC variant.
    fn parse(text: &str) -> Option<Self> {
        if text.len() != 36 {
            return None;
        }
        let mut value = 0_u128;
        for (place, byte) in text.bytes().enumerate() {
            if matches!(place, 8 | 13 | 18 | 23) {
                if byte != b'-' {
                    return None;
                }
                continue;
            }
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                _ => return None,
            };
            value = (value << 4) | u128::from(digit);
        }
        let right = (value >> 76) & 0xf == 7 && (value >> 62) & 0b11 == 0b10;
        right.then_some(Self(value))
    }
}

impl fmt::Display for Uuid7 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            v >> 96,
            (v >> 80) & 0xffff,
            (v >> 64) & 0xffff,
            (v >> 48) & 0xffff,
            v & 0xffff_ffff_ffff
        )
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid7);

        impl $name {
            /// Makes an id of a time (Unix ms), the partition it lives in, and 62 random bits.
            pub fn new(ms: u64, partition: Partition, random: u64) -> Self {
                Self(Uuid7::new(ms, partition, random))
            }

            /// When it was made, in Unix ms.
            pub fn ms(self) -> u64 {
                self.0.ms()
            }

            /// The partition that the id carries.
            pub fn partition(self) -> Partition {
                self.0.partition()
            }

            /// Reads the canonical text form; any other text is simply not such an id.
            pub fn parse(text: &str) -> Option<Self> {
                Uuid7::parse(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a UUIDv7 in canonical form"))
            }
        }
    };
}

uuid_id! {
    /// Names a task.
    TaskId
}
uuid_id! {
    /// Names a turn.
    TurnId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_where_rfc_9562_puts_them() {
        let id = TaskId::new(0x0123_4567_89ab, Partition(0xfed), 0x0fff_0000_1111_2222);
        assert_eq!(id.to_string(), "01234567-89ab-7fed-8fff-000011112222");
        assert_eq!(id.partition(), Partition(0xfed));
        assert_eq!(TaskId::parse(&id.to_string()), Some(id));
    }

    #[test]
    fn other_texts_are_not_ids() {
        for bad in [
            "",
            "01234567-89AB-7fed-8fff-000011112222",
            "01234567-89ab-4fed-8fff-000011112222",
            "01234567-89ab-7fed-cfff-000011112222",
            "0123456789ab7fed8fff000011112222",
            "01234567-89ab-7fed-8fff-00001111222",
            "01234567-89ab-7fed-8fff-0000111122222",
            "01234567089ab-7fed-8fff-00001111222",
            "01234567-89ab-7fed-8fff-00001111222\u{e9}",
        ] {
            assert_eq!(TaskId::parse(bad), None, "{bad}");
        }
    }
}
