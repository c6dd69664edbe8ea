//! What the janitor does with a context whose time has come, and what a worker does with a turn it gives back.
//!
//! The rule in English: a lease that has not run out is left alone. When it has run out, a cancel wins, then the deadline, then the
//! crash policy; a turn whose agent never began is queued again without a charge. A queued turn is watched: its entry may
//! vanish, its deadline may pass, it may wait too long. A suspended turn is left alone until its user has had enough time to answer.
//! Turns that wait behind it in their context are judged when they are live. Nothing here reads the score of the `due` index: it only says
//! when to look.

use super::reason::FailReason;
use super::record::{CrashPolicy, Tries, TurnRecord};
use super::retry::{AfterCrash, after_crash, handback_wait, is_last};
use super::state::End;

/// How long a queued turn is left alone before someone checks that its entry still exists, in ms.
pub const QUEUED_CHECK_MS: u64 = 30_000;

/// Where the live turn of a context stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A worker holds it until this Redis ms.
    Leased {
        /// When the lease runs out.
        until: u64,
    },
    /// It waits in a queue for a worker.
    Queued {
        /// Whether its entry is there and was not delivered to anyone.
        waiting: bool,
    },
    /// It waits for its time before it is queued.
    Delayed {
        /// When.
        at: u64,
    },
    /// It waits for its user's answer.
    Suspended {
        /// Until this Redis ms.
        until: u64,
    },
}

/// The live turn of a due context.
#[derive(Debug, Clone, Copy)]
pub struct Live<'a> {
    /// What never changes.
    pub record: &'a TurnRecord,
    /// Since when it is live (Redis ms): since it was accepted, unless it waited behind another.
    pub since: u64,
    /// What was counted.
    pub tries: Tries,
    /// Where it stands.
    pub standing: Standing,
    /// Whether its cancel was requested.
    pub canceled: bool,
}

/// What a return to the queue costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// Nothing.
    None,
    /// One of the bounded hand-backs.
    Handback,
    /// One attempt.
    Attempt,
}

/// What must be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No turn is live: stop watching, unless one waits. That one is live then.
    Forget,
    /// Look again at this Redis ms.
    Later {
        /// When.
        at: u64,
    },
    /// Queue the turn for another worker.
    Requeue {
        /// What it costs.
        charge: Charge,
        /// Whether the next attempt is the last one.
        last: bool,
        /// Not before this Redis ms; 0 is at once.
        at: u64,
    },
    /// End the turn.
    End {
        /// How.
        end: End,
        /// Why, when it failed.
        reason: Option<FailReason>,
        /// Whether an operator should see it among the dead letters.
        dead: bool,
    },
}

const fn failed(reason: FailReason, dead: bool) -> Verdict {
    Verdict::End {
        end: End::Failed,
        reason: Some(reason),
        dead,
    }
}

const CANCELED: Verdict = Verdict::End {
    end: End::Canceled,
    reason: None,
    dead: false,
};

/// Judges a due context. `grace` is the Redis ms before which no lease is judged (a Redis that came back).
pub fn judge(live: Option<Live<'_>>, now: u64, grace: u64) -> Verdict {
    let Some(live) = live else { return Verdict::Forget };
    let overdue = live.record.deadline.is_some_and(|at| at <= now);
    match live.standing {
        Standing::Leased { until } if until > now || grace > now => Verdict::Later { at: until.max(grace) },
        // From here on nobody holds the turn.
        _ if live.canceled => CANCELED,
        _ if overdue => failed(FailReason::DeadlineExceeded, false),
        Standing::Suspended { until } if until <= now => failed(FailReason::DeadlineExceeded, false),
        Standing::Suspended { until } => Verdict::Later {
            at: live.record.deadline.map_or(until, |deadline| deadline.min(until)),
        },
        Standing::Leased { .. } if !live.tries.begun => uncharged(live, now),
        Standing::Leased { .. } => crashed(live.record, live.tries),
        Standing::Delayed { at } if at > now => Verdict::Later { at: capped(live, at) },
        Standing::Delayed { .. } => Verdict::Requeue {
            charge: Charge::None,
            last: is_last(live.record, live.tries),
            at: 0,
        },
        Standing::Queued { .. } if waited_too_long(live, now) => failed(FailReason::QueueExpired, true),
        Standing::Queued { waiting: true } => Verdict::Later {
            at: capped(live, now + QUEUED_CHECK_MS),
        },
        Standing::Queued { waiting: false } => uncharged(live, now),
    }
}

/// What the loss of an attempt does, by the crash policy.
pub fn crashed(record: &TurnRecord, tries: Tries) -> Verdict {
    match (record.policy, after_crash(record, tries)) {
        (CrashPolicy::Fail, _) | (CrashPolicy::Restart, AfterCrash::Exhausted) => {
            failed(FailReason::AttemptsExhausted, true)
        }
        (CrashPolicy::Restart, AfterCrash::Again) => Verdict::Requeue {
            charge: Charge::Attempt,
            last: false,
            at: 0,
        },
        (CrashPolicy::Restart, AfterCrash::Last) => Verdict::Requeue {
            charge: Charge::Attempt,
            last: true,
            at: 0,
        },
    }
}

