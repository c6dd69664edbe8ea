//! What a chaos run (`tests/chaos`, `make chaos`) decides and judges, as pure functions: which faults come when, whether a
//! history of turns broke a promise, how fast the cluster recovered, and the report that shows it.
//!
//! Nothing here starts a process, reads a clock or speaks to anyone: the same seed gives the same schedule, the same
//! history the same verdict.

pub mod cancel;
pub mod history;
pub mod left;
pub mod page;
pub mod random;
pub mod schedule;
pub mod series;
pub mod svg;

/// A whole number as one that can be divided: counts here are far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "counts and milliseconds are far below 2^52")]
pub fn real(number: u64) -> f64 {
    number as f64
}

/// A length as a whole number.
pub fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
