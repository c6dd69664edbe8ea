//! Models whose servers are busy, broken, silent or cut off: one honest end, and nothing of it in the conversation.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use a2a::{Message, Part, Role, TaskState};
use relevo_shared::domain::record::{CrashPolicy, TurnRecord};
use relevo_shared::ids::Nonce;
use relevo_shared::store::{Asked, HistoryLength, StoredTask};
use relevo_testkit::chat_model::{Act, ChatModel, delta, end, head, piece, says, whole};
use relevo_testkit::poll;

use crate::fixture::{RunningWorker, World, answer};
use crate::model::{start, table};

const JSON: &str = "content-type: application/json\r\n";

fn busy(status: &str, more: &str) -> Vec<Act> {
    vec![whole(
        status,
        &format!("{JSON}{more}"),
        r#"{"error": {"message": "slow down"}}"#,
    )]
}

/// A failed turn's words, which are those of an agent's error.
fn failed(stored: &StoredTask) -> String {
    let reason = &stored.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"];
    assert_eq!(
        (stored.state.clone(), reason.as_str()),
        (TaskState::Failed, Some("agent_error"))
    );
    answer(stored)
}

async fn ask(world: &World, context: &str, policy: CrashPolicy) -> StoredTask {
    let turn = world.ask(context, "hello", policy).await;
    world.until_over(turn.task).await
}

async fn cancel(world: &World, turn: &TurnRecord) {
    let (context, partition) = world.store.place(&turn.scope(), &turn.context_id);
    let asked = world
        .store
        .request_cancel(partition, &context, turn.turn, Nonce(7))
        .await;
    assert_eq!(asked.unwrap(), Asked::Told);
}

async fn until_asked(model: &ChatModel, count: usize) {
    poll::until("the model is asked", || async {
        let asked = model.asked().len();
        if asked >= count { Ok(()) } else { Err(asked) }
    })
    .await;
}

async fn until_gone(model: &ChatModel, count: usize) {
    poll::until("the connection is closed", || async {
        let gone = model.gone();
        if gone >= count { Ok(()) } else { Err(gone) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_is_asked_again_as_late_as_it_wants() {
    let world = World::start().await;
    let model = ChatModel::start(|n, _| match n {
        0 => busy("429 Too Many Requests", "retry-after: 1\r\n"),
        1 => busy("503 Service Unavailable", "retry-after: 0\r\n"),
        2 => busy("429 Too Many Requests", ""),
        _ => says(&["at last"]),
    });
    let worker = start(&world, &model, "").await;
    let stored = ask(&world, "c-1", CrashPolicy::Fail).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored).as_str()),
        (TaskState::Completed, "at last")
    );
    assert_eq!(model.asked().len(), 4);
    let outcomes = ["busy", "stop"].map(|outcome| {
        worker
            .metric("relevo_worker_model_requests_total", Some(outcome))
            .to_string()
    });
    assert_eq!(outcomes, ["3", "1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_busy_for_too_long_ends_the_turn() {
    let world = World::start().await;
    let model = ChatModel::start(|n, _| match n {
        0 => busy("429 Too Many Requests", "retry-after: 3600\r\n"),
        n if n < 3 => busy("503 Service Unavailable", "retry-after: 3600\r\n"),
        _ => says(&["at last"]),
    });
    let worker = start(&world, &model, "").await;
    let words = failed(&ask(&world, "c-1", CrashPolicy::Fail).await);
    assert_eq!(words, "The model's server is busy (HTTP 429): slow down.");
    assert_eq!(model.asked().len(), 1);
    // Where a turn may be tried again it is, as often as it has attempts.
    let stored = ask(&world, "c-2", CrashPolicy::Restart).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored).as_str()),
        (TaskState::Completed, "at last")
    );
    assert_eq!(model.asked().len(), 4);
    assert!(worker.metric("relevo_worker_turns_total", Some("crashed")) > 1.0);
}

