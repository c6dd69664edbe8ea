//! Waiting for conditions instead of sleeping.
//!
//! A condition answers `Ok(value)` when it holds, or `Err(status)` with what it sees now. It is asked again after a
//! short interval, for a long time: a slow machine makes a test slow, not red. The last status is in the panic message.

use std::fmt::Display;
use std::future::Future;
use std::panic::Location;
use std::thread;
use std::time::{Duration, Instant};

/// How often a condition is asked: short against everything that is waited for.
const INTERVAL: Duration = Duration::from_millis(5);

/// How long a condition may take. Only a test that is going to fail waits this long.
pub const LONGEST: Duration = Duration::from_mins(1);

/// Waits until `condition` holds and returns its value.
///
/// # Panics
/// When it does not hold within [`LONGEST`]; the message has `what` and the last status.
#[track_caller]
pub fn until<T, E, F, Fut>(what: &str, condition: F) -> impl Future<Output = T>
where
    E: Display,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    within(LONGEST, what, condition)
}

/// [`until`] with another limit, for what is known to take longer.
///
/// # Panics
/// When the condition does not hold within `limit`.
#[track_caller]
pub fn within<T, E, F, Fut>(limit: Duration, what: &str, mut condition: F) -> impl Future<Output = T>
where
    E: Display,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let caller = Location::caller();
    async move {
        let start = Instant::now();
        let mut last = String::from("no answer yet");
        loop {
            let left = limit.saturating_sub(start.elapsed());
            match tokio::time::timeout(left, condition()).await {
                Ok(Ok(value)) => return value,
                // A condition that answers at once is asked even when no time is left.
                Ok(Err(status)) if left.is_zero() => give_up(what, limit, &status.to_string(), caller),
                Ok(Err(status)) => last = status.to_string(),
                Err(_elapsed) => give_up(what, limit, &last, caller),
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// [`until`] for code outside an async runtime. It blocks the thread.
///
/// # Panics
/// When the condition does not hold within [`LONGEST`].
#[track_caller]
pub fn until_sync<T, E: Display>(what: &str, condition: impl FnMut() -> Result<T, E>) -> T {
    within_sync(LONGEST, what, condition)
}

/// [`until_sync`] with another limit.
///
/// # Panics
/// When the condition does not hold within `limit`.
#[track_caller]
pub fn within_sync<T, E: Display>(limit: Duration, what: &str, mut condition: impl FnMut() -> Result<T, E>) -> T {
    let start = Instant::now();
    loop {
        match condition() {
            Ok(value) => return value,
            Err(status) if start.elapsed() >= limit => give_up(what, limit, &status.to_string(), Location::caller()),
            Err(_) => thread::sleep(INTERVAL),
        }
    }
}

fn give_up(what: &str, limit: Duration, last: &str, caller: &Location<'_>) -> ! {
    panic!("{caller}: waited {limit:?} for {what}; last status: {last}")
}
