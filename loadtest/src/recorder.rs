//! Figures while they come in: histograms and counters behind one lock, which a driver of thousands of turns per second
//! does not feel.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::turn::{Done, Failure};
use crate::verify::{Kind, Violation};

/// How many broken promises are told in full.
const EXAMPLES: usize = 20;
/// Three digits: a latency is right to a thousandth, which takes some hundred kilobytes.
const DIGITS: u8 = 3;

/// What was counted.
#[derive(Debug)]
pub struct Tally {
    /// Microseconds to the first event of a stream.
    pub first_event: Histogram<u64>,
    /// Microseconds to the end of the turn.
    pub turn: Histogram<u64>,
    /// Turns that ended as asked.
    pub turns: u64,
    /// Calls that were refused for now.
    pub refused: u64,
    /// What failed otherwise.
    pub failed: u64,
    /// Both by kind.
    pub errors: BTreeMap<String, u64>,
    /// Streams that went on at another address or connection.
    pub resumes: u64,
    /// Attempts that were announced void.
    pub boundaries: u64,
    /// Turns that were checked.
    pub verified: u64,
    /// Broken promises.
    pub violations: BTreeMap<Kind, u64>,
    /// The first of what went wrong, for people.
    pub examples: Vec<String>,
}

/// Collects what turns report.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Tally>);

fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(DIGITS).unwrap_or_else(|_| unreachable_digits());
    histogram.auto(true);
    histogram
}

/// Three digits are always accepted; the type cannot say so.
#[expect(clippy::panic, reason = "a constant is out of range: nothing can be measured")]
fn unreachable_digits() -> Histogram<u64> {
    panic!("histograms have 0 to 5 digits")
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            first_event: histogram(),
            turn: histogram(),
            turns: 0,
            refused: 0,
            failed: 0,
            errors: BTreeMap::new(),
            resumes: 0,
            boundaries: 0,
            verified: 0,
            violations: BTreeMap::new(),
            examples: Vec::new(),
        }
    }
}

impl Recorder {
    /// A turn has ended as asked.
    pub fn done(&self, done: &Done) {
        let mut tally = self.lock();
        tally.turns += 1;
        tally.resumes += u64::from(done.resumes);
        tally.boundaries += u64::from(done.boundaries);
        record(&mut tally.turn, done.took);
        if let Some(first) = done.first_event {
            record(&mut tally.first_event, first);
        }
    }

    /// A turn was refused or failed.
    pub fn failed(&self, failure: &Failure) {
        let mut tally = self.lock();
        if failure.refused {
            tally.refused += 1;
        } else {
            tally.failed += 1;
            tally.example(format!("{}: {}", failure.kind, failure.detail));
        }
        tally.resumes += u64::from(failure.resumes);
        *tally.errors.entry(failure.kind.clone()).or_default() += 1;
    }

    /// A turn was checked.
    pub fn verified(&self, violations: &[Violation]) {
        let mut tally = self.lock();
        tally.verified += 1;
        for violation in violations {
            *tally.violations.entry(violation.kind).or_default() += 1;
            tally.example(violation.to_string());
        }
    }

    /// What there is so far; the next turns are counted from zero.
    pub fn take(&self) -> Tally {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    fn example(&mut self, text: String) {
        if self.examples.len() < EXAMPLES {
            self.examples.push(text);
        }
    }
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    // It grows as needed: only a value that no histogram holds is refused, and no turn takes that long.
    histogram.record(micros).ok();
}
