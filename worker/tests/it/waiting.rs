//! Turns that wait behind another of their context.

use a2a::{Message, Part, Role, TaskState};
use relevo_shared::domain::record::{BusyPolicy, CrashPolicy, TurnRecord};
use relevo_testkit::Process;

use crate::fixture::{RunningWorker, World, answer};

async fn waiting(world: &World, context_id: &str, text: &str) -> TurnRecord {
    let message = Message::new(Role::User, vec![Part::text(text)]);
    let record = world.record(context_id, "demo", CrashPolicy::Restart, message).await;
    let busy = BusyPolicy::Queue;
    world.submit(TurnRecord { busy, ..record }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_that_wait_are_run_in_their_order() {
    let world = World::start().await;
    let mut turns = vec![world.send("c-1", "chunks=3 delay=20 nonce=0").await];
    for n in 1..=5 {
        turns.push(waiting(&world, "c-1", &format!("chunks=2 nonce={n}")).await);
    }
    let worker = RunningWorker::start(&world.redis.url(), &[]).await;
    let mut before = 0;
    for (n, turn) in turns.iter().enumerate() {
        let stored = world.until_over(turn.task).await;
        assert_eq!(stored.state, TaskState::Completed);
        assert!(answer(&stored).ends_with(&format!("done nonce={n}")));
        // Its first event after it was accepted came after the end of the turn before.
        let journal = world.journal(turn.task).await;
        let working: a2a::StreamResponse = serde_json::from_slice(&journal[1].bytes).unwrap();
        let began = relevo_shared::domain::event::status_time(&working).unwrap();
        assert!(began >= before, "{n} began before the one before it had ended");
        before = stored.updated;
    }
    let waits = worker.observed("relevo_worker_queue_wait_seconds", &[]);
    assert_eq!(waits, 6);
    assert!(worker.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_behind_one_whose_worker_was_killed_is_run() {
    let world = World::start().await;
    let url = world.redis.url();
    let args = ["--redis", &url, "--admin-listen", "127.0.0.1:0"];
    let env = [("RELEVO_LEASE_TTL", "2s")];
    let killed = Process::spawn_with_ready_file(env!("CARGO_BIN_EXE_relevo-worker"), &args, &env);
    killed.ready().await;
    let once = world
        .send_with("c-1", "chunks=2 nonce=q hold=3600", CrashPolicy::Fail)
        .await;
    let again = world.send("c-2", "chunks=2 nonce=q hold=3").await;
    for turn in [&once, &again] {
        world.until_entries(turn.task, 3).await;
    }
    let next = [
        waiting(&world, "c-1", "chunks=1 nonce=1").await,
        waiting(&world, "c-2", "chunks=1 nonce=2").await,
    ];
    assert!(killed.sigkill());
    let _worker = RunningWorker::start(&url, &[("lease.ttl", "2s")]).await;
    // The end that the janitor writes begins the next; so does that of a second attempt.
    assert_eq!(world.until_over(once.task).await.state, TaskState::Failed);
    assert_eq!(world.until_over(again.task).await.state, TaskState::Completed);
    for turn in &next {
        assert_eq!(world.until_over(turn.task).await.state, TaskState::Completed);
    }
}
