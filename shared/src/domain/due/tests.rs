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
        workspace: false,
        accepted_output_modes: Vec::new(),
        extensions: Vec::new(),
        traceparent: None,
        metadata: std::collections::BTreeMap::new(),
        stop_after_crash: false,
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
        storage: None,
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
fn what_must_not_run_twice_and_works_elsewhere_is_stopped_there_once() {
    let record = TurnRecord {
        policy: CrashPolicy::Fail,
        stop_after_crash: true,
        ..record()
    };
    let crash = judge(Some(live(&record, begun(0), EXPIRED)), NOW, 0);
    let again = Verdict::Requeue {
        charge: Charge::Attempt,
        last: false,
        at: 0,
    };
    assert_eq!((crash, crashed(&record, begun(0))), (again, again));
    let stops = Tries {
        begun: false,
        ..begun(1)
    };
    assert!(only_stops(&record, stops) && !only_stops(&record, begun(0)));
    // Done, lost, never taken, or vanished: whatever became of that attempt, it was the last.
    let end = failed(FailReason::AttemptsExhausted, true);
    assert_eq!(crashed(&record, stops), end);
    for standing in [
        EXPIRED,
        Standing::Queued { waiting: true },
        Standing::Queued { waiting: false },
    ] {
        assert_eq!(judge(Some(live(&record, stops, standing)), NOW, 0), end);
    }
    // A worker that stops hands it on.
    let handed = handed_back(&record, stops, false, FailReason::WorkerDrained, NOW);
    assert!(matches!(
        handed,
        Verdict::Requeue {
            charge: Charge::Handback,
            ..
        }
    ));
    // Of a turn that never began there is nothing to stop.
    let unbegun = judge(Some(live(&record, Tries::default(), EXPIRED)), NOW, 0);
    assert!(matches!(
        unbegun,
        Verdict::Requeue {
            charge: Charge::Handback,
            ..
        }
    ));
    let restarts = TurnRecord {
        policy: CrashPolicy::Restart,
        ..record
    };
    assert!(!only_stops(&restarts, stops));
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
fn a_turn_is_given_up_when_it_and_its_storage_have_been_waited_for_long_enough() {
    let record = record();
    let waits = |seen, standing| Live {
        storage: Some(StorageWait { seen, longest: 5_000 }),
        ..live(&record, Tries::default(), standing)
    };
    let queued = |seen| Some(waits(seen, Standing::Queued { waiting: true }));
    let over = record.submitted + 5_001;
    assert_eq!(judge(queued(0), over - 1, 0), Verdict::Later { at: over });
    assert_eq!(
        judge(queued(0), over, 0),
        failed(FailReason::WorkspaceUnavailable, true)
    );
    // Somebody had it since it was sent.
    assert_eq!(judge(queued(over), over, 0), Verdict::Later { at: over + 5_001 });
    // A Redis that came back has not heard of anybody yet.
    assert_eq!(judge(queued(0), over, over + 10), Verdict::Later { at: over + 10 });
    // One whose entry is gone is queued again first.
    let delivered = judge(Some(waits(0, Standing::Queued { waiting: false })), over, 0);
    assert!(matches!(delivered, Verdict::Requeue { .. }));
    // Waiting in the queue for too long is the lesser reason.
    assert_eq!(
        judge(queued(0), 70_000, 0),
        failed(FailReason::WorkspaceUnavailable, true)
    );
    assert_eq!(judge(queued(70_000), 70_000, 0), failed(FailReason::QueueExpired, true));
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
