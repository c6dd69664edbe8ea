//! Redis time, without asking for it: the offset that replies show, added to a local clock that never jumps.
//!
//! Everything that is written carries this time, whichever gateway writes it; the local wall clock is never used. It
//! runs a little late (by the way of the reply), which is harmless: what must not go back is clamped by who writes it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use relevo_shared::platform::clock::boottime;

/// An estimate of Redis time.
#[derive(Debug)]
pub(crate) struct RedisClock {
    offset_ms: AtomicI64,
}

impl RedisClock {
    /// Starts with a first reply.
    pub(crate) fn new(redis_ms: u64) -> Self {
        let clock = Self {
            offset_ms: AtomicI64::new(0),
        };
        clock.observe(redis_ms);
        clock
    }

    /// Takes the time of a reply that has just come.
    pub(crate) fn observe(&self, redis_ms: u64) {
        self.offset_ms.store(offset(redis_ms, boottime()), Ordering::Relaxed);
    }

    /// Redis time now, in ms.
    pub(crate) fn now(&self) -> u64 {
        time(self.offset_ms.load(Ordering::Relaxed), boottime())
    }
}

fn offset(redis_ms: u64, local: Duration) -> i64 {
    signed(redis_ms) - signed(local.as_millis())
}

fn time(offset_ms: i64, local: Duration) -> u64 {
    u64::try_from(offset_ms + signed(local.as_millis())).unwrap_or(0)
}

fn signed(ms: impl TryInto<i64>) -> i64 {
    ms.try_into().unwrap_or(i64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_the_last_reply_even_when_redis_is_behind() {
        let local = Duration::from_hours(1_000);
        for redis in [0, 5_000, 1_800_000_000_000] {
            let offset = offset(redis, local);
            assert_eq!(time(offset, local + Duration::from_millis(250)), redis + 250);
        }
    }
}