/// What a worker that gives a turn back does. `why` is the reason that a begun at-most-once turn ends with.
pub fn handed_back(record: &TurnRecord, tries: Tries, canceled: bool, why: FailReason, now: u64) -> Verdict {
    if canceled {
        CANCELED
    } else if tries.begun && record.policy == CrashPolicy::Fail {
        failed(why, false)
    } else {
        let standing = Standing::Queued { waiting: false };
        uncharged(
            Live {
                record,
                since: record.submitted,
                tries,
                standing,
                canceled,
            },
            now,
        )
    }
}

fn uncharged(live: Live<'_>, now: u64) -> Verdict {
    let handbacks = live.tries.handbacks.saturating_add(1);
    if handbacks > live.record.handbacks {
        return failed(FailReason::HandbacksExhausted, true);
    }
    let at = match handback_wait(handbacks) {
        0 => 0,
        wait => now + wait,
    };
    Verdict::Requeue {
        charge: Charge::Handback,
        last: is_last(live.record, live.tries),
        at,
    }
}

fn waited_too_long(live: Live<'_>, now: u64) -> bool {
    live.tries.opened == 0 && live.tries.handbacks == 0 && now > live.since + live.record.queue_age
}

fn capped(live: Live<'_>, at: u64) -> u64 {
    let expires = live.since + live.record.queue_age + 1;
    let at = if live.tries.opened == 0 && live.tries.handbacks == 0 {
        at.min(expires)
    } else {
        at
    };
    live.record.deadline.map_or(at, |deadline| at.min(deadline))
}

#[cfg(test)]
pub(crate) mod tests {
    use a2a::{Message, Part, Role};

    use super::*;
    use crate::domain::record::{BusyPolicy, Sender, VERSION};
    use crate::ids::{Partition, TaskId, TurnId};

    pub(crate) fn record() -> TurnRecord {
        TurnRecord {
            v: VERSION,
            turn: TurnId::new(1, Partition(3), 2),
            task: TaskId::new(1, Partition(3), 1),
            context_id: "c-1".into(),
            sender: Sender::default(),
            message: Message {
                message_id: "m-1".into(),
                ..Message::new(Role::User, vec![Part::text("hello")])
            },
            agent: "demo".into(),
            pool: "default".into(),
            policy: CrashPolicy::Restart,
            attempts: 3,
            handbacks: 20,
            submitted: 1_000,
            deadline: None,
            queue_age: 60_000,
            busy: BusyPolicy::Reject,
            remember_ms: 0,
            new_task: true,
            direct: false,
            accepted_output_modes: Vec::new(),
            extensions: Vec::new(),
            traceparent: None,
            metadata: std::collections::BTreeMap::new(),
            suspension: None,
        }
    }

