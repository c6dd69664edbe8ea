//! Workers whose directories are not the same: a conversation that works in one stays with workers that have it.

use std::collections::HashMap;

use a2a::{Message, Part, Role, TaskState};
use relevo_shared::domain::record::{BusyPolicy, CrashPolicy, TurnRecord};
use relevo_shared::store::{LiveTurn, StoredTask};
use relevo_testkit::{Process, poll};
use serde_json::json;

use crate::fixture::{RunningWorker, World, answer};
use crate::process_harness::Mark;

/// An agent whose messages are about a directory, the worker's own unless they say so.
const SEED: &str = "[agents.demo]\nkind = \"demo\"\nprofile = \"iac-code\"\npolicy = \"restart\"\n";
const LEASE: (&str, &str) = ("lease.ttl", "2s");

async fn worker(world: &World, storage: &str) -> RunningWorker {
    let settings = [
        ("workspace.storage_id", storage),
        ("limits.storage_wait", "5s"),
        ("drain.deadline", "2s"),
        ("drain.delay", "0s"),
        LEASE,
    ];
    RunningWorker::start_file(&world.redis.url(), &settings, SEED).await
}

fn turns(worker: &RunningWorker) -> u32 {
    format!("{:.0}", worker.metric("relevo_worker_turns_total", None))
        .parse()
        .unwrap()
}

/// Waits until so many turns have left this worker: that is counted after they are over. More are attempts that were lost where the
/// whole machine stood still for longer than a lease.
async fn until_turns(worker: &RunningWorker, count: u32) {
    poll::until("the turns are counted", || async {
        match turns(worker) {
            found if found >= count => Ok(()),
            found => Err(found),
        }
    })
    .await;
}

/// A message about a directory that every worker here has.
fn message(text: &str) -> Message {
    let mut message = Message::new(Role::User, vec![Part::text(text)]);
    let facts = json!({ "cwd": std::env::temp_dir() });
    message.metadata = Some(HashMap::from([("iac_code".to_owned(), facts)]));
    message
}

async fn send(world: &World, text: &str) -> TurnRecord {
    let record = world.record("c-1", "demo", CrashPolicy::Restart, message(text)).await;
    world.submit(record).await
}

async fn live(world: &World, turn: &TurnRecord) -> Option<LiveTurn> {
    let (context, partition) = world.store.place(&turn.scope(), &turn.context_id);
    world.store.read_context(partition, &context).await.unwrap().live
}

