//! Arithmetic of attempts and waits.

use super::record::{Tries, TurnRecord};

/// Base of the wait before a handed-back turn is queued again, in ms. The first hand-back goes back at once.
const HANDBACK_BASE_MS: u64 = 100;
/// The longest such wait.
const HANDBACK_MAX_MS: u64 = 10_000;

/// What one more crash means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterCrash {
    /// Another attempt, and further ones after it.
    Again,
    /// Another attempt, the last: it is taken alone.
    Last,
    /// No attempt is left.
    Exhausted,
}

/// Charges one attempt.
pub fn after_crash(record: &TurnRecord, tries: Tries) -> AfterCrash {
    let charged = tries.charged.saturating_add(1);
    if charged >= record.attempts {
        AfterCrash::Exhausted
    } else if charged + 1 == record.attempts {
        AfterCrash::Last
    } else {
        AfterCrash::Again
    }
}

/// Whether the attempt that runs now is the last one.
pub fn is_last(record: &TurnRecord, tries: Tries) -> bool {
    tries.charged > 0 && tries.charged.saturating_add(1) >= record.attempts
}

/// How long a turn waits after its `handbacks`-th uncharged return, in ms.
pub fn handback_wait(handbacks: u32) -> u64 {
    match handbacks {
        0 | 1 => 0,
        n => HANDBACK_BASE_MS
            .saturating_mul(1_u64 << (n - 2).min(20))
            .min(HANDBACK_MAX_MS),
    }
}

/// Spreads a wait over [half, whole] by a random number, so that many waiters do not come back together.
pub fn jitter(wait_ms: u64, random: u64) -> u64 {
    let half = wait_ms / 2;
    half + random % (wait_ms - half + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::due::tests::record;

    #[test]
    fn three_attempts_are_two_crashes_and_a_last_one() {
        let record = record();
        let tries = |charged| Tries {
            charged,
            ..Tries::default()
        };
        assert_eq!(after_crash(&record, tries(0)), AfterCrash::Again);
        assert_eq!(after_crash(&record, tries(1)), AfterCrash::Last);
        assert_eq!(after_crash(&record, tries(2)), AfterCrash::Exhausted);
        assert!(!is_last(&record, tries(1)) && is_last(&record, tries(2)));
    }

    #[test]
    fn waits_grow_and_stop_growing() {
        let waits: Vec<u64> = (0..12).map(handback_wait).collect();
        assert_eq!(
            waits,
            [0, 0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]
        );
        assert_eq!(handback_wait(u32::MAX), HANDBACK_MAX_MS);
    }

    #[test]
    fn jitter_stays_between_half_and_whole() {
        for wait in [0, 1, 2, 99, 1000] {
            for random in [0, 1, 7, u64::MAX] {
                let got = jitter(wait, random);
                assert!(got >= wait / 2 && got <= wait);
            }
        }
    }
}
