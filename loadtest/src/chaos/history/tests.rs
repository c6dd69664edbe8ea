use super::*;

pub(crate) fn turn(nonce: &str) -> Turn {
    Turn {
        nonce: nonce.to_owned(),
        context: "c-1".to_owned(),
        task: Some(format!("task-{nonce}")),
        keyed: true,
        policy: Policy::Restart,
        wanted: TaskState::Completed,
        sent: 10,
        first: Some(20),
        ended: Some(30),
        end: Some(end(TaskState::Completed, None)),
        cancel: None,
        holds: None,
        resumes: 0,
        resends: 0,
        restarts: 0,
        silences: Vec::new(),
        events: Vec::new(),
        unknown: false,
    }
}

fn end(state: TaskState, reason: Option<&str>) -> End {
    End {
        state,
        reason: reason.map(str::to_owned),
    }
}

fn promises(breaches: &[Breach]) -> Vec<Promise> {
    breaches.iter().map(|breach| breach.promise).collect()
}

fn judged(change: impl FnOnce(&mut Turn)) -> Vec<Promise> {
    let mut turn = turn("a");
    change(&mut turn);
    promises(&judge_end(&turn))
}

#[test]
fn a_turn_without_an_end_is_told_unless_nobody_knows_whether_it_began() {
    assert_eq!(judged(|_| {}), []);
    assert_eq!(judged(|turn| turn.end = None), [Promise::Ended]);
    let lost = |turn: &mut Turn| (turn.end, turn.unknown) = (None, true);
    assert_eq!(judged(lost), []);
}

#[test]
fn only_an_end_that_can_be_explained_passes() {
    let failed = |reason| move |turn: &mut Turn| turn.end = Some(end(TaskState::Failed, reason));
    assert_eq!(judged(failed(Some("attempts_exhausted"))), [Promise::Ended]);
    assert_eq!(judged(failed(None)), [Promise::Ended]);
    let at_most_once = |reason| {
        move |turn: &mut Turn| {
            turn.policy = Policy::Fail;
            turn.end = Some(end(TaskState::Failed, reason));
        }
    };
    assert_eq!(judged(at_most_once(Some("worker_drained"))), []);
    assert_eq!(judged(at_most_once(Some("agent_error"))), [Promise::Ended]);
    assert_eq!(judged(at_most_once(None)), [Promise::Ended]);
    let canceled = |turn: &mut Turn| turn.end = Some(end(TaskState::Canceled, None));
    assert_eq!(judged(canceled), [Promise::Ended]);
    let working = |turn: &mut Turn| turn.end = Some(end(TaskState::Working, None));
    assert_eq!(judged(working), [Promise::Ended]);
}

#[test]
fn a_cancel_that_was_not_honoured_is_told_with_the_end() {
    let completed = |turn: &mut Turn| turn.cancel = Some(Cancel::Requested(Said::default()));
    assert_eq!(judged(completed), [Promise::Cancel]);
    let explained = |turn: &mut Turn| {
        turn.cancel = Some(Cancel::Unknown);
        turn.end = Some(end(TaskState::Canceled, None));
    };
    assert_eq!(judged(explained), []);
}

fn run(nonce: &str, epoch: &str) -> Run {
    Run {
        nonce: nonce.to_owned(),
        epoch: epoch.to_owned(),
    }
}

#[test]
fn an_at_most_once_agent_that_ran_twice_or_for_nobody_is_told() {
    let once = Turn {
        policy: Policy::Fail,
        ..turn("a")
    };
    let again = turn("b");
    let turns = [once.clone(), again];
    assert_eq!(judge_runs(&turns, &[run("a", "1")]), []);
    assert_eq!(
        promises(&judge_runs(&turns, &[run("a", "1"), run("a", "2")])),
        [Promise::Once]
    );
    // It ended well, so it must have run.
    assert_eq!(promises(&judge_runs(&turns, &[])), [Promise::Once]);
    assert_eq!(
        promises(&judge_runs(&turns, &[run("a", "1"), run("z", "1")])),
        [Promise::Once]
    );
    let canceled = Turn {
        end: Some(end(TaskState::Canceled, None)),
        ..once
    };
    assert_eq!(judge_runs(&[canceled], &[]), []);
}

fn listed(task: &str, state: TaskState, nonces: &[&str]) -> Listed {
    Listed {
        task: task.to_owned(),
        state,
        nonces: nonces.iter().map(|nonce| (*nonce).to_owned()).collect(),
    }
}

#[test]
fn a_message_that_made_no_turn_or_two_is_told() {
    let turns = [turn("a")];
    let good = listed("task-a", TaskState::Completed, &["a"]);
    assert_eq!(judge_listing(&turns, std::slice::from_ref(&good)), []);
    assert_eq!(promises(&judge_listing(&turns, &[])), [Promise::Once]);
    let twin = listed("task-x", TaskState::Completed, &["a"]);
    assert_eq!(promises(&judge_listing(&turns, &[good.clone(), twin])), [Promise::Once]);
    let twice = listed("task-a", TaskState::Completed, &["a", "a"]);
    assert_eq!(promises(&judge_listing(&turns, &[twice])), [Promise::Once]);
    let stray = listed("task-z", TaskState::Completed, &["z"]);
    assert_eq!(promises(&judge_listing(&turns, &[good, stray])), [Promise::Once]);
}

#[test]
fn a_task_that_is_not_over_or_changed_after_its_end_is_told() {
    let turns = [turn("a")];
    let working = listed("task-a", TaskState::Working, &["a"]);
    let found = promises(&judge_listing(&turns, &[working]));
    assert_eq!(found, [Promise::Ended, Promise::Absorbs]);
    let changed = listed("task-a", TaskState::Failed, &["a"]);
    assert_eq!(promises(&judge_listing(&turns, &[changed])), [Promise::Absorbs]);
    let orphan = listed("task-q", TaskState::Submitted, &["q"]);
    let lost = Turn {
        task: None,
        first: None,
        end: None,
        unknown: true,
        ..turn("q")
    };
    assert_eq!(promises(&judge_listing(&[lost], &[orphan])), [Promise::Ended]);
}

#[test]
fn the_last_turn_of_a_task_says_what_it_is() {
    let first = Turn {
        end: Some(end(TaskState::InputRequired, None)),
        wanted: TaskState::InputRequired,
        ..turn("a")
    };
    let second = Turn {
        task: first.task.clone(),
        sent: 40,
        ..turn("b")
    };
    let turns = [second, first];
    let good = listed("task-a", TaskState::Completed, &["a", "b"]);
    assert_eq!(judge_listing(&turns, &[good]), []);
    let back = listed("task-a", TaskState::InputRequired, &["a", "b"]);
    assert_eq!(promises(&judge_listing(&turns, &[back])), [Promise::Absorbs]);
}

#[test]
fn a_replay_that_differs_is_told() {
    let event = |id: &str, digest| (id.to_owned(), digest);
    let turn = Turn {
        events: vec![event("1", 11), event("2", 22), event("3", 33)],
        ..turn("a")
    };
    assert_eq!(judge_replay(&turn, 0, &[event("2", 22), event("3", 33)]), []);
    assert_eq!(judge_replay(&turn, 2, &[]), []);
    for wrong in [
        vec![event("2", 22)],
        vec![event("3", 33), event("2", 22)],
        vec![event("2", 22), event("3", 34)],
        vec![event("2", 22), event("3", 33), event("4", 44)],
        Vec::new(),
    ] {
        assert_eq!(
            promises(&judge_replay(&turn, 0, &wrong)),
            [Promise::Replay],
            "{wrong:?}"
        );
    }
}