/// Waits until a turn is queued for workers of this storage.
async fn until_it_waits(world: &World, turn: &TurnRecord, storage: &str) {
    let takers = format!("default@{storage}");
    poll::until("the turn waits for its storage", || async {
        match live(world, turn).await {
            Some(live) if live.waits_for() == Some(takers.as_str()) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

fn reason(stored: &StoredTask) -> String {
    let reason = &stored.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"];
    reason.as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_stays_with_the_storage_that_it_works_on() {
    let (world, mark) = (World::start().await, Mark::new());
    let table = mark.driven("profile = \"iac-code\"").replace("[a", "[agents.a");
    let start = async |storage: &'static str| {
        let settings = [("workspace.storage_id", storage)];
        RunningWorker::start_file(&world.redis.url(), &settings, &table).await
    };
    let first = start("disk-a").await;
    let turn = world.ask("c-1", "turn end=input-required", CrashPolicy::Fail).await;
    world.until_over(turn.task).await;
    let other = start("disk-b").await;
    for _ in 0..6 {
        let next = world.ask_again(&turn, "turn end=input-required").await;
        assert_eq!(world.until_over(next.task).await.state, TaskState::InputRequired);
    }
    until_turns(&first, 7).await;
    assert_eq!(turns(&other), 0);
    // Another worker of the storage goes on, also where there is another task.
    assert!(first.stop().await);
    let second = start("disk-a").await;
    let next = world.ask_again(&turn, "end=completed").await;
    world.until_over(next.task).await;
    let next = world.ask("c-1", "end=completed", CrashPolicy::Fail).await;
    world.until_over(next.task).await;
    until_turns(&second, 2).await;
    assert_eq!(turns(&other), 0);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_without_a_workspace_is_bound_to_nothing() {
    let world = World::start().await;
    let settings = [("workspace.storage_id", "disk-a")];
    let first = RunningWorker::start(&world.redis.url(), &settings).await;
    let turn = world.send("c-1", "chunks=1 nonce=q end=input-required").await;
    world.until_over(turn.task).await;
    assert!(first.stop().await);
    let settings = [("workspace.storage_id", "disk-b")];
    let second = RunningWorker::start(&world.redis.url(), &settings).await;
    let turn = world.send("c-1", "chunks=1 nonce=q").await;
    assert_eq!(world.until_over(turn.task).await.state, TaskState::Completed);
    until_turns(&second, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_worker_held_goes_on_with_another_one_of_its_storage() {
    let (world, mark) = (World::start().await, Mark::new());
    let config = mark.path("relevo.toml");
    std::fs::write(&config, SEED).unwrap();
    let (url, config) = (world.redis.url(), config.to_str().unwrap().to_owned());
    let args = ["--redis", &url, "--admin-listen", "127.0.0.1:0", "--config", &config];
    let env = [("RELEVO_LEASE_TTL", "2s"), ("RELEVO_WORKSPACE_STORAGE_ID", "disk-a")];
    let killed = Process::spawn_with_ready_file(env!("CARGO_BIN_EXE_relevo-worker"), &args, &env);
    killed.ready().await;
    let turn = send(&world, "chunks=2 nonce=q hold=2").await;
    world.until_entries(turn.task, 3).await;
    let other = worker(&world, "disk-b").await;
    assert!(killed.sigkill());
    until_it_waits(&world, &turn, "disk-a").await;
    let next = worker(&world, "disk-a").await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(answer(&stored), "seq=0 nonce=q\nseq=1 nonce=q\ndone nonce=q");
    until_turns(&next, 1).await;
    assert_eq!(turns(&other), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_drained_worker_gives_back_waits_for_its_storage() {
    let world = World::start().await;
    let first = worker(&world, "disk-a").await;
    let other = worker(&world, "disk-b").await;
    // Whichever took it has bound it.
    let turn = send(&world, "chunks=2 nonce=q hold=4").await;
    world.until_entries(turn.task, 3).await;
    let (context, partition) = world.store.place(&turn.scope(), &turn.context_id);
    let key = world.store.keys().context(partition, &context);
    let storage = world.redis.cli(&["HGET", &key, "sto"]).trim().to_owned();
    let (holder, other) = if storage == "disk-a" {
        (first, other)
    } else {
        (other, first)
    };
    assert!(holder.stop().await);
    until_it_waits(&world, &turn, &storage).await;
    let next = worker(&world, &storage).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(answer(&stored), "seq=0 nonce=q\nseq=1 nonce=q\ndone nonce=q");
    until_turns(&next, 1).await;
    assert_eq!(turns(&other), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_does_not_come_back_fails_the_turn_and_one_that_does_goes_on() {
    let world = World::start().await;
    let first = worker(&world, "disk-a").await;
    let turn = send(&world, "chunks=1 nonce=q end=input-required").await;
    world.until_over(turn.task).await;
    assert!(first.stop().await);
    let other = worker(&world, "disk-b").await;
    poll::until("the other worker is there", || async {
        match world.store.serving().await.unwrap() {
            all if all.iter().any(|entry| entry.storage.is_some()) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let takes = || other.observed("relevo_store_script_seconds", &["take", "taken"]);
    let before = takes();
    let next = world.say_again(&turn, message("chunks=1 nonce=r")).await;
    let behind = TurnRecord {
        busy: BusyPolicy::Queue,
        ..world
            .record("c-1", "demo", CrashPolicy::Restart, message("chunks=1 nonce=s"))
            .await
    };
    let behind = world.submit(behind).await;
    for record in [&next, &behind] {
        let stored = world.until_over(record.task).await;
        assert_eq!((stored.state.clone(), stored.terminal), (TaskState::Failed, true));
        assert_eq!(reason(&stored), "workspace_unavailable");
    }
    // At the most for a bell that rang before.
    assert!(takes() <= before + 1, "nobody woke up for them");
    assert_eq!(turns(&other), 0);

    let second = worker(&world, "disk-a").await;
    let again = send(&world, "chunks=1 nonce=t").await;
    assert_eq!(
        answer(&world.until_over(again.task).await),
        "seq=0 nonce=t\ndone nonce=t"
    );
    until_turns(&second, 1).await;
    assert_eq!(turns(&other), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_goes_to_the_storage_that_the_question_came_from() {
    let world = World::start().await;
    let first = worker(&world, "disk-a").await;
    let turn = send(&world, "chunks=1 nonce=q suspend=input-required").await;
    world.until_suspended(turn.task).await;
    assert!(first.stop().await);
    let other = worker(&world, "disk-b").await;
    world.answer(&turn, message("chunks=1 nonce=r")).await;
    until_it_waits(&world, &turn, "disk-a").await;
    let second = worker(&world, "disk-a").await;
    let stored = world.until_over(turn.task).await;
    assert!(answer(&stored).ends_with("done nonce=r"), "{}", answer(&stored));
    until_turns(&second, 1).await;
    assert_eq!(turns(&other), 0);
}