/// Asks in a turn that stops being worth it after so many ms.
async fn ask_until(world: &World, context: &str, ms: u64) -> (TurnRecord, StoredTask) {
    let message = Message::new(Role::User, vec![Part::text("hello")]);
    let mut record = world.record(context, "a", CrashPolicy::Fail, message).await;
    record.deadline = Some(record.submitted + ms);
    let turn = world.submit(record).await;
    let stored = world.until_over(turn.task).await;
    (turn, stored)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_does_not_wait_for_what_would_come_after_its_deadline() {
    let world = World::start().await;
    let model = ChatModel::start(|_, _| busy("429 Too Many Requests", "retry-after: 500\r\n"));
    let _worker = start(&world, &model, "retry_for = \"10m\"").await;
    let (turn, stored) = ask_until(&world, "c-1", 400_000).await;
    assert_eq!(failed(&stored), "The model's server is busy (HTTP 429): slow down.");
    assert!(stored.updated < turn.deadline.unwrap(), "it ends at once");
    assert_eq!(model.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_of_a_turn_ends_every_wait() {
    let world = World::start().await;
    let model = ChatModel::start(|n, _| match n {
        0 => vec![Act::Hang],
        _ => vec![head(), delta("and then"), Act::Hang],
    });
    let _worker = start(&world, &model, "idle_timeout = \"1h\"").await;
    for n in 1..=2 {
        let (_, stored) = ask_until(&world, "c-1", 1_000).await;
        let reason = &stored.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"];
        assert_eq!(
            (stored.state.clone(), reason.as_str()),
            (TaskState::Failed, Some("deadline_exceeded"))
        );
        until_gone(&model, n).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_answer_fails_the_turn_and_leaves_nothing_in_the_conversation() {
    let world = World::start().await;
    let error = r#"data: {"error":{"message":"out of memory"}}"#;
    let model = ChatModel::start(move |n, _| match n {
        0 => vec![whole(
            "500 Internal Server Error",
            JSON,
            "{\"error\":\"secret of the house\"}",
        )],
        1 => vec![head(), delta("half of it"), Act::Close],
        2 => vec![head(), delta("half of it"), end()],
        3 => vec![head(), delta("a"), piece("data: {\"choices\": [{\n\n"), end()],
        4 => vec![head(), delta("a"), piece(&format!("{error}\n\n")), end()],
        5 => vec![whole("200 OK", "content-type: text/html\r\n", "<html>")],
        6 => vec![whole("200 OK", JSON, "{\"choices\": 1}")],
        7 => vec![Act::Close],
        _ => says(&["whole"]),
    });
    // The breaker is looked at elsewhere.
    let settings = [("egress.breaker_failures", "100")];
    let _worker = RunningWorker::start_with(&world.redis.url(), &settings, &table(&model, "")).await;
    for expected in [
        "The model's server failed (HTTP 500).",
        "The model's server broke off its answer.",
        "The model's server broke off its answer.",
        "The model's server gave an answer that cannot be read.",
        "The model's server failed in the middle of its answer: out of memory",
        "The model's server gave an answer of a kind that cannot be read.",
        "The model's server gave an answer that cannot be read.",
        "The model's server broke off its answer.",
    ] {
        assert_eq!(failed(&ask(&world, "c-1", CrashPolicy::Fail).await), expected);
    }
    let stored = ask(&world, "c-1", CrashPolicy::Fail).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored).as_str()),
        (TaskState::Completed, "whole")
    );
    let asked = model.asked();
    assert_eq!((asked.len(), asked[8].messages().len()), (9, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_answer_is_given_again_where_the_policy_says_so() {
    let world = World::start().await;
    let model = ChatModel::start(|n, _| match n {
        0 => says(&["first"]),
        1 => vec![head(), delta("half of it"), Act::Close],
        2 => vec![whole("500 Internal Server Error", "", "")],
        _ => says(&["the", " whole"]),
    });
    let _worker = start(&world, &model, "policy = \"restart\"").await;
    ask(&world, "c-1", CrashPolicy::Restart).await;
    let turn = world.ask("c-1", "again", CrashPolicy::Restart).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored).as_str()),
        (TaskState::Completed, "the whole")
    );
    let history = stored.into_task(HistoryLength::All).history.unwrap_or_default();
    assert_eq!(history.len(), 1, "{history:?}");
    let asked = model.asked();
    assert_eq!(asked.len(), 4);
    for later in &asked[2..] {
        assert_eq!(later.body, asked[1].body, "every attempt asks the same");
        assert_eq!(later.header("idempotency-key"), asked[1].header("idempotency-key"));
    }
    ask(&world, "c-1", CrashPolicy::Restart).await;
    let roles: Vec<String> = model.asked()[4].messages().into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_given_up() {
    let world = World::start().await;
    let model = ChatModel::start(|n, _| match n {
        0 => vec![head(), delta("and then"), Act::Hang],
        _ => vec![Act::Hang],
    });
    let _worker = start(&world, &model, "idle_timeout = \"300ms\"").await;
    for n in 1..=2 {
        let words = failed(&ask(&world, "c-1", CrashPolicy::Fail).await);
        assert_eq!(words, "The model's server said nothing for 300ms.");
        until_gone(&model, n).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_closes_the_connection_at_once() {
    let world = World::start().await;
    let model = ChatModel::start(|n, _| match n {
        0 => vec![head(), delta("and then"), Act::Hang],
        1 => vec![Act::Hang],
        2 => busy("429 Too Many Requests", "retry-after: 60\r\n"),
        _ => says(&["here"]),
    });
    let worker = start(&world, &model, "retry_for = \"2m\"").await;
    let first = world.ask("c-1", "hello", CrashPolicy::Fail).await;
    world.until_entries(first.task, 3).await;
    cancel(&world, &first).await;
    assert_eq!(world.until_over(first.task).await.state, TaskState::Canceled);
    until_gone(&model, 1).await;
    let second = world.ask("c-1", "hello", CrashPolicy::Fail).await;
    until_asked(&model, 2).await;
    cancel(&world, &second).await;
    assert_eq!(world.until_over(second.task).await.state, TaskState::Canceled);
    until_gone(&model, 2).await;
    // While it waits for a busy server.
    let third = world.ask("c-1", "hello", CrashPolicy::Fail).await;
    poll::until("the server is busy", || async {
        let busy = worker.metric("relevo_worker_model_requests_total", Some("busy"));
        if busy > 0.0 { Ok(()) } else { Err(busy) }
    })
    .await;
    cancel(&world, &third).await;
    assert_eq!(world.until_over(third.task).await.state, TaskState::Canceled);
    // Nothing of what was canceled is remembered.
    let stored = ask(&world, "c-1", CrashPolicy::Fail).await;
    assert_eq!(stored.state, TaskState::Completed);
    assert_eq!(model.asked()[3].messages().len(), 1);
    assert!((worker.metric("relevo_worker_model_requests_total", Some("canceled")) - 2.0).abs() < f64::EPSILON);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_are_said_without_them() {
    let world = World::start().await;
    let model = ChatModel::start(|n, _| {
        let body = r#"{"error": {"message": "Bearer sk-hunter2 is no key of mine"}}"#;
        let status = ["401 Unauthorized", "403 Forbidden", "400 Bad Request", "404 Not Found"][n];
        vec![whole(status, JSON, body)]
    });
    let _worker = start(&world, &model, "").await;
    for expected in [
        "The model's server refuses the credentials of this agent (HTTP 401).",
        "The model's server refuses the credentials of this agent (HTTP 403).",
        "The model's server refuses the request (HTTP 400): Bearer *** is no key of mine",
        "The model's server refuses the request (HTTP 404): Bearer *** is no key of mine",
    ] {
        // Whatever the policy: it would be the same again.
        assert_eq!(failed(&ask(&world, "c-1", CrashPolicy::Restart).await), expected);
    }
    assert_eq!(model.asked().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_again_and_again_is_left_alone() {
    let world = World::start().await;
    let works = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&works);
    let model = ChatModel::start(move |_, _| {
        if well.load(Ordering::SeqCst) {
            says(&["back"])
        } else {
            vec![whole("500 Internal Server Error", "", "")]
        }
    });
    let settings = [("egress.breaker_failures", "2"), ("egress.breaker_pause", "1s")];
    let worker = RunningWorker::start_with(&world.redis.url(), &settings, &table(&model, "")).await;
    for _ in 0..2 {
        failed(&ask(&world, "c-1", CrashPolicy::Fail).await);
    }
    let words = failed(&ask(&world, "c-1", CrashPolicy::Restart).await);
    assert!(
        words.starts_with("The model's server failed again and again; it is tried again in"),
        "{words}"
    );
    assert_eq!(model.asked().len(), 2, "nothing is sent");
    assert!((worker.metric("relevo_worker_model_requests_total", Some("breaker")) - 1.0).abs() < f64::EPSILON);
    works.store(true, Ordering::SeqCst);
    poll::until("the server is tried again", || async {
        let stored = ask(&world, "c-1", CrashPolicy::Fail).await;
        if stored.state == TaskState::Completed {
            Ok(())
        } else {
            Err(answer(&stored))
        }
    })
    .await;
}

/// An address that nobody else comes to, with nobody there.
fn deserted() -> SocketAddr {
    let listener = TcpListener::bind("127.77.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_waited_for_and_named_to_nobody() {
    let world = World::start().await;
    let address = deserted();
    let table = |more: &str| format!("[a]\nkind = \"openai\"\nurl = \"http://{address}/v1\"\nmodel = \"m\"\n{more}\n");
    let impatient = RunningWorker::start_with(&world.redis.url(), &[], &table("retry_for = \"0s\"")).await;
    let words = failed(&ask(&world, "c-1", CrashPolicy::Fail).await);
    assert_eq!(words, "The model's server cannot be reached.");
    assert!(impatient.stop().await);
    let worker = RunningWorker::start_with(&world.redis.url(), &[], &table("")).await;
    let turn = world.ask("c-1", "hello", CrashPolicy::Fail).await;
    poll::until("the server is not there", || async {
        let missed = worker.metric("relevo_worker_model_requests_total", Some("unreachable"));
        if missed > 0.0 { Ok(()) } else { Err(missed) }
    })
    .await;
    let model = ChatModel::start_at(address, |_, _| says(&["back"]));
    let stored = world.until_over(turn.task).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored).as_str()),
        (TaskState::Completed, "back")
    );
    assert_eq!(model.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_at_once_ends_the_turn_and_the_connection() {
    let world = World::start().await;
    let model = ChatModel::start(|n, _| match n {
        0 => vec![head(), delta(&"x".repeat(10 << 20)), Act::Hang],
        1 => vec![head(), piece(&format!("data: {}", "x".repeat(2 << 20))), Act::Hang],
        _ => {
            let mut acts = vec![head()];
            acts.extend(std::iter::repeat_n(delta(&"x".repeat(1 << 10)), 600));
            acts.push(Act::Hang);
            acts
        }
    });
    let _worker = start(&world, &model, "").await;
    for n in 1..=3 {
        // Whatever the policy: it would be as much again.
        let stored = ask(&world, "c-1", CrashPolicy::Restart).await;
        let reason = &stored.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"];
        assert_eq!(
            (stored.state.clone(), reason.as_str()),
            (TaskState::Failed, Some("output_limit"))
        );
        until_gone(&model, n).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_next_to_nothing_is_an_answer() {
    let world = World::start().await;
    let model = ChatModel::start(|_, _| {
        let mut acts = vec![head()];
        let nothing = ": still here\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{}}]}\n\ndata: {}\n\n";
        acts.extend(std::iter::repeat_n(piece(&nothing.repeat(100)), 200));
        acts.extend(says(&["at", " last"]).into_iter().skip(1));
        acts
    });
    let _worker = start(&world, &model, "").await;
    let turn = world.ask("c-1", "hello", CrashPolicy::Fail).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored).as_str()),
        (TaskState::Completed, "at last")
    );
    let journal = world.journal(turn.task).await;
    assert!(journal.len() < 10, "{}", journal.len());
}
