//! Time: the only reader of clocks other than tokio's.
//!
//! Owns the two clocks that cannot be paused by a test: the wall, for what people and records see, and the clock that
//! goes on while the machine sleeps, for authority that must end on time. It refuses to decide anything; rules take the
//! time as an argument. Intervals inside a process use `tokio::time::Instant`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since 1970 on this machine's wall clock. It may jump either way: never compare it with Redis' time and
/// never measure with it.
#[expect(clippy::disallowed_methods, reason = "this is the clock everything else must use")]
pub fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

/// Time since the machine started, sleep and suspension included (`CLOCK_BOOTTIME`).
///
/// A worker on a machine that was suspended must see that its leases are over; the usual monotonic clock stands still
/// meanwhile and would tell it that it still owns them.
pub fn boottime() -> Duration {
    duration_of(ClockId::Boottime)
}

/// Processor time this process has used.
pub fn process_cpu_time() -> Duration {
    duration_of(ClockId::ProcessCPUTime)
}

fn duration_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // Neither clock is ever negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_is_past_the_day_this_was_written() {
        assert!(now_ms() > 1_735_689_600_000);
    }

    #[test]
    fn the_boot_clock_never_goes_back() {
        let first = boottime();
        assert!(first > Duration::ZERO);
        assert!(boottime() >= first);
    }

    #[test]
    fn work_uses_processor_time() {
        let before = process_cpu_time();
        let mut sum = 0_u64;
        while process_cpu_time() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(process_cpu_time() > before);
    }
}