    fn live(record: &TurnRecord, tries: Tries, standing: Standing) -> Live<'_> {
        Live {
            record,
            since: record.submitted,
            tries,
            standing,
            canceled: false,
        }
    }

    fn begun(charged: u32) -> Tries {
        Tries {
            charged,
            opened: charged + 1,
            begun: true,
            handbacks: 0,
        }
    }

    const EXPIRED: Standing = Standing::Leased { until: 1_999 };
    const NOW: u64 = 2_000;

    #[test]
    fn a_context_without_a_turn_is_forgotten() {
        assert_eq!(judge(None, NOW, 0), Verdict::Forget);
    }

    #[test]
    fn a_lease_is_left_alone_until_it_has_run_out_and_no_grace_holds() {
        let record = record();
        let held = live(&record, begun(0), Standing::Leased { until: 2_500 });
        assert_eq!(judge(Some(held), NOW, 0), Verdict::Later { at: 2_500 });
        let expired = live(&record, begun(0), EXPIRED);
        assert_eq!(judge(Some(expired), NOW, 9_000), Verdict::Later { at: 9_000 });
    }

    #[test]
    fn crashes_are_charged_until_none_is_left() {
        let record = record();
        let verdict = |n| judge(Some(live(&record, begun(n), EXPIRED)), NOW, 0);
        assert_eq!(
            verdict(0),
            Verdict::Requeue {
                charge: Charge::Attempt,
                last: false,
                at: 0
            }
        );
        assert_eq!(
            verdict(1),
            Verdict::Requeue {
                charge: Charge::Attempt,
                last: true,
                at: 0
            }
        );
        assert_eq!(verdict(2), failed(FailReason::AttemptsExhausted, true));
    }

    #[test]
    fn an_at_most_once_turn_is_never_begun_twice() {
        let record = TurnRecord {
            policy: CrashPolicy::Fail,
            ..record()
        };
        assert_eq!(
            judge(Some(live(&record, begun(0), EXPIRED)), NOW, 0),
            failed(FailReason::AttemptsExhausted, true)
        );
        assert_eq!(
            handed_back(&record, begun(0), false, FailReason::WorkerDrained, NOW),
            failed(FailReason::WorkerDrained, false)
        );
    }

    #[test]
    fn a_turn_that_never_began_is_requeued_without_a_charge_but_not_for_ever() {
        for policy in [CrashPolicy::Restart, CrashPolicy::Fail] {
            let record = TurnRecord { policy, ..record() };
            let verdict = |handbacks| {
                let tries = Tries {
                    handbacks,
                    ..Tries::default()
                };
                judge(Some(live(&record, tries, EXPIRED)), NOW, 0)
            };
            assert_eq!(
                verdict(0),
                Verdict::Requeue {
                    charge: Charge::Handback,
                    last: false,
                    at: 0
                }
            );
            assert_eq!(
                verdict(2),
                Verdict::Requeue {
                    charge: Charge::Handback,
                    last: false,
                    at: NOW + 200
                }
            );
            assert_eq!(verdict(20), failed(FailReason::HandbacksExhausted, true));
        }
    }

    #[test]
    fn a_cancel_wins_over_everything_once_nobody_holds_the_turn() {
        let record = TurnRecord {
            deadline: Some(1),
            ..record()
        };
        for standing in [
            EXPIRED,
            Standing::Queued { waiting: true },
            Standing::Delayed { at: 9_000 },
            Standing::Suspended { until: 9_000 },
        ] {
            let canceled = Live {
                canceled: true,
                ..live(&record, begun(2), standing)
            };
            assert_eq!(judge(Some(canceled), NOW, 0), CANCELED);
        }
        assert_eq!(
            handed_back(&record, begun(0), true, FailReason::WorkerDrained, NOW),
            CANCELED
        );
    }

    #[test]
    fn a_deadline_ends_what_nobody_holds() {
        let record = TurnRecord {
            deadline: Some(1_500),
            ..record()
        };
        for standing in [
            EXPIRED,
            Standing::Queued { waiting: true },
            Standing::Delayed { at: 9_000 },
            Standing::Suspended { until: 9_000 },
        ] {
            let verdict = judge(Some(live(&record, begun(0), standing)), NOW, 0);
            assert_eq!(verdict, failed(FailReason::DeadlineExceeded, false));
        }
    }

    #[test]
    fn a_queued_turn_is_watched() {
        let record = record();
        let queued = |waiting| live(&record, Tries::default(), Standing::Queued { waiting });
        assert_eq!(
            judge(Some(queued(true)), NOW, 0),
            Verdict::Later {
                at: NOW + QUEUED_CHECK_MS
            }
        );
        assert!(matches!(
            judge(Some(queued(false)), NOW, 0),
            Verdict::Requeue {
                charge: Charge::Handback,
                ..
            }
        ));
        assert_eq!(
            judge(Some(queued(true)), 61_001, 0),
            failed(FailReason::QueueExpired, true)
        );
        assert_eq!(judge(Some(queued(true)), 50_000, 0), Verdict::Later { at: 61_001 });
    }

    #[test]
    fn what_a_turn_waited_behind_another_is_no_part_of_its_age() {
        let record = record();
        let queued = |since| Live {
            since,
            ..live(&record, Tries::default(), Standing::Queued { waiting: true })
        };
        let late = Verdict::Later { at: 110_001 };
        assert_eq!(judge(Some(queued(50_000)), 100_000, 0), late);
        assert_eq!(
            judge(Some(queued(50_000)), 110_001, 0),
            failed(FailReason::QueueExpired, true)
        );
    }

    #[test]
    fn a_delayed_turn_comes_back_at_its_time() {
        let record = record();
        let delayed = live(&record, Tries::default(), Standing::Delayed { at: 3_000 });
        assert_eq!(judge(Some(delayed), NOW, 0), Verdict::Later { at: 3_000 });
        let verdict = judge(Some(delayed), 3_000, 0);
        assert_eq!(
            verdict,
            Verdict::Requeue {
                charge: Charge::None,
                last: false,
                at: 0
            }
        );
    }

    #[test]
    fn a_suspended_turn_is_left_alone_until_its_time_or_its_deadline() {
        let suspended = Standing::Suspended { until: 9_000 };
        let record = record();
        let judged = |record, now| judge(Some(live(record, begun(0), suspended)), now, 0);
        assert_eq!(judged(&record, NOW), Verdict::Later { at: 9_000 });
        assert_eq!(judged(&record, 9_000), failed(FailReason::DeadlineExceeded, false));
        let hurried = TurnRecord {
            deadline: Some(5_000),
            ..record.clone()
        };
        assert_eq!(judged(&hurried, NOW), Verdict::Later { at: 5_000 });
    }
}
