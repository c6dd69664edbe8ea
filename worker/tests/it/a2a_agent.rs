//! An A2A server behind a worker: whatever it does, our client sees one honest stream.

use a2a::{Part, StreamResponse, TaskState};
use relevo_shared::domain::record::CrashPolicy;
use relevo_testkit::{Reply, Scripted, poll};
use serde_json::json;

use crate::a2a_scene::{
    HERE, Scene, artifact, artifact_text, body, card, events, fault, message, ok, reason, result, status, task,
};
use crate::fixture::{RunningWorker, World, answer};

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_server_are_told_under_our_ids() {
    let stream = events(&[
        json!({ "task": task("TASK_STATE_SUBMITTED", None, &json!([])) }),
        status("TASK_STATE_WORKING", Some(message("m-1", "Hel"))),
        status("TASK_STATE_WORKING", Some(message("m-1", "lo"))),
        artifact("one ", false),
        artifact("two", true),
        status("TASK_STATE_COMPLETED", Some(message("m-2", "done"))),
    ]);
    let scene = Scene::new(true, vec![Reply::Close(stream)], "").await;
    let (turn, stored) = scene.ends("hello", CrashPolicy::Fail).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored)),
        (TaskState::Completed, "done".to_owned())
    );
    assert_eq!(artifact_text(&stored), "one two");
    let journal = scene.world.journal(turn.task).await;
    let journal: String = journal
        .iter()
        .map(|entry| String::from_utf8_lossy(&entry.bytes))
        .collect();
    assert!(!journal.contains("up-1") && !journal.contains("up-c"), "{journal}");
    let heard = scene.server.heard();
    let (head, _) = heard[1].split_once("\r\n\r\n").unwrap();
    for part in [
        format!("idempotency-key: {}", turn.turn),
        "a2a-version: 1.0".to_owned(),
        "authorization: Bearer hunter2".to_owned(),
    ] {
        assert!(head.contains(&part), "{part} in {head}");
    }
    let sent = body(&heard[1]);
    assert_eq!(sent["method"], "SendStreamingMessage");
    assert_eq!(sent["params"]["message"]["messageId"], turn.turn.to_string());
    assert_eq!(sent["params"]["message"].get("taskId"), None);
    assert!(scene.worker.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_stream_is_asked_until_it_is_done() {
    let done = task(
        "TASK_STATE_COMPLETED",
        Some(message("m", "done")),
        &json!([{ "artifactId": "a", "parts": [{ "text": "x" }] }]),
    );
    let script = vec![
        result(&json!({ "task": task("TASK_STATE_WORKING", None, &json!([])) })),
        result(&task("TASK_STATE_WORKING", None, &json!([]))),
        result(&done),
    ];
    let scene = Scene::new(false, script, "").await;
    let (_, stored) = scene.ends("hello", CrashPolicy::Fail).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored), artifact_text(&stored)),
        (TaskState::Completed, "done".to_owned(), "x".to_owned())
    );
    assert_eq!(scene.asked(), ["SendMessage", "GetTask", "GetTask"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_0_3_is_spoken_to_in_its_words() {
    let card = ok(
        &json!({ "name": "x", "protocolVersion": "0.3.0", "url": "http://localhost:PORT/", "capabilities": { "streaming": true } }),
    );
    let old = |state: &str, text: &str| {
        json!({ "kind": "status-update", "taskId": "up-1", "contextId": "up-c", "final": false, "status": { "state": state,
            "message": { "kind": "message", "messageId": text, "role": "agent", "parts": [{ "kind": "text", "text": text }] } } })
    };
    let script = vec![Reply::Close(events(&[
        old("working", "a"),
        old("input-required", "more?"),
    ]))];
    let scene = Scene::with_card(card, script, "").await;
    let (_, stored) = scene.ends("hello", CrashPolicy::Fail).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored)),
        (TaskState::InputRequired, "more?".to_owned())
    );
    assert_eq!(scene.asked(), ["message/stream"]);
    let heard = scene.server.heard();
    assert!(
        heard[1].contains("a2a-version: 0.3") && heard[1].contains(r#""kind":"text""#),
        "{}",
        heard[1]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_goes_on_and_nothing_is_said_twice() {
    let first = events(&[
        status("TASK_STATE_WORKING", None),
        artifact("one ", false),
        artifact("two ", true),
    ]);
    let now = |text: &str| {
        task(
            "TASK_STATE_WORKING",
            None,
            &json!([{ "artifactId": "file", "parts": [{ "text": text }] }]),
        )
    };
    let again = events(&[
        json!({ "task": now("one two three four ") }),
        artifact("five", true),
        status("TASK_STATE_COMPLETED", Some(message("m", "done"))),
    ]);
    let script = vec![Reply::Close(first), result(&now("one two three ")), Reply::Close(again)];
    let scene = Scene::new(true, script, "").await;
    let (turn, stored) = scene.ends("hello", CrashPolicy::Fail).await;
    assert_eq!(
        (stored.state.clone(), artifact_text(&stored)),
        (TaskState::Completed, "one two three four five".to_owned())
    );
    assert_eq!(scene.asked(), ["SendStreamingMessage", "GetTask", "SubscribeToTask"]);
    let keyed = scene
        .server
        .heard()
        .iter()
        .filter(|request| request.contains("idempotency-key"))
        .count();
    assert_eq!(keyed, 1, "what is asked about the task is no repetition of the message");
    let pieces = scene.world.journal(turn.task).await;
    let said: String = pieces.iter().map(|entry| piece(&entry.bytes)).collect();
    assert_eq!(said, "one two three four five", "each piece once");
}

fn piece(event: &[u8]) -> String {
    match serde_json::from_slice(event).unwrap() {
        StreamResponse::ArtifactUpdate(update) => update.artifact.parts.iter().filter_map(Part::as_text).collect(),
        _ => String::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_attempt_goes_on_with_the_task_of_the_first() {
    let away = || Reply::answer("503 Service Unavailable", "", "");
    let script = vec![
        Reply::Close(events(&[status("TASK_STATE_WORKING", Some(message("m", "void ")))])),
        away(),
        result(&task("TASK_STATE_COMPLETED", Some(message("m", "kept")), &json!([]))),
    ];
    let scene = Scene::new(true, script, "patience = \"1ns\"").await;
    let (_, stored) = scene.ends("hello", CrashPolicy::Restart).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored)),
        (TaskState::Completed, "kept".to_owned())
    );
    assert_eq!(
        scene.asked(),
        ["SendStreamingMessage", "GetTask", "GetTask"],
        "the message is sent once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_the_server_has_forgotten_is_begun_again_only_where_that_is_allowed() {
    let begun = || Reply::Close(events(&[status("TASK_STATE_WORKING", None)]));
    let done = Reply::Close(events(&[status("TASK_STATE_COMPLETED", Some(message("m", "again")))]));
    let script = vec![begun(), fault(-32001, "gone"), fault(-32001, "gone"), done];
    let scene = Scene::new(true, script, "").await;
    let (_, stored) = scene.ends("hello", CrashPolicy::Restart).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored)),
        (TaskState::Completed, "again".to_owned())
    );
    let methods = ["SendStreamingMessage", "GetTask", "GetTask", "SendStreamingMessage"];
    assert_eq!(scene.asked(), methods);

    let scene = Scene::new(true, vec![begun(), fault(-32001, "gone")], "").await;
    let (_, stored) = scene.ends("hello", CrashPolicy::Fail).await;
    assert_eq!(
        (stored.state.clone(), reason(&stored)),
        (TaskState::Failed, json!("agent_error"))
    );
    assert_eq!(answer(&stored), "the upstream server no longer knows the task");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_message_goes_to_the_same_task() {
    let waits = events(&[
        status("TASK_STATE_WORKING", None),
        status("TASK_STATE_INPUT_REQUIRED", Some(message("m-1", "more?"))),
    ]);
    let done = events(&[
        json!({ "task": task("TASK_STATE_INPUT_REQUIRED", Some(message("m-1", "more?")), &json!([])) }),
        status("TASK_STATE_COMPLETED", Some(message("m-2", "done"))),
    ]);
    let scene = Scene::new(true, vec![Reply::Close(waits), Reply::Close(done)], "").await;
    let (turn, stored) = scene.ends("hello", CrashPolicy::Fail).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored)),
        (TaskState::InputRequired, "more?".to_owned())
    );
    let second = scene.world.ask_again(&turn, "yes").await;
    let stored = scene.world.until_over(second.task).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored)),
        (TaskState::Completed, "done".to_owned())
    );
    let sent = body(&scene.server.heard()[2]);
    assert_eq!(
        (
            &sent["params"]["message"]["taskId"],
            &sent["params"]["message"]["contextId"]
        ),
        (&json!("up-1"), &json!("up-c"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_reaches_the_server() {
    let working = || Reply::Hang(events(&[status("TASK_STATE_WORKING", Some(message("m", "on it")))]));
    for (answered, how) in [
        (result(&task("TASK_STATE_CANCELED", None, &json!([]))), "acknowledged"),
        (Reply::answer("500 Internal Server Error", "", ""), "abandoned"),
    ] {
        let scene = Scene::new(true, vec![working(), answered], "").await;
        let turn = scene.world.ask("c-1", "hello", CrashPolicy::Fail).await;
        scene.world.until_entries(turn.task, 3).await;
        let stored = scene.cancel(&turn).await;
        assert_eq!(stored.state.clone(), TaskState::Canceled);
        assert_eq!(stored.folded.metadata["urn:relevo:a2a:turn:v1"]["stopped"], how);
        assert_eq!(scene.asked(), ["SendStreamingMessage", "CancelTask"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_alone_is_the_answer() {
    let scene = Scene::new(
        true,
        vec![Reply::Close(events(&[json!({ "message": message("m", "hi") })]))],
        "",
    )
    .await;
    let (_, stored) = scene.ends("hello", CrashPolicy::Fail).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored)),
        (TaskState::Completed, "hi".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_said_and_the_message_is_not_sent_again() {
    let raw = |text: &str| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        Reply::Close(format!("{head}{text}").into_bytes())
    };
    for (reply, text) in [
        (
            Reply::answer("500 Internal Server Error", "", "hunter2"),
            "failed (HTTP status 500)",
        ),
        (Reply::answer("401 Unauthorized", "", ""), "refuses the credentials"),
        (
            Reply::answer("302 Found", "location: http://169.254.169.254/\r\n", ""),
            "answers with a redirect (302), which is not followed",
        ),
        (fault(-32603, "exploded at db.internal:5432"), "failed"),
        (fault(-32602, "no such mode"), "refuses: no such mode (-32602)"),
        // It was asked for no task.
        (
            fault(-32001, "agent hunter2 not found"),
            "refuses: agent *** not found (-32001)",
        ),
        (
            Reply::answer(
                "404 Not Found",
                "content-type: application/json\r\n",
                "{\"error\":{\"code\":404,\"message\":\"no such tenant\"}}",
            ),
            "refuses: no such tenant (404)",
        ),
        (
            Reply::Close(
                [
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".as_slice(),
                    b"data: {\"error\":{\"code\":-32001,\"message\":\"who?\"}}\n\n",
                ]
                .concat(),
            ),
            "refuses: who? (-32001)",
        ),
        (raw("data: no json\n\n"), "says what is no A2A: no JSON"),
        (
            raw("data: {\"result\":{\"statusUpdate\":{\"taskId\":1}}}\n\n"),
            "says what is no A2A: nothing that A2A knows",
        ),
        (raw(""), "broke off its answer"),
        (raw(": hello\n\ndata: {\"half\":"), "broke off its answer"),
        (Reply::Close(Vec::new()), "broke off its answer"),
    ] {
        // What was refused is not tried again by another attempt either.
        let policy = if text.starts_with("refuses:") {
            CrashPolicy::Restart
        } else {
            CrashPolicy::Fail
        };
        let scene = Scene::new(true, vec![reply], "").await;
        let (_, stored) = scene.ends("hello", policy).await;
        assert_eq!(
            (stored.state.clone(), reason(&stored)),
            (TaskState::Failed, json!("agent_error")),
            "{text}"
        );
        assert_eq!(answer(&stored), format!("the upstream server {text}"));
        assert_eq!(scene.asked().len(), 1, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_is_of_no_use_ends_the_turn() {
    let foreign = json!([{ "url": "http://10.0.0.1/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
    let large = json!({ "description": "x".repeat(2 << 20) });
    for (card, text) in [
        (
            ok(&json!({ "supportedInterfaces": foreign })),
            "has an address that is refused (egress.allow, egress.deny)",
        ),
        (
            ok(&json!({})),
            "has an agent card that is of no use: it offers nothing; spoken are JSONRPC and HTTP+JSON of version 1, and JSONRPC of 0.3",
        ),
        (ok(&large), "gave an answer of more than 1048576 bytes"),
    ] {
        let scene = Scene::with_card(card, Vec::new(), "").await;
        let (_, stored) = scene.ends("hello", CrashPolicy::Restart).await;
        assert_eq!(
            (stored.state.clone(), answer(&stored)),
            (TaskState::Failed, format!("the upstream server {text}"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_fails_a_turn_after_its_patience_and_the_next_one_at_once() {
    let world = World::start().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let table = format!("[a]\nkind = \"a2a\"\nurl = \"http://{closed}\"\npatience = \"1s\"\n");
    let settings = [("egress.breaker_failures", "1"), ("egress.breaker_pause", "1h")];
    let worker = RunningWorker::start_with(&world.redis.url(), &settings, &table).await;
    let turn = world.ask("c-1", "hello", CrashPolicy::Restart).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored)),
        (TaskState::Failed, "the upstream server cannot be reached".to_owned())
    );
    let turn = world.ask("c-2", "hello", CrashPolicy::Restart).await;
    let stored = world.until_over(turn.task).await;
    assert!(
        answer(&stored).starts_with("the upstream server failed again and again; it is tried again in "),
        "{}",
        answer(&stored)
    );
    let once = |name: &str, label: &str| (worker.metric(name, Some(label)) - 1.0).abs() < f64::EPSILON;
    assert!(once("relevo_egress_breakers_opened_total", "a"));
    assert!(
        once("relevo_egress_requests_total", "breaker"),
        "the second turn tries once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_gives_nothing_but_its_card_is_left_alone() {
    let world = World::start().await;
    let interface =
        json!([{ "url": "http://localhost:PORT/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
    let server = Scripted::start_with(HERE, |port| {
        let card = json!({ "supportedInterfaces": interface })
            .to_string()
            .replace("PORT", &port.to_string());
        let head = "content-type: application/json\r\ncache-control: no-store\r\n";
        let card = || Reply::answer("200 OK", head, &card);
        let broken = || Reply::answer("500 Internal Server Error", "", "");
        vec![card(), broken(), card(), broken()]
    });
    let table = format!("[a]\nkind = \"a2a\"\nurl = {:?}\n", server.url("/"));
    let settings = [("egress.breaker_failures", "2"), ("egress.breaker_pause", "1h")];
    let _worker = RunningWorker::start_with(&world.redis.url(), &settings, &table).await;
    for text in ["failed (HTTP", "failed (HTTP", "failed again and again"] {
        let turn = world.ask("c-1", "hello", CrashPolicy::Fail).await;
        let words = answer(&world.until_over(turn.task).await);
        assert!(words.starts_with(&format!("the upstream server {text}")), "{words}");
    }
    assert_eq!(server.heard().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_waits_for_a_server_that_starts() {
    let world = World::start().await;
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let table = format!("[a]\nkind = \"a2a\"\nurl = \"http://{free}\"\n");
    let settings = [("egress.breaker_failures", "1"), ("egress.breaker_pause", "1h")];
    let worker = RunningWorker::start_with(&world.redis.url(), &settings, &table).await;
    let turn = world.ask("c-1", "hello", CrashPolicy::Fail).await;
    poll::until("the server is missed", || async {
        let missed = worker.metric("relevo_egress_requests_total", Some("connect"));
        if missed > 1.5 { Ok(()) } else { Err(missed) }
    })
    .await;
    let done = events(&[json!({ "task": task("TASK_STATE_COMPLETED", None, &json!([])) })]);
    let listener = std::net::TcpListener::bind(free).unwrap();
    let _server = Scripted::on(listener, |_port| {
        vec![card(&format!("http://{free}/"), true), Reply::Bytes(done)]
    });
    assert_eq!(world.until_over(turn.task).await.state, TaskState::Completed);
}
