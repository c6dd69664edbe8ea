//! What a profile makes of a turn: parts and workspaces by the rules of the reference server, good ends, answers as artifacts.

use std::collections::HashMap;
use std::path::Path;

use a2a::{Message, Part, PartContent, Role, TaskState};
use relevo_shared::domain::record::{CrashPolicy, TurnRecord};
use relevo_shared::store::{Shown, StoredTask};
use serde_json::{Value, json};

use crate::fixture::{RunningWorker, World, answer};
use crate::process_harness::Mark;

const SEED: &str = "[agents.demo]\nkind = \"demo\"\nprofile = \"iac-code\"\n";
const ANSWERS: &str = "[profiles.p]\nanswer_artifact = true\n[agents.demo]\nkind = \"demo\"\nprofile = \"p\"\n";

async fn worker(world: &World, roots: &Path) -> RunningWorker {
    let roots = roots.display().to_string();
    RunningWorker::start_file(&world.redis.url(), &[("workspace.roots", &roots)], SEED).await
}

fn message(parts: Vec<Part>, cwd: &Path) -> Message {
    let mut message = Message::new(Role::User, parts);
    message.metadata = Some(HashMap::from([("iac_code".to_owned(), json!({ "cwd": cwd }))]));
    message
}

fn url(path: &Path) -> Part {
    Part {
        content: PartContent::Url(format!("file://{}", path.display())),
        filename: None,
        media_type: Some("text/plain".to_owned()),
        metadata: None,
    }
}

async fn ask(world: &World, context: &str, message: Message) -> TurnRecord {
    let record = world.record(context, "demo", CrashPolicy::Restart, message).await;
    world.submit(record).await
}

async fn told(world: &World, context: &str, message: Message) -> StoredTask {
    let record = ask(world, context, message).await;
    world.until_over(record.task).await
}

