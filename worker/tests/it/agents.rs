//! Several agents on one worker: slots and bounds of their own, and who serves which pool.

use a2a::{Message, Part, Role, TaskState};
use relevo_shared::domain::record::{CrashPolicy, TurnRecord};
use relevo_testkit::poll;

use crate::fixture::{RunningWorker, World, answer};

const AGENTS: &str = "
[demo]
kind = \"demo\"
default = true
[slow]
kind = \"demo\"
pool = \"slow\"
concurrency = 1
[short]
kind = \"demo\"
max_duration = \"500ms\"
[terse]
kind = \"demo\"
max_events = 5
";

async fn ask(world: &World, agent: &str, context: &str, text: &str) -> TurnRecord {
    let message = Message::new(Role::User, vec![Part::text(text)]);
    let record = world.record(context, agent, CrashPolicy::Fail, message).await;
    let pool = if agent == "slow" { "slow" } else { "default" };
    world
        .submit(TurnRecord {
            pool: pool.to_owned(),
            ..record
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_slots_of_its_own_starves_nobody_and_runs_as_many_turns_as_it_has() {
    let world = World::start().await;
    let settings = [("worker.slots", "1"), ("worker.pools", "default,slow")];
    let worker = RunningWorker::start_with(&world.redis.url(), &settings, AGENTS).await;
    let first = ask(&world, "slow", "c-1", "chunks=1 hold=2").await;
    world.until_entries(first.task, 2).await;
    let second = ask(&world, "slow", "c-2", "chunks=1 nonce=q").await;
    let other = ask(&world, "demo", "c-3", "chunks=1 nonce=q").await;
    let stored = world.until_over(other.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    let waiting = world.journal(second.task).await.len();
    let running = world
        .store
        .read_task(first.task, relevo_shared::store::HistoryLength::All)
        .await;
    if running.unwrap().unwrap().live.is_some() {
        assert_eq!(
            waiting, 1,
            "it waits for the slot, although the worker is idle otherwise"
        );
    }
    world.until_over(first.task).await;
    let stored = world.until_over(second.task).await;
    assert_eq!(answer(&stored), "seq=0 nonce=q\ndone nonce=q");
    assert!(worker.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_own_bounds_end_its_turns_and_no_others() {
    let world = World::start().await;
    let worker = RunningWorker::start_with(&world.redis.url(), &[], AGENTS).await;
    let text = "chunks=9 nonce=q";
    for (agent, text, state, reason) in [
        (
            "short",
            "chunks=1 hold=600",
            TaskState::Failed,
            Some("deadline_exceeded"),
        ),
        ("terse", text, TaskState::Failed, Some("output_limit")),
        ("demo", text, TaskState::Completed, None),
    ] {
        let turn = ask(&world, agent, agent, text).await;
        let stored = world.until_over(turn.task).await;
        assert_eq!(stored.state, state, "{agent}");
        let facts = stored.folded.metadata.get("urn:relevo:a2a:turn:v1").cloned();
        let found = facts.and_then(|facts| facts["reason"].as_str().map(str::to_owned));
        assert_eq!(found.as_deref(), reason, "{agent}");
    }
    assert!(worker.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_says_which_pools_it_serves_until_it_leaves() {
    let world = World::start().await;
    let settings = [("worker.pools", "slow"), ("worker.id", "w-1")];
    let worker = RunningWorker::start_with(&world.redis.url(), &settings, AGENTS).await;
    let serving = async || {
        let all = world.store.serving().await.unwrap();
        all.into_iter()
            .map(|entry| (entry.pool, entry.worker))
            .collect::<Vec<_>>()
    };
    poll::until("the worker is known", async || match serving().await {
        all if all == [("slow".to_owned(), "w-1".to_owned())] => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(worker.stop().await);
    assert_eq!(serving().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_of_an_agent_that_a_worker_does_not_know_is_for_one_that_does() {
    const LATE: &str = "[late]\nkind = \"demo\"\n";
    let world = World::start().await;
    let old = RunningWorker::start_with(&world.redis.url(), &[], AGENTS).await;
    let turn = ask(&world, "late", "c-1", "chunks=1 nonce=q").await;
    poll::until("the turn is given back", || async {
        match old.metric("relevo_worker_turns_total", Some("handed_back")) {
            0.0 => Err("not yet"),
            _ => Ok(()),
        }
    })
    .await;
    assert!(old.stop().await);
    let new = RunningWorker::start_with(&world.redis.url(), &[], LATE).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    // Nobody knows this one: it comes to its end all the same.
    let message = Message::new(Role::User, vec![Part::text("chunks=1")]);
    let record = world.record("c-2", "nobody", CrashPolicy::Fail, message).await;
    let turn = world.submit(TurnRecord { handbacks: 1, ..record }).await;
    let stored = world.until_over(turn.task).await;
    let facts = &stored.folded.metadata["urn:relevo:a2a:turn:v1"];
    assert_eq!(
        (stored.state, facts["reason"].as_str()),
        (TaskState::Failed, Some("handbacks_exhausted"))
    );
    assert!(new.stop().await);
}
