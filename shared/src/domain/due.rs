//! What the janitor does with a context whose time has come, and what a worker does with a turn it gives back.
//!
//! The rule in English: a lease that has not run out is left alone. When it has run out, a cancel wins, then the deadline, then the
//! crash policy; a turn whose agent never began is queued again without a charge. A queued turn is watched: its entry may
//! vanish, its deadline may pass, it may wait too long. A suspended turn is left alone until its user has had enough time to answer.
//! Turns that wait behind it in their context are judged when they are live. A turn that must not run twice, and whose agent works
//! elsewhere, gets one more attempt after a crash, which only stops that work: if it is lost, or nobody comes for it, the turn ends
//! without. A queued turn whose context is bound to a storage is given up when nobody has had that storage for long enough. Nothing here
//! reads the score of the `due` index: it only says
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

/// What the turn of a context that is bound to a storage waits for in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageWait {
    /// When a worker last said that it has the storage (Redis ms).
    pub seen: u64,
    /// How long a turn waits for a worker that has, in ms.
    pub longest: u64,
}

impl StorageWait {
    /// When this turn is given up, unless a worker comes: it has waited for so long, and so long nobody was there. What a Redis that
    /// came back has not heard of does not count.
    fn over(self, record: &TurnRecord, grace: u64) -> u64 {
        (self.seen.max(record.submitted) + self.longest + 1).max(grace)
    }
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
    /// The storage that it waits for, if it is queued for one.
    pub storage: Option<StorageWait>,
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
        Standing::Leased { .. } | Standing::Queued { .. } if only_stops(live.record, live.tries) => {
            failed(FailReason::AttemptsExhausted, true)
        }
        Standing::Leased { .. } if !live.tries.begun => uncharged(live, now),
        Standing::Leased { .. } => crashed(live.record, live.tries),
        Standing::Delayed { at } if at > now => Verdict::Later { at: capped(live, at) },
        Standing::Delayed { .. } => Verdict::Requeue {
            charge: Charge::None,
            last: is_last(live.record, live.tries),
            at: 0,
        },
        Standing::Queued { waiting } => queued(live, waiting, now, grace),
    }
}

fn queued(live: Live<'_>, waiting: bool, now: u64, grace: u64) -> Verdict {
    let over = live
        .storage
        .map_or(u64::MAX, |storage| storage.over(live.record, grace));
    if waiting && over <= now {
        failed(FailReason::WorkspaceUnavailable, true)
    } else if waited_too_long(live, now) {
        failed(FailReason::QueueExpired, true)
    } else if waiting {
        let at = capped(live, over.min(now + QUEUED_CHECK_MS));
        Verdict::Later { at }
    } else {
        uncharged(live, now)
    }
}

/// Whether the attempt that follows only stops what a crashed one has begun elsewhere.
pub fn only_stops(record: &TurnRecord, tries: Tries) -> bool {
    record.stop_after_crash && record.policy == CrashPolicy::Fail && tries.charged > 0
}

/// What the loss of an attempt does, by the crash policy.
pub fn crashed(record: &TurnRecord, tries: Tries) -> Verdict {
    match (record.policy, after_crash(record, tries)) {
        (CrashPolicy::Fail, _) if record.stop_after_crash && tries.charged == 0 => Verdict::Requeue {
            charge: Charge::Attempt,
            last: false,
            at: 0,
        },
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
                storage: None,
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
pub(crate) mod tests;
