use serde_json::json;

use super::*;

const TASK: &str = "018bcfe5-6800-7007-8000-00000000002a";

fn shown(show: &mut Show, events: &[(u64, Value)]) -> Vec<Out> {
    let mut out = Vec::new();
    for (seq, event) in events {
        let cursor = format!("{TASK}.{seq}-7");
        out.extend(show.event(Some(&cursor), serde_json::from_value(event.clone()).unwrap()));
    }
    out
}

fn new() -> Show {
    Show::new(First::New)
}

fn text(text: &str) -> Out {
    Out::Text(text.to_owned())
}

fn note(line: &str) -> Out {
    Out::Note(line.to_owned())
}

fn ids() -> Out {
    note(&format!("task {TASK}, context c"))
}

fn message(id: &str, text: &str) -> Value {
    json!({ "messageId": id, "role": "ROLE_AGENT", "parts": [{ "text": text }] })
}

fn status(state: &str, message: Option<Value>) -> Value {
    let mut status = json!({ "state": format!("TASK_STATE_{state}") });
    if let Some(message) = message {
        status["message"] = message;
    }
    json!({ "statusUpdate": { "taskId": TASK, "contextId": "c", "status": status } })
}

fn says(id: &str, text: &str) -> Value {
    status("WORKING", Some(message(id, text)))
}

fn boundary(attempt: u64, valid: u64) -> Value {
    let mut update = status("WORKING", None);
    let facts = json!({ "boundary": true, "attempt": attempt, "validThrough": format!("{TASK}.{valid}-7") });
    update["statusUpdate"]["metadata"] = json!({ RESUME: facts });
    update
}

fn artifact(id: &str, text: &str, append: bool) -> Value {
    let artifact = json!({ "artifactId": id, "parts": [{ "text": text }] });
    json!({ "artifactUpdate": { "taskId": TASK, "contextId": "c", "artifact": artifact, "append": append } })
}

fn task(state: &str, history: &[Value], message: Option<Value>, artifacts: &[(&str, &str)]) -> Value {
    let mut task = status(state, message)["statusUpdate"]["status"].take();
    task = json!({ "id": TASK, "contextId": "c", "status": task, "history": history });
    let artifacts = artifacts
        .iter()
        .map(|(id, text)| json!({ "artifactId": id, "parts": [{ "text": text }] }));
    task["artifacts"] = artifacts.collect();
    json!({ "task": task })
}

fn asked() -> Value {
    json!({ "messageId": "u", "role": "ROLE_USER", "parts": [{ "text": "question" }] })
}

#[test]
fn texts_of_one_message_are_joined_and_another_begins_a_line() {
    let mut show = new();
    let out = shown(
        &mut show,
        &[
            (1, task("SUBMITTED", &[asked()], None, &[])),
            (2, says("m.0", "Hel")),
            (3, says("m.0", "lo")),
            (4, says("m.1", "Next\n")),
            (5, artifact("a", "file", false)),
        ],
    );
    let expected = [ids(), text("Hel"), text("lo"), text("\n"), text("Next\n"), text("file")];
    assert_eq!(out, expected);
    assert_eq!(show.end(), [text("\n"), note("state: working")]);
}

#[test]
fn a_boundary_says_which_text_is_void() {
    let mut show = new();
    let out = shown(
        &mut show,
        &[
            (1, task("SUBMITTED", &[asked()], None, &[])),
            (2, says("m.0", "seq=0 nonce=x\n")),
            (3, says("m.0", "seq=1")),
            (4, boundary(2, 1)),
            (5, says("m.0", "seq=0 nonce=x\n")),
        ],
    );
    let expected = [
        ids(),
        text("seq=0 nonce=x\n"),
        text("seq=1"),
        text("\n"),
        note("-- attempt 2, text above from \"seq=0 nonce=x\" is void --"),
        text("seq=0 nonce=x\n"),
    ];
    assert_eq!(out, expected);
}

#[test]
fn a_boundary_before_any_text_voids_none() {
    let mut show = new();
    let out = shown(
        &mut show,
        &[(1, task("SUBMITTED", &[asked()], None, &[])), (2, boundary(2, 1))],
    );
    assert_eq!(out, [ids(), note("-- attempt 2, no text above is void --")]);
}

