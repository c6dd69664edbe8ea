//! What the model says, on its way into the journal: pieces that come close together are one event.
//!
//! A model says a word at a time and hundreds of them a second; an event of each would cost more than it is worth, and a turn may have
//! only so many. The first piece is said at once, the next ones after a pause that grows with the number of events.

use std::time::Duration;

use tokio::time::Instant;

use crate::agent::{EventSink, SinkClosed};

/// The pause between two events: too short for a reader to notice.
const PAUSE: Duration = Duration::from_millis(20);
/// It grows by as much after so many events: an answer of an hour has some tens of thousands.
const GROWS: u32 = 2_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Voice<'a> {
    sink: &'a EventSink,
    waiting: String,
    next: Instant,
    events: u32,
}

impl<'a> Voice<'a> {
    pub(super) fn new(sink: &'a EventSink) -> Self {
        Self {
            sink,
            waiting: String::new(),
            next: Instant::now(),
            events: 0,
        }
    }

    /// Whether anything was said.
    pub(super) fn spoke(&self) -> bool {
        self.events > 0 || !self.waiting.is_empty()
    }

    /// Takes a piece; it is said now or when its time has come.
    pub(super) async fn add(&mut self, text: &str) -> Result<(), SinkClosed> {
        self.waiting.push_str(text);
        if self.next <= Instant::now() {
            self.say().await
        } else {
            Ok(())
        }
    }

    /// When what waits is to be said, if anything waits.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.next)
    }

    /// Says what waits.
    pub(super) async fn say(&mut self) -> Result<(), SinkClosed> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let text = std::mem::take(&mut self.waiting);
        self.sink.text(&text).await?;
        self.events += 1;
        self.next = Instant::now() + pause(self.events);
        Ok(())
    }
}

fn pause(events: u32) -> Duration {
    PAUSE.saturating_mul(1 + events / GROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_an_hour_stays_below_the_events_of_a_turn() {
        let mut time = Duration::ZERO;
        let events = (0_u32..).take_while(|events| {
            time += pause(*events);
            time < Duration::from_hours(1)
        });
        assert!(events.count() < 30_000);
        assert_eq!(pause(1), PAUSE);
    }
}
