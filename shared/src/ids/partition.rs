//! Partitions: P groups of contexts whose keys share a hash tag, spread evenly over the slots of a Redis Cluster.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of hash slots of a Redis Cluster.
const SLOTS: u32 = 16_384;

/// One of the P partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Partition(pub u16);

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// CRC16/XMODEM, the checksum that Redis Cluster uses.
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0_u16;
    for byte in bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
        }
    }
    crc
}

/// The slot of a text that stands between the braces of a key.
pub fn key_slot(tag: &str) -> u32 {
    u32::from(crc16(tag.as_bytes())) % SLOTS
}

/// How many partitions there are and which hash tag each has. Fixed for ever once a Redis holds data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    tags: Vec<String>,
}

/// The number of partitions is not a power of two from 1 to 4,096.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("partitions must be a power of two from 1 to 4096, not {0}")]
pub struct LayoutError(pub u32);

impl Layout {
    /// Computes the tags: tag `i` is `i.<s>` with the smallest `s` that puts its slot into `[i*16384/P, (i+1)*16384/P)`.
    ///
    /// # Errors
    /// [`LayoutError`] for a number that is not a power of two from 1 to 4,096.
    pub fn new(partitions: u32) -> Result<Self, LayoutError> {
        if !partitions.is_power_of_two() || partitions > 4096 {
            return Err(LayoutError(partitions));
        }
        let width = SLOTS / partitions;
        let tags = (0..partitions).map(|i| tag(i, i * width, (i + 1) * width)).collect();
        Ok(Self { tags })
    }

    /// P.
    pub fn partitions(&self) -> u16 {
        u16::try_from(self.tags.len()).unwrap_or(u16::MAX)
    }

    /// All partitions in order.
    pub fn all(&self) -> impl Iterator<Item = Partition> + use<> {
        (0..self.partitions()).map(Partition)
    }

    /// The hash tag of a partition; none for a number that is not below P.
    pub fn tag(&self, partition: Partition) -> Option<&str> {
        self.tags.get(usize::from(partition.0)).map(String::as_str)
    }

    /// All tags joined by a comma, as `relevo:layout` stores them.
    pub fn tags_text(&self) -> String {
        self.tags.join(",")
    }
}

fn tag(partition: u32, from: u32, to: u32) -> String {
    let mut suffix = 0_u64;
    loop {
        let text = format!("{partition}.{suffix}");
        if (from..to).contains(&key_slot(&text)) {
            return text;
        }
        suffix += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_agree_with_redis() {
        // CLUSTER KEYSLOT of these texts on Redis 7.0.15.
        assert_eq!(key_slot("123456789"), 0x31c3 % SLOTS);
        assert_eq!(key_slot("foo"), 12_182);
        assert_eq!(key_slot(""), 0);
    }

    #[test]
    fn every_partition_lies_in_its_share_of_the_slots() {
        for partitions in [1, 2, 64, 256] {
            let layout = Layout::new(partitions).unwrap();
            let width = SLOTS / partitions;
            for partition in layout.all() {
                let slot = key_slot(layout.tag(partition).unwrap());
                assert_eq!(slot / width, u32::from(partition.0));
            }
        }
    }

    #[test]
    fn the_tags_of_64_partitions_are_fixed_for_ever() {
        let text = Layout::new(64).unwrap().tags_text();
        assert_eq!(text, GOLDEN_64);
    }

    #[test]
    fn odd_numbers_of_partitions_are_refused() {
        for bad in [0, 3, 63, 8192] {
            assert_eq!(Layout::new(bad), Err(LayoutError(bad)));
        }
    }

    const GOLDEN_64: &str = "0.178,1.2,2.303,3.63,4.40,5.69,6.11,7.38,8.53,9.8,10.59,11.3,12.31,13.18,14.132,15.303,16.12,17.139,18.10,19.8,20.322,21.73,22.159,23.22,24.78,25.51,26.29,27.100,28.12,29.171,30.58,31.71,32.149,33.63,34.79,35.50,36.11,\
        37.8,38.13,39.121,40.51,41.78,42.152,43.29,44.0,45.23,46.343,47.72,48.18,49.31,50.52,51.313,52.139,53.13,54.333,55.20,56.18,57.31,58.140,59.33,60.50,61.79,62.100,63.28";
}
