//! `relevo call --stream` and `relevo task watch` over connections that break.

use serde_json::json;

use crate::command::{printed, run, start};
use crate::scripted::events::{TASK, boundary, cursor, gap, opening, status, task};
use crate::scripted::{Reply, Scripted, frame};

fn first_half() -> Vec<String> {
    vec![
        frame(&cursor(1), &opening()),
        frame(&cursor(2), &status("WORKING", "one ")),
    ]
}

fn second_half() -> Vec<String> {
    vec![
        frame(&cursor(3), &status("WORKING", "two")),
        frame(&cursor(4), &status("COMPLETED", "")),
    ]
}

#[test]
fn a_cut_stream_is_resumed_after_the_last_event_that_arrived_whole() {
    let server = Scripted::start(vec![Reply::Cut(first_half()), Reply::Stream(second_half())]);
    let call = run(&["call", "hi", "--stream", "--url", server.url()]).with(0);
    assert_eq!(call.stdout, "one two\n");
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].header("last-event-id"), None);
    assert_eq!(asked[1].method(), "SubscribeToTask");
    assert_eq!(asked[1].body["params"], json!({ "id": TASK }));
    assert_eq!(asked[1].header("last-event-id"), Some(cursor(2).as_str()));
    assert_eq!(asked[1].header("a2a-version"), Some("1.0"));
}

#[test]
fn a_stream_closed_before_its_turns_end_is_resumed_too() {
    let moved = [first_half(), vec![": moved\nretry: 1\n\n".to_owned()]].concat();
    let server = Scripted::start(vec![Reply::Stream(moved), Reply::Stream(second_half())]);
    let call = run(&["call", "hi", "--stream", "--url", server.url()]).with(0);
    assert_eq!(call.stdout, "one two\n");
}

#[test]
fn resuming_goes_on_through_an_outage() {
    let unavailable = json!({ "code": -32603, "message": "unavailable", "data": [{ "reason": "UNAVAILABLE" }] });
    let server = Scripted::start(vec![
        Reply::Cut(first_half()),
        Reply::Error(503, unavailable),
        Reply::Status(502),
        Reply::Cut(vec![]),
        Reply::Stream(second_half()),
    ]);
    let call = run(&["call", "hi", "--stream", "--url", server.url()]).with(0);
    assert_eq!(call.stdout, "one two\n");
    let cursors: Vec<_> = server
        .asked()
        .iter()
        .skip(1)
        .map(|a| a.header("last-event-id").unwrap().to_owned())
        .collect();
    assert_eq!(cursors, vec![cursor(2); 4]);
}

#[test]
fn a_boundary_says_what_is_void_and_the_stream_goes_on() {
    let again = vec![
        frame(&cursor(3), &boundary(2, 1)),
        frame(&cursor(4), &status("WORKING", "one ")),
        frame(&cursor(5), &status("COMPLETED", "two")),
    ];
    let server = Scripted::start(vec![Reply::Cut(first_half()), Reply::Stream(again)]);
    let call = run(&["call", "hi", "--stream", "--url", server.url()]).with(0);
    assert_eq!(call.stdout, "one \none two\n");
    assert!(
        call.stderr
            .contains("-- attempt 2, text above from \"one\" is void --\n"),
        "{call:?}"
    );
}

#[test]
fn a_gap_is_said_and_only_what_is_missing_is_printed() {
    let after = vec![
        frame(&cursor(9), &gap("one two ")),
        frame(&cursor(10), &status("COMPLETED", "three")),
    ];
    let server = Scripted::start(vec![Reply::Cut(first_half()), Reply::Stream(after)]);
    let call = run(&["call", "hi", "--stream", "--url", server.url()]).with(0);
    assert_eq!(call.stdout, "one \ntwo three\n");
    assert!(call.stderr.contains("-- gap:"), "{call:?}");
}

#[test]
fn a_stream_that_broke_before_anything_was_known_is_not_sent_again() {
    let server = Scripted::start(vec![Reply::Cut(vec![])]);
    let call = run(&["call", "hi", "--stream", "--url", server.url()]).with(3);
    assert!(call.stderr.contains("whether it was accepted is not known"), "{call:?}");
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn a_task_that_is_gone_ends_the_resuming() {
    let gone = json!({ "code": -32001, "message": "Task not found" });
    let server = Scripted::start(vec![Reply::Cut(first_half()), Reply::Error(200, gone)]);
    run(&["call", "hi", "--stream", "--url", server.url()]).with(1);
    assert_eq!(server.asked().len(), 2);
    let lost = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32603, "message": "lost", "data": [{ "reason": "STATE_LOST" }] } });
    let server = Scripted::start(vec![
        Reply::Cut(first_half()),
        Reply::Stream(vec![format!("data: {lost}\n\n")]),
    ]);
    run(&["call", "hi", "--stream", "--url", server.url()]).with(1);
}

#[test]
fn a_server_without_cursors_is_asked_for_the_task_when_it_has_ended() {
    let ended = json!({ "code": -32004, "message": "ended" });
    let server = Scripted::start(vec![
        Reply::Cut(vec![frame("", &opening()), frame("", &status("WORKING", "one "))]),
        Reply::Error(200, ended),
        Reply::Result(task("COMPLETED", "one two")),
    ]);
    let call = run(&["call", "hi", "--stream", "--url", server.url()]).with(0);
    assert_eq!(call.stdout, "one two\n");
    assert_eq!(server.asked()[1].header("last-event-id"), None);
}

#[test]
fn a_server_that_stays_away_is_given_up_at_the_timeout() {
    let server = Scripted::start(vec![Reply::Cut(first_half())]);
    let call = run(&["call", "hi", "--stream", "--timeout", "1s", "--url", server.url()]).with(3);
    assert!(call.stderr.contains("given up after 1s"), "{call:?}");
}

#[test]
fn a_watch_stays_while_the_task_waits_for_input_and_resumes() {
    let waiting = vec![frame(
        &cursor(5),
        &json!({ "task": task("INPUT_REQUIRED", "question") }),
    )];
    let answered = vec![
        frame(&cursor(6), &status("WORKING", "")),
        frame(&cursor(7), &status("FAILED", "")),
    ];
    let server = Scripted::start(vec![Reply::Cut(waiting.clone()), Reply::Stream(answered)]);
    let watch = run(&["task", "watch", TASK, "--url", server.url()]).with(1);
    assert_eq!(watch.stdout, "question\n");
    assert_eq!(watch.noted("state"), "failed");
    assert_eq!(server.asked()[1].header("last-event-id"), Some(cursor(5).as_str()));

    let server = Scripted::start(vec![Reply::Open(waiting)]);
    let watch = start(&["task", "watch", TASK, "--url", server.url()]);
    printed(&watch, "question");
    assert!(watch.exit_status().is_none());
}

#[test]
fn a_watch_of_a_task_that_has_ended_shows_it() {
    let ended = json!({ "code": -32004, "message": "ended" });
    let server = Scripted::start(vec![
        Reply::Error(200, ended),
        Reply::Result(task("COMPLETED", "all of it")),
    ]);
    let watch = run(&["task", "watch", TASK, "--url", server.url()]).with(0);
    assert_eq!(watch.stdout, "all of it\n");
}