fn reason(stored: &StoredTask) -> String {
    let task = stored.clone().into_task(relevo_shared::store::HistoryLength::All);
    task.metadata.unwrap_or_default()["urn:relevo:a2a:turn:v1"]["reason"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_one_prompt_and_a_good_end_waits_for_more() {
    let world = World::start().await;
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("a.txt"), "of a file").unwrap();
    let worker = worker(&world, root.path()).await;
    let parts = vec![Part::text("words"), url(&root.path().join("a.txt"))];
    let stored = told(&world, "c-1", message(parts, root.path())).await;
    assert_eq!(stored.state, TaskState::InputRequired);
    assert_eq!(answer(&stored), "words\nof a file");
    assert!(!stored.terminal);
    assert!(worker.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_a_rule_fails_with_its_words() {
    let world = World::start().await;
    let root = tempfile::tempdir().unwrap();
    let _worker = worker(&world, root.path()).await;
    for (n, (sent, words)) in [
        (
            message(vec![Part::text(" ")], root.path()),
            "A2A server currently accepts text input only.",
        ),
        (
            message(vec![Part::text("a")], Path::new("/etc")),
            "Invalid A2A workspace metadata.",
        ),
        (
            message(vec![url(Path::new("/etc/passwd"))], root.path()),
            "A2A file URL part is outside the allowed workspace.",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let stored = told(&world, &format!("c-{n}"), sent).await;
        assert_eq!(
            (stored.state.clone(), answer(&stored).as_str()),
            (TaskState::Failed, words)
        );
        assert_eq!(reason(&stored), "invalid_message");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_belongs_to_one_workspace() {
    let world = World::start().await;
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    std::fs::create_dir(&a).unwrap();
    std::fs::create_dir(&b).unwrap();
    std::os::unix::fs::symlink(&a, root.path().join("also-a")).unwrap();
    let _worker = worker(&world, root.path()).await;
    let said = |cwd: &Path| message(vec![Part::text("hi")], cwd);
    // A message that cannot be used binds nothing.
    let bad = told(&world, "c-1", message(vec![Part::text("")], &b)).await;
    assert_eq!(bad.state, TaskState::Failed);
    assert_eq!(told(&world, "c-1", said(&a)).await.state, TaskState::InputRequired);
    let other = told(&world, "c-1", said(&b)).await;
    assert_eq!(
        (other.state.clone(), answer(&other).as_str()),
        (TaskState::Failed, "A2A context belongs to a different workspace")
    );
    assert_eq!(
        told(&world, "c-1", said(&root.path().join("also-a"))).await.state,
        TaskState::InputRequired
    );
    assert_eq!(told(&world, "c-2", said(&b)).await.state, TaskState::InputRequired);
    // None named is the worker's own, whatever the context has: here it is not even in a root.
    let unnamed = told(&world, "c-2", Message::new(Role::User, vec![Part::text("hi")])).await;
    assert_eq!(
        (unnamed.state.clone(), answer(&unnamed).as_str()),
        (TaskState::Failed, "Invalid A2A workspace metadata.")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_follow_up_does_not_damage_its_task() {
    let world = World::start().await;
    let root = tempfile::tempdir().unwrap();
    let _worker = worker(&world, root.path()).await;
    let first = ask(&world, "c-1", message(vec![Part::text("hi")], root.path())).await;
    world.until_over(first.task).await;
    let bad = message(vec![url(Path::new("/etc/passwd"))], root.path());
    let second = world.say_again(&first, bad).await;
    let stored = world.until_over(second.task).await;
    assert_eq!((stored.state.clone(), stored.number), (TaskState::InputRequired, 2));
    assert_eq!(answer(&stored), "A2A file URL part is outside the allowed workspace.");
    let third = world
        .say_again(&second, message(vec![Part::text("more")], root.path()))
        .await;
    let stored = world.until_over(third.task).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored).as_str()),
        (TaskState::InputRequired, "more")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_may_be_an_artifact_too() {
    let world = World::start().await;
    let worker = RunningWorker::start_file(&world.redis.url(), &[("turn.max_bytes", "1MiB")], ANSWERS).await;
    let echoed = world.send("c-1", "an answer in a few pieces").await;
    let stored = world.until_over(echoed.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    let artifacts = &stored.folded.artifacts;
    assert_eq!((artifacts.len(), artifacts[0].name.as_deref()), (1, Some("answer")));
    assert_eq!(artifacts[0].parts[0].as_text(), Some("an answer in a few pieces"));
    // One that fits only once stays a message.
    let long = "x".repeat(700_000);
    let long = world.send("c-3", &long).await;
    let stored = world.until_over(long.task).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored).len()),
        (TaskState::Completed, 700_000)
    );
    assert_eq!(stored.folded.artifacts.len(), 0);
    let failed = world.send("c-2", "chunks=2 end=failed").await;
    assert_eq!(world.until_over(failed.task).await.folded.artifacts.len(), 0);
    assert!(worker.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_task_needs_an_agent_and_a_turn_that_may_give_one() {
    let world = World::start().await;
    let worker = RunningWorker::start(&world.redis.url(), &[]).await;
    // As a gateway does that waits for the answer.
    let (_ear, ears) = world.store.subscriber().await.unwrap();
    let send = async |direct: bool, text: &str| {
        let message = Message::new(Role::User, vec![Part::text(text)]);
        let record = TurnRecord {
            direct,
            ..world.record(text, "demo", CrashPolicy::Restart, message).await
        };
        ears.follow(record.task).await.unwrap();
        let record = world.submit(record).await;
        world.until_over(record.task).await
    };
    let alone = send(true, "direct=1 nonce=a").await;
    assert_eq!((alone.shown, answer(&alone).as_str()), (Shown::Never, "done nonce=a"));
    let not_allowed = send(false, "direct=1 nonce=b").await;
    assert_eq!(
        (not_allowed.shown, answer(&not_allowed).as_str()),
        (Shown::Yes, "done nonce=b")
    );
    let more_to_say = send(true, "chunks=2 nonce=c").await;
    assert_eq!(
        (more_to_say.shown, more_to_say.state),
        (Shown::Yes, TaskState::Completed)
    );
    assert!(worker.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_parts_reach_a_program() {
    let (world, mark) = (World::start().await, Mark::new());
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("profile = \"iac-code\"")).await;
    let mut picture = Part::raw(vec![0xff; 5 << 20]);
    picture.media_type = Some("image/png".to_owned());
    // With the words before it and what joins them one byte less than 4 MiB.
    let words = "end=input-required";
    let long = "x".repeat((4 << 20) - 1 - words.len() - 1);
    for (context, part) in [("1", picture), ("2", Part::text(long))] {
        let message = Message::new(Role::User, vec![Part::text(words), part]);
        let record = world.record(context, "a", CrashPolicy::Fail, message).await;
        let stored = world.until_over(world.submit(record).await.task).await;
        assert_eq!(
            (stored.state.clone(), answer(&stored)),
            (TaskState::InputRequired, "over".to_owned())
        );
    }
    mark.until_gone().await;
}

/// What an agent says under the profile's key is bounded and free of credentials and paths, whatever the event; the rest is its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_says_under_the_profiles_key_is_projected() {
    let (world, mark) = (World::start().await, Mark::new());
    let table = mark.driven("profile = \"iac-code\"");
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &table).await;
    let at = std::env::current_dir().unwrap();
    let lines = [
        json!({ "type": "status", "metadata": { "iac_code": { "thinking": { "type": "raw_thinking", "text": "hm" } } } }),
        json!({ "type": "status", "metadata": { "iac_code": { "tool": {
            "status": "started", "toolUseId": "t", "name": "write_file",
        } } } }),
        json!({ "type": "status", "metadata": { "iac_code": { "tool": {
            "status": "input_complete", "toolUseId": "t", "input": { "path": at.join("a.yml"), "password": "hunter2" },
        } } } }),
        json!({ "type": "artifact", "artifact": {
            "artifactId": "f", "parts": [{ "text": "1" }], "metadata": { "iac_code": { "at": at } },
        } }),
        json!({ "type": "end", "metadata": {
            "iac_code": { "usage": { "totalTokens": 18 }, "token": "hunter2", "long": "x".repeat(5_000) }, "other": { "token": "kept" },
        } }),
    ];
    let text = lines.map(|line| format!("line={line}")).join(" ");
    let turn = world.ask("c-1", &text, CrashPolicy::Fail).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::InputRequired);
    let bodies: Vec<Value> = world
        .journal(turn.task)
        .await
        .iter()
        .map(|event| serde_json::from_slice(&event.bytes).unwrap())
        .collect();
    assert_eq!(bodies.len(), 6, "a thought that is not shown is no event: {bodies:#?}");
    let facts = |n: usize, kind: &str| bodies[n][kind]["metadata"]["iac_code"].clone();
    assert_eq!(
        facts(3, "statusUpdate"),
        json!({ "tool": {
            "status": "input_complete", "toolUseId": "t", "name": "write_file",
            "input": { "path": "[root]/a.yml", "password": "[redacted]" },
        } })
    );
    assert_eq!(
        bodies[4]["artifactUpdate"]["artifact"]["metadata"]["iac_code"],
        json!({ "at": "[root]" })
    );
    let last = facts(5, "statusUpdate");
    assert_eq!(
        (&last["usage"], &last["token"]),
        (&json!({ "totalTokens": 18 }), &json!("[redacted]"))
    );
    assert_eq!(last["long"].as_str().unwrap().len(), 4_000);
    assert_eq!(
        bodies[5]["statusUpdate"]["metadata"]["other"],
        json!({ "token": "kept" })
    );
    assert!(bodies[2..].iter().all(|body| !body.to_string().contains("hunter2")));
    mark.until_gone().await;
}
