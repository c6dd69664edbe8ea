//! The life of processes: cancelled, paused, kept, drained, timed out; and nothing of them is left.

use std::time::{Duration, Instant};

use a2a::TaskState;
use relevo_shared::domain::record::{CrashPolicy, TurnRecord};
use relevo_shared::ids::Nonce;
use relevo_testkit::poll;

use crate::fixture::{AS_USER, RunningWorker, World, answer};
use crate::process_harness::Mark;

async fn cancel(world: &World, turn: &TurnRecord) {
    let (context, partition) = world.store.place(&turn.scope(), &turn.context_id);
    let asked = world
        .store
        .request_cancel(partition, &context, turn.turn, Nonce(7))
        .await
        .unwrap();
    assert_eq!(asked, relevo_shared::store::Asked::Told);
}

fn reason(stored: &relevo_shared::store::StoredTask) -> &str {
    stored.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"]
        .as_str()
        .unwrap()
}

/// The process id that an answer names.
fn pid(stored: &relevo_shared::store::StoredTask) -> String {
    let text = answer(stored);
    let (_, rest) = text.split_once("pid=").unwrap();
    rest.split(';').next().unwrap().to_owned()
}

/// The process ids that the events of a turn name, void ones too.
async fn pids(world: &World, turn: &TurnRecord) -> Vec<String> {
    let named = |entry: &relevo_shared::domain::fold::Entry| {
        let text = String::from_utf8(entry.bytes.clone()).unwrap();
        let (_, rest) = text.split_once("pid=")?;
        Some(rest.split_once(';')?.0.to_owned())
    };
    world.journal(turn.task).await.iter().filter_map(named).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_is_told_and_canceled_is_written_when_nothing_is_left() {
    let (world, mark) = (World::start().await, Mark::new());
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("")).await;
    let file = mark.path("told");
    let text = format!("tree say=x cancel={} hold=60", file.display());
    let turn = world.ask("c-1", &text, CrashPolicy::Fail).await;
    world.until_entries(turn.task, 3).await;
    cancel(&world, &turn).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(
        (stored.state, mark.agents()),
        (TaskState::Canceled, Vec::<String>::new())
    );
    assert_eq!(
        mark.until_file("told").await,
        r#"{"type": "cancel", "reason": "client"}"#
    );
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_file_is_not_taken_is_told_so() {
    let (world, mark) = (World::start().await, Mark::new());
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("")).await;
    let told = mark.path("told");
    let artifact = r#"{"type":"artifact","artifact":{"artifactId":"a","parts":[{"file":"no-such-file"}]}}"#;
    let text = format!("line={artifact} cancel={}", told.display());
    let turn = world.ask("c-1", &text, CrashPolicy::Fail).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(reason(&stored), "agent_error");
    let told = std::fs::read_to_string(told).unwrap();
    assert_eq!(told, r#"{"type": "cancel", "reason": "refused"}"#);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ignores_cancel_and_sigterm_is_killed() {
    let (world, mark) = (World::start().await, Mark::new());
    let table = mark.driven("kill_grace = \"500ms\"");
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &table).await;
    let turn = world.ask("c-1", "deaf=1 say=x hold=60", CrashPolicy::Fail).await;
    world.until_entries(turn.task, 3).await;
    cancel(&world, &turn).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(
        (stored.state, mark.agents()),
        (TaskState::Canceled, Vec::<String>::new())
    );
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stops_its_supervisor_is_killed_with_it() {
    let (world, mark) = (World::start().await, Mark::new());
    let table = mark.driven("kill_grace = \"300ms\"\nkeep = \"1s\"");
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &table).await;
    let words = "deaf=1 tree freeze=1 say=x hold=60";
    let turn = world.ask("c-1", words, CrashPolicy::Fail).await;
    world.until_entries(turn.task, 3).await;
    cancel(&world, &turn).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(
        (stored.state, mark.living()),
        (TaskState::Canceled, Vec::<String>::new())
    );
    // One that waits for its next turn goes with its time all the same.
    let turn = world
        .ask("c-2", "deaf=1 tree freeze=1 end=completed", CrashPolicy::Fail)
        .await;
    assert_eq!(world.until_over(turn.task).await.state, TaskState::Completed);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_over_only_when_what_its_agent_left_behind_is_gone() {
    let (world, mark) = (World::start().await, Mark::new());
    let table = mark.driven("kill_grace = \"300ms\"");
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &table).await;
    for (context, text, state) in [
        ("1", "tree end=completed", TaskState::Completed),
        ("2", "tree deaf=1 end=completed hold=60", TaskState::Completed),
        ("3", "tree exit=1", TaskState::Failed),
        ("4", "tree line=nonsense hold=60", TaskState::Failed),
    ] {
        let turn = world.ask(context, text, CrashPolicy::Fail).await;
        let stored = world.until_over(turn.task).await;
        assert_eq!((stored.state, mark.agents()), (state, Vec::<String>::new()), "{text}");
    }
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stalls_ends_with_its_time() {
    let (world, mark) = (World::start().await, Mark::new());
    let settings = [("turn.max_duration", "1s")];
    let _worker = RunningWorker::start_with(&world.redis.url(), &settings, &mark.driven("")).await;
    let turn = world.ask("c-1", "say=x hold=60", CrashPolicy::Fail).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!((reason(&stored), mark.agents()), ("deadline_exceeded", Vec::new()));
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_floods_ends_at_the_limit() {
    let (world, mark) = (World::start().await, Mark::new());
    let settings = [("turn.max_events", "500")];
    let _worker = RunningWorker::start_with(&world.redis.url(), &settings, &mark.driven("")).await;
    let text = format!("flood={},1000000", mark.path("count").display());
    let turn = world.ask("c-1", &text, CrashPolicy::Fail).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!((reason(&stored), mark.agents()), ("output_limit", Vec::new()));
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_faster_than_redis_waits() {
    let (world, mark) = (World::start().await, Mark::new());
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("")).await;
    let text = format!("flood={},3000 end=completed", mark.path("count").display());
    let turn = world.ask("c-1", &text, CrashPolicy::Fail).await;
    world.until_entries(turn.task, 100).await;
    world.redis.stop();
    // Paused: what it has written does not change any more.
    let (mut last, mut since) = (String::new(), Instant::now());
    poll::until_sync("the agent is paused", || {
        let count = std::fs::read_to_string(mark.path("count")).unwrap_or_default();
        if count != last {
            (last, since) = (count, Instant::now());
        }
        if since.elapsed() > Duration::from_millis(500) {
            Ok(())
        } else {
            Err(last.clone())
        }
    });
    assert!(last.parse::<u64>().unwrap() < 2900, "{last}");
    world.redis.cont();
    let stored = world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    assert_eq!(answer(&stored).matches('x').count(), 3_000_000);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_process_serves_its_context_until_it_misses_a_turn_or_dies() {
    let (world, mark) = (World::start().await, Mark::new());
    let table = mark.driven("keep = \"10m\"");
    let one = RunningWorker::start_with(&world.redis.url(), &[], &table).await;
    let first = world.ask("c-1", "pid end=input-required", CrashPolicy::Fail).await;
    let process = pid(&world.until_over(first.task).await);
    let second = world.ask_again(&first, "pid end=input-required").await;
    assert_eq!(pid(&world.until_over(second.task).await), process);
    let other = world.ask("c-2", "pid end=completed", CrashPolicy::Fail).await;
    assert_ne!(pid(&world.until_over(other.task).await), process);

    // What it says out of turn, and what it missed, make it worthless; so does its death.
    let chatty = world.ask_again(&first, "pid end=input-required say=late").await;
    assert_eq!(pid(&world.until_over(chatty.task).await), process);
    let third = world.ask_again(&first, "pid end=input-required exit=0").await;
    let next = pid(&world.until_over(third.task).await);
    assert_ne!(next, process);
    // Reaped: one that is about to end has lost its environment already, but may still hold its pipes.
    poll::until("the process is dead", || async {
        if std::path::Path::new("/proc").join(&next).exists() {
            Err(mark.living().join("; "))
        } else {
            Ok(())
        }
    })
    .await;
    let fourth = world.ask_again(&first, "pid end=input-required").await;
    let fourth = pid(&world.until_over(fourth.task).await);
    assert_ne!(fourth, next);
    assert!(one.stop().await);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_process_that_missed_a_turn_of_its_context_is_replaced() {
    let (world, mark) = (World::start().await, Mark::new());
    let table = mark.driven("keep = \"10m\"");
    let one = RunningWorker::start_with(&world.redis.url(), &[("worker.slots", "1")], &table).await;
    let first = world.ask("c-1", "pid end=input-required", CrashPolicy::Fail).await;
    let process = pid(&world.until_over(first.task).await);
    // Its only slot is taken, so the next turn of the context runs elsewhere.
    let busy = world.ask("c-2", "say=x hold=2 end=completed", CrashPolicy::Fail).await;
    world.until_entries(busy.task, 3).await;
    let two = RunningWorker::start_with(&world.redis.url(), &[], &table).await;
    let second = world.ask_again(&first, "pid end=input-required").await;
    assert_ne!(pid(&world.until_over(second.task).await), process);
    assert!(two.stop().await);
    world.until_over(busy.task).await;
    let third = world.ask_again(&first, "pid end=completed").await;
    assert_ne!(pid(&world.until_over(third.task).await), process);
    assert!(one.stop().await);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_process_does_not_run_a_turn_again() {
    let (world, mark) = (World::start().await, Mark::new());
    let table = mark.driven("keep = \"10m\"\npolicy = \"restart\"");
    let worker = RunningWorker::start_with(&world.redis.url(), &[], &table).await;
    let turn = world
        .ask("c-1", "pid retry-before=2 end=input-required", CrashPolicy::Restart)
        .await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::InputRequired);
    let pids = pids(&world, &turn).await;
    assert!(pids.len() == 2 && pids[0] != pids[1], "{pids:?}");
    // The next turn is served by the one that ended the last.
    let next = world.ask_again(&turn, "pid end=completed").await;
    assert_eq!(pid(&world.until_over(next.task).await), pids[1]);
    assert!(worker.stop().await);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_process_whose_end_was_not_written_does_not_run_the_turn_again() {
    let (world, mark) = (World::start().await, Mark::new());
    world.permit("+evalsha");
    let table = mark.driven("keep = \"10m\"\npolicy = \"restart\"");
    let worker = RunningWorker::start_with(&world.redis.url(), &AS_USER, &table).await;
    let go = mark.path("go");
    let words = format!("pid wait={} end=completed", go.display());
    let turn = world.ask("c-1", &words, CrashPolicy::Restart).await;
    world.until_entries(turn.task, 3).await;
    world.permit("-evalsha");
    std::fs::write(&go, "").unwrap();
    worker.until_refused("finish").await;
    world.permit("+evalsha");
    let stored = world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    let pids = pids(&world, &turn).await;
    assert!(pids.len() == 2 && pids[0] != pids[1], "{pids:?}");
    assert!(worker.stop().await);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_goes_with_its_time() {
    let (world, mark) = (World::start().await, Mark::new());
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("keep = \"1s\"")).await;
    let turn = world.ask("c-1", "pid end=completed", CrashPolicy::Fail).await;
    world.until_over(turn.task).await;
    assert!(!mark.living().is_empty());
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_worker_stops_its_agents_and_hands_their_turns_over() {
    let (world, mark) = (World::start().await, Mark::new());
    let settings = [("drain.deadline", "2s"), ("drain.delay", "0s")];
    let table = mark.driven("kill_grace = \"300ms\"");
    let worker = RunningWorker::start_with(&world.redis.url(), &settings, &table).await;
    let once = world.ask("c-1", "tree say=x hold=60", CrashPolicy::Fail).await;
    let again = world.ask("c-2", "tree say=x hold=60", CrashPolicy::Restart).await;
    world.until_entries(once.task, 3).await;
    world.until_entries(again.task, 3).await;
    assert!(worker.stop().await);
    assert_eq!(mark.agents(), Vec::<String>::new());
    assert_eq!(reason(&world.until_over(once.task).await), "worker_drained");
    let (_, partition) = world.store.place(&again.scope(), "c-2");
    let view = world
        .store
        .read_context(partition, &again.context_key(64))
        .await
        .unwrap();
    let live = view.live.unwrap();
    assert!(live.token.is_none());
    assert_eq!((live.tries.charged, live.tries.handbacks), (0, 1));
    mark.until_gone().await;
}
