//! How long a turn waits for a server that is busy or not there. Pure.

use std::time::Duration;

use relevo_shared::domain::retry::jitter;
use relevo_shared::store::millis;

/// The first wait where the server names none, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(16);
/// A server that wants to be asked again at once is given this long.
const SHORTEST: Duration = Duration::from_millis(250);

/// What is left of the time that a turn may wait, all its waits together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    left: Duration,
    count: u32,
}

impl Waits {
    pub(super) const fn new(most: Duration) -> Self {
        Self { left: most, count: 0 }
    }

    /// Whether it has waited.
    pub(super) const fn began(&self) -> bool {
        self.count > 0
    }

    /// How long to wait before the next request: as long as the server wants, or longer each time. `None`: that is too long.
    pub(super) fn next(&mut self, wanted: Option<Duration>, random: u64) -> Option<Duration> {
        let own = FIRST.saturating_mul(1 << self.count.min(8)).min(LONGEST);
        let own = || Duration::from_millis(jitter(millis(own), random));
        let wait = wanted.map_or_else(own, |wanted| wanted.max(SHORTEST));
        self.left = self.left.checked_sub(wait)?;
        self.count += 1;
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_waited_for_as_long_as_it_wants_within_the_bound() {
        let mut waits = Waits::new(Duration::from_secs(10));
        assert!(!waits.began());
        for (wanted, wait) in [(7, Some(7)), (4, None), (3, Some(3)), (1, None)] {
            assert_eq!(
                waits.next(Some(Duration::from_secs(wanted)), 0),
                wait.map(Duration::from_secs)
            );
        }
        assert!(waits.began());
        assert_eq!(Waits::new(LONGEST).next(Some(Duration::ZERO), 0), Some(SHORTEST));
        assert_eq!(Waits::new(Duration::ZERO).next(Some(Duration::ZERO), 0), None);
    }

    #[test]
    fn without_a_wish_waits_grow_and_end() {
        let mut waits = Waits::new(Duration::from_mins(1));
        let all: Vec<u64> = std::iter::from_fn(|| waits.next(None, u64::MAX)).map(millis).collect();
        assert!(all.is_sorted() && all.len() >= 6, "{all:?}");
        assert!(all.iter().sum::<u64>() <= 60_000, "{all:?}");
    }
}
