//! Redis' time without asking for it: learned from the `now` that replies carry, so that events are stamped by one clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::platform::clock;

/// An estimate of Redis' time. Clones are the same value.
#[derive(Debug, Clone, Default)]
pub struct RedisClock {
    /// Redis ms minus this machine's boot clock in ms; 0 while nothing was learned.
    offset: Arc<AtomicU64>,
}

fn boot_ms() -> u64 {
    millis(clock::boottime())
}

/// A duration in whole ms.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl RedisClock {
    /// Takes over the time that a reply carried.
    pub fn learn(&self, now: u64) {
        self.offset.store(now.saturating_sub(boot_ms()), Ordering::Relaxed);
    }

    /// Redis' time now, in ms; this machine's wall clock until a reply was seen.
    pub fn now(&self) -> u64 {
        match self.offset.load(Ordering::Relaxed) {
            0 => clock::now_ms(),
            offset => offset.saturating_add(boot_ms()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_what_was_learned() {
        let clock = RedisClock::default();
        let far = clock::now_ms() + 1_000_000_000;
        clock.learn(far);
        assert!(clock.now() >= far && clock.now() < far + 60_000);
    }
}
