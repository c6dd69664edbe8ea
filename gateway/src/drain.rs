//! How far this gateway's own stopping has come, and when a stream must go.
//!
//! Three steps: streams that wait for nothing go first; those with a running turn may finish; in the last fifth of
//! `drain.deadline` the rest goes too, each at a moment of its own, so that clients do not all come back at once.

use std::sync::Arc;
use std::time::Duration;

use relevo_shared::platform::entropy;
use tokio::sync::watch;
use tokio::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Running,
    /// Nothing new is accepted.
    Draining,
    /// Everything goes, spread over the time from the first moment to the second.
    Closing(Instant, Instant),
}

/// The drain of one gateway. Clones are the same value.
#[derive(Debug, Clone)]
pub(crate) struct Drain(Arc<watch::Sender<Step>>);

/// Parts of the closing window: fine enough for many thousand streams.
const PARTS: u32 = 1 << 16;

/// One stream's or waiting call's place in the closing window.
#[derive(Debug)]
pub(crate) struct Seat {
    drain: Drain,
    part: u32,
}

impl Drain {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Step::Running)))
    }

    /// Streams that wait for nothing go.
    pub(crate) fn begin(&self) {
        self.advance(Step::Draining);
    }

    /// The rest goes within `window`, nine tenths of what is left until connections are cut off.
    pub(crate) fn close(&self, window: Duration) {
        let now = Instant::now();
        self.advance(Step::Closing(now, now + window));
    }

    fn advance(&self, to: Step) {
        self.0.send_if_modified(|step| {
            let further = to > *step;
            *step = to.max(*step);
            further
        });
    }

    /// Takes a place.
    pub(crate) fn seat(&self) -> Seat {
        let part = u32::try_from(entropy::u64() % u64::from(PARTS)).unwrap_or(0);
        Seat {
            drain: self.clone(),
            part,
        }
    }
}

impl Seat {
    /// Resolves when its owner must end. `idle`: no turn is running for it. Cancel-safe.
    pub(crate) async fn must_go(&self, idle: bool) {
        let mut steps = self.drain.0.subscribe();
        let enough = |step: &Step| matches!(step, Step::Closing(..)) || (idle && *step != Step::Running);
        // It cannot be closed while `self` holds the sender.
        let step = steps.wait_for(enough).await.map(|step| *step);
        if let Ok(Step::Closing(from, to)) = step
            && !idle
        {
            let wait = to.duration_since(from) / PARTS * self.part;
            tokio::time::sleep_until(from + wait).await;
        }
    }

    /// Until when its owner must have answered, once it had to go: a little before connections are cut off. `None`: nobody has to.
    pub(crate) fn last_moment(&self) -> Option<Instant> {
        match *self.drain.0.borrow() {
            Step::Closing(from, to) => Some(to + to.duration_since(from) / 18),
            Step::Running | Step::Draining => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn what_waits_for_nothing_goes_first_and_the_rest_in_the_window() {
        let drain = Drain::new();
        let seat = drain.seat();
        assert_eq!(seat.must_go(true).now_or_never(), None);
        drain.begin();
        seat.must_go(true).await;
        assert_eq!(seat.must_go(false).now_or_never(), None);
        drain.close(Duration::from_millis(1));
        seat.must_go(false).await;
    }

    #[test]
    fn whoever_goes_has_a_moment_to_answer_and_no_more() {
        let drain = Drain::new();
        let seat = drain.seat();
        drain.begin();
        assert_eq!(seat.last_moment(), None);
        let before = Instant::now();
        drain.close(Duration::from_secs(9));
        let last = seat.last_moment().unwrap();
        // Connections are cut off after ten.
        assert!(last >= before + Duration::from_millis(9_500) && last < Instant::now() + Duration::from_secs(10));
    }

    #[test]
    fn draining_does_not_go_back() {
        let drain = Drain::new();
        drain.close(Duration::ZERO);
        drain.begin();
        assert!(drain.seat().must_go(true).now_or_never().is_some());
    }
}
