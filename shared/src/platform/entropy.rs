//! Randomness: the only source of it.
//!
//! Owns one cryptographic generator per thread, seeded by the operating system: a turn needs a dozen random values, and a
//! system call for each is a tenth of what the turn costs. It returns values, never errors: see [`bytes()`].

use std::cell::RefCell;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

thread_local! {
    static GENERATOR: RefCell<StdRng> = RefCell::new(StdRng::from_seed(seed()));
}

/// The operating system refuses only where `getrandom` and /dev/urandom are both closed to the process, which no retry
/// cures. Lease tokens and ids must not be guessable or repeat, so going on is no choice, and an error at every caller
/// would only be turned into an abort there: the process ends here, and its leases run out.
fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    if let Err(error) = getrandom::fill(&mut seed) {
        tracing::error!(%error, "the operating system gives no randomness; aborting");
        std::process::abort();
    }
    seed
}

/// Random bytes fit for tokens and keys.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    GENERATOR.with_borrow_mut(|generator| generator.fill_bytes(&mut bytes));
    bytes
}

/// 64 random bits.
pub fn u64() -> u64 {
    u64::from_ne_bytes(bytes())
}

/// 128 random bits.
pub fn u128() -> u128 {
    u128::from_ne_bytes(bytes())
}

/// A random duration from zero to `longest`, to spread what would otherwise happen everywhere at once.
pub fn up_to(longest: Duration) -> Duration {
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    // The upper half of a 128-bit product is uniform in 0..=nanos, without the bias of a remainder.
    let product = u128::from(u64()) * (u128::from(nanos) + 1);
    Duration::from_nanos(u64::try_from(product >> 64).unwrap_or(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_comes_twice() {
        assert_ne!(bytes::<16>(), bytes::<16>());
        assert_ne!(u128(), u128());
        assert_ne!(u64(), u64());
    }

    #[test]
    fn a_random_duration_keeps_its_bound() {
        assert_eq!(up_to(Duration::ZERO), Duration::ZERO);
        let longest = Duration::from_nanos(3);
        let seen: std::collections::BTreeSet<Duration> = (0..1_000).map(|_| up_to(longest)).collect();
        assert!(seen.iter().all(|duration| *duration <= longest));
        assert_eq!(seen.len(), 4);
        assert!(up_to(Duration::MAX) <= Duration::MAX);
    }
}
