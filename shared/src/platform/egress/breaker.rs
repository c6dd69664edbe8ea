//! A circuit breaker: a server that fails again and again is left alone for a while. Pure; time is an argument.
//!
//! Closed: every call goes out; so many failures in a row open it. Open: no call goes out until the pause is over. Half open:
//! one call goes out, the probe; if the server answers it, the breaker closes, else the pause begins anew. What was begun before the
//! breaker opened says nothing about the server of now: its result is passed over.
//!
//! A repeat, a further call of somebody who goes on asking, is no further failure: one who is impatient does not shut out all
//! others. It may be a probe before the pause is over, which does not become longer by that.
//!
//! A call aside asks for what a server may well give that fails at all else, such as its card: its success ends no row of failures, and a
//! probe that is one leaves the breaker one failure away from opening again.

use std::time::Duration;

use tokio::time::Instant;

/// When it opens and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row that open it.
    pub failures: u32,
    /// How long it stays open.
    pub pause: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// The pause before the probe ends, or ended, then.
    HalfOpen {
        until: Instant,
    },
}

/// What a call says about the server by its result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// Its caller has asked before.
    pub repeat: bool,
    /// Its success says little.
    pub aside: bool,
}

/// A call that was let out. Its result is told with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    generation: u64,
    weight: Weight,
}

/// The breaker of one server.
#[derive(Debug, Clone)]
pub struct Breaker {
    settings: BreakerSettings,
    state: State,
    /// Counts openings and probes.
    generation: u64,
}

impl Breaker {
    /// A closed one.
    pub const fn new(settings: BreakerSettings) -> Self {
        Self {
            settings,
            state: State::Closed { failures: 0 },
            generation: 0,
        }
    }

    /// Lets a call out.
    ///
    /// # Errors
    /// It is open: how long until a call may go out.
    pub fn admit(&mut self, now: Instant, weight: Weight) -> Result<Ticket, Duration> {
        match self.state {
            State::Closed { .. } => {}
            State::Open { until } if now < until && !weight.repeat => return Err(until - now),
            State::Open { until } => {
                self.generation += 1;
                self.state = State::HalfOpen { until };
            }
            // The probe decides; if it fails now, it takes as long as this.
            State::HalfOpen { until } if until <= now => return Err(self.settings.pause),
            State::HalfOpen { until } => return Err(until - now),
        }
        Ok(Ticket {
            generation: self.generation,
            weight,
        })
    }

    /// The server answers the call; whether the answer comes to its end is not known yet.
    pub fn answered(&mut self, ticket: Ticket) {
        if self.is_of_now(ticket) && self.is_open() {
            let failures = if ticket.weight.aside {
                self.settings.failures.saturating_sub(1)
            } else {
                0
            };
            self.state = State::Closed { failures };
        }
    }

    /// The whole answer is there.
    pub fn succeeded(&mut self, ticket: Ticket) {
        if ticket.weight.aside {
            self.answered(ticket);
        } else if self.is_of_now(ticket) {
            self.state = State::Closed { failures: 0 };
        }
    }

    /// There was no answer, or one that says that the server is broken, or half of one.
    pub fn failed(&mut self, ticket: Ticket, now: Instant) {
        if !self.is_of_now(ticket) {
            return;
        }
        match self.state {
            State::Closed { .. } if ticket.weight.repeat => {}
            State::Closed { failures } if failures + 1 < self.settings.failures => {
                self.state = State::Closed { failures: failures + 1 };
            }
            State::HalfOpen { until } if now < until => self.open(until),
            State::Closed { .. } | State::HalfOpen { .. } => self.open(now + self.settings.pause),
            State::Open { .. } => {}
        }
    }

    /// Nobody waited for the result. If it was the probe, the next call is one.
    pub fn abandoned(&mut self, ticket: Ticket, now: Instant) {
        if let State::HalfOpen { until } = self.state
            && self.is_of_now(ticket)
        {
            self.open(until.max(now));
        }
    }

    /// Whether calls are held back.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }

    /// Whether there is nothing to remember.
    pub fn is_fresh(&self) -> bool {
        self.state == State::Closed { failures: 0 }
    }