#[test]
fn a_snapshot_shows_only_what_is_new() {
    let mut show = new();
    shown(
        &mut show,
        &[
            (1, task("SUBMITTED", &[asked()], None, &[])),
            (2, says("m.0", "one ")),
            (3, artifact("a", "x", false)),
        ],
    );
    let history = [asked(), message("m.0", "one two")];
    let out = show.task(
        serde_json::from_value(
            task("COMPLETED", &history, Some(message("m.1", "three")), &[("a", "xy")])["task"].take(),
        )
        .unwrap(),
    );
    assert_eq!(
        out,
        [
            text("\n"),
            text("two"),
            text("\n"),
            text("three"),
            text("\n"),
            text("y")
        ]
    );
    assert_eq!(show.exit(), Exit::Good);
}

#[test]
fn a_snapshot_that_differs_replaces_what_was_shown() {
    let mut show = new();
    shown(&mut show, &[(2, says("m.0", "one"))]);
    let out = shown(
        &mut show,
        &[(9, task("WORKING", &[asked()], Some(message("m.0", "two")), &[]))],
    );
    let expected = [
        text("\n"),
        note("-- a message above is replaced by what follows --"),
        text("two"),
    ];
    assert_eq!(out, expected);
}

#[test]
fn a_gap_is_said() {
    let mut gap = task("WORKING", &[asked()], Some(message("m.0", "one two")), &[]);
    gap["task"]["metadata"] = json!({ RESUME: { "gap": true, "requested": "x", "cursor": "y" } });
    let mut show = new();
    shown(&mut show, &[(2, says("m.0", "one"))]);
    let out = shown(&mut show, &[(9, gap)]);
    let expected = "-- gap: some events can no longer be read; what follows is the task as it is now --";
    assert_eq!(out, [text("\n"), note(expected), text(" two")]);
}

#[test]
fn a_follow_up_shows_nothing_of_earlier_turns() {
    let mut show = Show::new(First::Earlier);
    let history = [asked(), message("old.0", "old answer"), asked()];
    let out = shown(
        &mut show,
        &[
            (9, task("SUBMITTED", &history, None, &[("a", "old file")])),
            (10, says("new.0", "new answer")),
            (11, artifact("a", " more", true)),
        ],
    );
    assert_eq!(out, [ids(), text("new answer"), text("\n"), text(" more")]);
}

#[test]
fn an_artifact_that_is_sent_anew_replaces_the_earlier_one() {
    let mut show = new();
    let out = shown(
        &mut show,
        &[(1, artifact("a", "x", false)), (2, artifact("a", "z", false))],
    );
    let expected = [
        ids(),
        text("x"),
        text("\n"),
        note("-- artifact a above is replaced by what follows --"),
        text("z"),
    ];
    assert_eq!(out, expected);
}

#[test]
fn the_exit_code_follows_the_state() {
    for (state, exit) in [
        ("COMPLETED", Exit::Good),
        ("INPUT_REQUIRED", Exit::Good),
        ("AUTH_REQUIRED", Exit::Good),
        ("FAILED", Exit::Bad),
        ("REJECTED", Exit::Bad),
        ("CANCELED", Exit::Bad),
    ] {
        let mut show = new();
        shown(&mut show, &[(1, status(state, None))]);
        assert_eq!(show.exit(), exit, "{state}");
    }
    let mut show = new();
    show.event(
        None,
        serde_json::from_value(json!({ "message": message("m", "hi") })).unwrap(),
    );
    assert_eq!((show.exit(), show.answered()), (Exit::Good, true));
}

#[test]
fn the_reason_of_a_failure_is_said() {
    let mut failed = status("FAILED", None);
    failed["statusUpdate"]["metadata"] = json!({ TURN: { "reason": "attempts_exhausted" } });
    let mut show = new();
    shown(&mut show, &[(1, failed)]);
    assert_eq!(show.end(), [note("state: failed (attempts_exhausted)")]);
}
