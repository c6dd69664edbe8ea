//! A2A servers that mean no good, or are broken in a way that nobody thought of: each has its clear end, and takes no more room than it
//! may.

use a2a::TaskState;
use relevo_shared::domain::record::CrashPolicy;
use relevo_testkit::{Reply, Scripted};
use serde_json::{Value, json};

use crate::a2a_scene::{
    HERE, Scene, artifact, artifact_text, card, events, fault, message, ok, reason, result, status, task,
};
use crate::fixture::{RunningWorker, World, answer};

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

fn canceled() -> Reply {
    result(&task("TASK_STATE_CANCELED", None, &json!([])))
}

fn stopped(stored: &relevo_shared::store::StoredTask) -> &Value {
    &stored.folded.metadata["urn:relevo:a2a:turn:v1"]["stopped"]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_a2a_or_too_much_ends_the_turn() {
    let endless = Reply::Close(format!("{STREAM}data: {}", "x".repeat(33 << 20)).into_bytes());
    let many = format!("{STREAM}data: {{\"result\":[{}0]}}\n\n", "0,".repeat(1_000_000));
    let mut long = status("TASK_STATE_WORKING", None);
    long["statusUpdate"]["taskId"] = "x".repeat(2000).into();
    let squeezed = Reply::answer(
        "200 OK",
        "content-type: application/json\r\ncontent-encoding: gzip\r\n",
        "\u{1f}\u{8b} a bomb",
    );
    for (reply, text) in [
        (endless, "says what is no A2A: an event of more than 32 MiB"),
        (
            Reply::Close(many.into_bytes()),
            "says what is no A2A: more than a million values at once",
        ),
        (
            Reply::Close(events(&[long])),
            "says what is no A2A: an id of more than 1024 bytes",
        ),
        // Nobody has asked for it, so nothing is unpacked.
        (squeezed, "says what is no A2A: no JSON"),
        (
            fault(-32000, "who is Bearer hunter2?"),
            "refuses: who is Bearer ***? (-32000)",
        ),
    ] {
        let scene = Scene::new(true, vec![reply], "").await;
        let (_, stored) = scene.ends("hello", CrashPolicy::Fail).await;
        assert_eq!(answer(&stored), format!("the upstream server {text}"));
        assert_eq!(
            (stored.state.clone(), reason(&stored)),
            (TaskState::Failed, json!("agent_error"))
        );
        assert_eq!(scene.asked().len(), 1, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_nobody_listens_to_any_more_is_stopped() {
    let mut foreign = status("TASK_STATE_WORKING", None);
    foreign["statusUpdate"]["taskId"] = "up-2".into();
    for (answered, how) in [
        (canceled(), "acknowledged"),
        (Reply::answer("500 Internal Server Error", "", ""), "abandoned"),
    ] {
        let stream = events(&[
            status("TASK_STATE_WORKING", None),
            artifact("kept", false),
            foreign.clone(),
        ]);
        let scene = Scene::new(true, vec![Reply::Close(stream), answered], "").await;
        let (_, stored) = scene.ends("hello", CrashPolicy::Restart).await;
        assert_eq!(
            answer(&stored),
            "the upstream server says what is no A2A: events of another task"
        );
        assert_eq!((reason(&stored), stopped(&stored)), (json!("agent_error"), &json!(how)));
        assert_eq!(artifact_text(&stored), "kept");
        assert_eq!(scene.asked(), ["SendStreamingMessage", "CancelTask"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_too_much_is_stopped() {
    let working = Reply::Hang(events(&[status("TASK_STATE_WORKING", Some(message("m", "on it")))]));
    let much: Vec<Value> = (0..50).map(|n| artifact(&format!("{n} "), n > 0)).collect();
    for (setting, reply, why) in [
        (("turn.max_events", "20"), Reply::Hang(events(&much)), "output_limit"),
        (("turn.max_duration", "1s"), working, "deadline_exceeded"),
    ] {
        let card = card("http://localhost:PORT/", true);
        let scene = Scene::with(card, vec![reply, canceled()], "", &[setting]).await;
        let (_, stored) = scene.ends("hello", CrashPolicy::Restart).await;
        assert_eq!((stored.state.clone(), reason(&stored)), (TaskState::Failed, json!(why)));
        assert_eq!(stopped(&stored), "acknowledged", "{why}");
        assert_eq!(scene.asked(), ["SendStreamingMessage", "CancelTask"], "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_an_end_is_not_heard() {
    let stream = events(&[
        artifact("kept", false),
        status("TASK_STATE_COMPLETED", Some(message("m", "done"))),
        status("TASK_STATE_WORKING", Some(message("n", "not done"))),
        artifact("void", true),
        status("TASK_STATE_FAILED", None),
    ]);
    let scene = Scene::new(true, vec![Reply::Close(stream)], "").await;
    let (_, stored) = scene.ends("hello", CrashPolicy::Fail).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored), artifact_text(&stored)),
        (TaskState::Completed, "done".to_owned(), "kept".to_owned())
    );
    assert_eq!(scene.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_say_nothing_take_no_room() {
    const MANY: usize = 20_000;
    let mut all = vec![status("TASK_STATE_WORKING", None)];
    for n in 0..MANY {
        let mut elsewhere = status("TASK_STATE_WORKING", None);
        elsewhere["statusUpdate"]["contextId"] = format!("c-{n}").into();
        let mut silent = message(&format!("m-{n}"), "");
        silent["parts"] = json!([]);
        let mut empty = artifact("", false);
        empty["artifactUpdate"]["artifact"] = json!({ "artifactId": format!("a-{n}"), "parts": [] });
        all.extend([elsewhere, status("TASK_STATE_WORKING", Some(silent)), empty]);
    }
    all.push(status("TASK_STATE_COMPLETED", Some(message("last", "done"))));
    let scene = Scene::new(true, vec![Reply::Close(events(&all))], "").await;
    let (turn, stored) = scene.ends("hello", CrashPolicy::Fail).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored)),
        (TaskState::Completed, "done".to_owned())
    );
    let journal = scene.world.journal(turn.task).await;
    assert!(journal.len() < 10, "{}", journal.len());
    let (context, partition) = scene.world.store.place(&turn.scope(), &turn.context_id);
    let items = scene
        .world
        .store
        .read_session(partition, &context, "a", turn.turn)
        .await;
    assert_eq!(items.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_an_answer_quotes_are_struck_out() {
    let quoted = "you sent sk-0123456789abcdef";
    let piece = artifact(quoted, false);
    let done = status("TASK_STATE_COMPLETED", Some(message("m", quoted)));
    let more = "headers = { x-key = \"sk-0123456789abcdef\" }";
    let scene = Scene::new(true, vec![Reply::Close(events(&[piece, done]))], more).await;
    let (_, stored) = scene.ends("hello", CrashPolicy::Fail).await;
    assert_eq!(
        (answer(&stored).as_str(), artifact_text(&stored).as_str()),
        ("you sent ***", "you sent ***")
    );
    assert!(scene.server.heard()[1].contains("sk-0123456789abcdef"));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_stay_with_the_origin_of_the_url() {
    let other = Scripted::start([127, 0, 0, 2], vec![result(&json!({ "message": message("m", "hi") }))]);
    let interface = json!([{ "url": other.url("/"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
    let card = ok(&json!({ "supportedInterfaces": interface }));
    let server = Scripted::start(HERE, vec![card]);
    let world = World::start().await;
    let table = format!(
        "[a]\nkind = \"a2a\"\nurl = {:?}\nbearer = \"hunter2\"\nheaders = {{ x-key = \"hunter3\" }}\n",
        server.url("/")
    );
    let settings = [("egress.allow", "127.0.0.2")];
    let _worker = RunningWorker::start_with(&world.redis.url(), &settings, &table).await;
    let turn = world.ask("c-1", "hello", CrashPolicy::Fail).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored)),
        (TaskState::Completed, "hi".to_owned())
    );
    let (card, call) = (&server.heard()[0], &other.heard()[0]);
    assert!(card.contains("hunter2") && card.contains("hunter3"), "{card}");
    assert!(!call.contains("hunter") && call.contains("hello"), "{call}");
}