    fn open(&mut self, until: Instant) {
        self.generation += 1;
        self.state = State::Open { until };
    }

    fn is_of_now(&self, ticket: Ticket) -> bool {
        ticket.generation == self.generation
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAUSE: Duration = Duration::from_secs(10);
    const PLAIN: Weight = Weight {
        repeat: false,
        aside: false,
    };
    const REPEAT: Weight = Weight { repeat: true, ..PLAIN };
    const ASIDE: Weight = Weight { aside: true, ..PLAIN };

    fn breaker() -> Breaker {
        Breaker::new(BreakerSettings {
            failures: 3,
            pause: PAUSE,
        })
    }

    fn open(now: Instant) -> Breaker {
        let mut breaker = breaker();
        for _ in 0..3 {
            let ticket = breaker.admit(now, PLAIN).unwrap();
            breaker.failed(ticket, now);
        }
        assert!(breaker.is_open());
        breaker
    }

    #[test]
    fn so_many_failures_in_a_row_open_it() {
        let now = Instant::now();
        let mut breaker = breaker();
        for failed in [true, true, false, true, true] {
            let ticket = breaker.admit(now, PLAIN).unwrap();
            if failed {
                breaker.failed(ticket, now);
            } else {
                breaker.answered(ticket);
                breaker.succeeded(ticket);
            }
            assert!(!breaker.is_open());
        }
        let ticket = breaker.admit(now, PLAIN).unwrap();
        breaker.failed(ticket, now);
        assert_eq!(breaker.admit(now, PLAIN), Err(PAUSE));
        assert_eq!(
            breaker.admit(now + Duration::from_secs(4), PLAIN),
            Err(Duration::from_secs(6))
        );
    }

    #[test]
    fn answers_that_break_off_are_failures_in_a_row() {
        let now = Instant::now();
        let mut breaker = breaker();
        for _ in 0..3 {
            let ticket = breaker.admit(now, PLAIN).unwrap();
            breaker.answered(ticket);
            breaker.failed(ticket, now);
        }
        assert!(breaker.is_open());
    }

    #[test]
    fn after_the_pause_one_probe_goes_out() {
        let now = Instant::now();
        let mut breaker = open(now);
        let later = now + PAUSE;
        let probe = breaker.admit(later, PLAIN).unwrap();
        assert!(breaker.admit(later, PLAIN).is_err(), "one probe");
        breaker.failed(probe, later);
        assert_eq!(breaker.admit(later, PLAIN), Err(PAUSE), "the pause begins anew");
        let probe = breaker.admit(later + PAUSE, PLAIN).unwrap();
        breaker.answered(probe);
        assert!(!breaker.is_open());
        assert!(breaker.admit(later + PAUSE, PLAIN).is_ok());
        // The probe's own end counts like any other's.
        breaker.failed(probe, later + PAUSE);
        assert!(!breaker.is_open() && !breaker.is_fresh());
    }

    #[test]
    fn one_who_goes_on_asking_shuts_out_nobody() {
        let now = Instant::now();
        let mut breaker = breaker();
        for repeat in [false, true, true, true, false, true] {
            let ticket = breaker.admit(now, Weight { repeat, ..PLAIN }).unwrap();
            breaker.failed(ticket, now);
        }
        assert!(!breaker.is_open(), "two have failed");
        let ticket = breaker.admit(now, PLAIN).unwrap();
        breaker.failed(ticket, now);
        assert!(breaker.is_open());
    }

    #[test]
    fn what_a_broken_server_still_gives_ends_no_row_of_failures() {
        let now = Instant::now();
        let mut breaker = breaker();
        for _ in 0..3 {
            let card = breaker.admit(now, ASIDE).unwrap();
            breaker.answered(card);
            breaker.succeeded(card);
            let ticket = breaker.admit(now, PLAIN).unwrap();
            breaker.failed(ticket, now);
        }
        assert!(breaker.is_open());
        let later = now + PAUSE;
        let card = breaker.admit(later, ASIDE).unwrap();
        breaker.answered(card);
        breaker.succeeded(card);
        assert!(!breaker.is_open(), "the card is the probe");
        let ticket = breaker.admit(later, PLAIN).unwrap();
        breaker.failed(ticket, later);
        assert!(breaker.is_open(), "one failure is enough now");
        let card = breaker.admit(later + PAUSE, ASIDE).unwrap();
        breaker.answered(card);
        let ticket = breaker.admit(later + PAUSE, PLAIN).unwrap();
        breaker.succeeded(ticket);
        assert!(breaker.is_fresh());
    }

    #[test]
    fn a_server_that_gives_not_even_its_card_has_failed() {
        let now = Instant::now();
        let mut breaker = breaker();
        for _ in 0..3 {
            let card = breaker.admit(now, ASIDE).unwrap();
            breaker.failed(card, now);
        }
        assert!(breaker.is_open());
    }

    #[test]
    fn one_who_goes_on_asking_finds_out_first() {
        let now = Instant::now();
        let mut breaker = open(now);
        let second = now + Duration::from_secs(1);
        for end in [Breaker::failed, Breaker::abandoned] {
            let early = breaker.admit(second, REPEAT).unwrap();
            assert!(breaker.admit(second, REPEAT).is_err(), "one probe");
            end(&mut breaker, early, second);
            let left = PAUSE.saturating_sub(Duration::from_secs(1));
            assert_eq!(
                breaker.admit(second, PLAIN),
                Err(left),
                "the pause is as long as before"
            );
        }
        let early = breaker.admit(second, REPEAT).unwrap();
        breaker.answered(early);
        assert!(breaker.admit(second, PLAIN).is_ok());
    }

    #[test]
    fn a_probe_that_nobody_waits_for_makes_room_for_another() {
        let now = Instant::now();
        let mut breaker = open(now);
        let later = now + PAUSE;
        let probe = breaker.admit(later, PLAIN).unwrap();
        breaker.abandoned(probe, later);
        assert!(breaker.is_open());
        assert!(breaker.admit(later, PLAIN).is_ok());
        breaker.answered(probe);
        assert!(breaker.is_open(), "the first probe is not the one that counts any more");
    }

    #[test]
    fn what_began_before_it_opened_says_nothing() {
        let now = Instant::now();
        let mut breaker = breaker();
        let old: Vec<Ticket> = (0..5).map(|_| breaker.admit(now, PLAIN).unwrap()).collect();
        for ticket in old.iter().take(3) {
            breaker.failed(*ticket, now);
        }
        assert!(breaker.is_open());
        breaker.answered(old[3]);
        breaker.succeeded(old[3]);
        assert!(breaker.is_open());
        let probe = breaker.admit(now + PAUSE, PLAIN).unwrap();
        breaker.failed(old[4], now + PAUSE);
        breaker.answered(probe);
        assert!(breaker.is_fresh());
    }

    proptest! {
        /// Whatever happens in whatever order: at most one call is out while it is half open, and in the end calls go out again.
        #[test]
        fn calls_go_out_again_in_the_end(steps in prop::collection::vec((0_u8..6, 0_usize..8, 0_u64..15, any::<(bool, bool)>()), 0..200)) {
            let mut now = Instant::now();
            let mut breaker = breaker();
            let mut out: Vec<Ticket> = Vec::new();
            for (what, which, seconds, (repeat, aside)) in steps {
                let weight = Weight { repeat, aside };
                now += Duration::from_secs(seconds);
                let was_open = breaker.is_open();
                match what {
                    0 | 1 => if let Ok(ticket) = breaker.admit(now, weight) {
                        if was_open {
                            prop_assert!(breaker.admit(now, weight).is_err());
                        }
                        out.push(ticket);
                    },
                    _ if out.is_empty() => {}
                    _ => {
                        let ticket = out.swap_remove(which % out.len());
                        match what {
                            2 => breaker.answered(ticket),
                            3 => breaker.succeeded(ticket),
                            4 => breaker.failed(ticket, now),
                            _ => breaker.abandoned(ticket, now),
                        }
                    }
                }
            }
            for ticket in out {
                breaker.abandoned(ticket, now);
            }
            prop_assert!(breaker.admit(now + PAUSE, PLAIN).is_ok());
        }
    }
}
