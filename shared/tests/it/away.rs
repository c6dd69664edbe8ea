//! A Redis that is there but cannot serve, or is not there: one class of errors, and nothing else is made of it.

use std::time::Duration;

use prometheus::Registry;
use relevo_shared::domain::state::End;
use relevo_shared::ids::EntryId;
use relevo_shared::store::{ConnectOptions, HistoryLength, ListFilter, Retry, Store, StoreError, StoreMetrics, Take};
use relevo_testkit::poll;

use crate::fixture::{World, options, take, token};

#[track_caller]
fn unavailable<T: std::fmt::Debug>(answer: Result<T, StoreError>, what: &str) {
    match answer {
        Err(error @ StoreError::Unavailable(_)) => assert_eq!(error.retry(), Retry::Later),
        other => panic!("{what}: {other:?}"),
    }
}

/// Every way to write or read that a replica, a loading server or a dead one must answer alike.
async fn everything_is_unavailable(world: &World, what: &str) {
    let record = world_record(world);
    let store = &world.store;
    let task = record;
    unavailable(store.read_task(task, HistoryLength::All).await, what);
    unavailable(store.read_journal(task, EntryId::START, 10).await, what);
    let many = store.read_journals(&[(task, EntryId::START)], 10).await;
    match many {
        Ok(each) => each.into_iter().for_each(|read| unavailable(read, what)),
        Err(error) => unavailable(Err::<(), _>(error), what),
    }
    unavailable(store.unswept().await, what);
    unavailable(store.dead_turns(10).await, what);
    unavailable(store.workers().await, what);
    unavailable(store.overview(&["default".to_owned()]).await, what);
    for state in [None, Some(a2a::TaskState::Working)] {
        let filter = ListFilter {
            scope: relevo_shared::ids::ScopeKey::of("", ""),
            context: None,
            state,
            since: None,
        };
        unavailable(store.list_tasks(&filter, None, 10).await, what);
    }
    unavailable(world.try_take(task.partition()).await, what);
    unavailable(world.janitor().pass().await, what);
}

fn world_record(world: &World) -> relevo_shared::ids::TaskId {
    let partition = world.store.keys().layout().all().next().unwrap();
    relevo_shared::ids::TaskId::new(1, partition, 1)
}

#[tokio::test]
async fn a_replica_that_serves_nothing_is_unavailable() {
    let world = World::start().await;
    world.probe.ask(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    // Nobody listens on port 1: the link to the primary is never up.
    world.probe.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    everything_is_unavailable(&world, "MASTERDOWN").await;
    world.probe.ask(&["REPLICAOF", "NO", "ONE"]);
    let turn = world.ended("c-1", End::Completed).await;
    assert!(world.stored(turn.taken.record.task).await.terminal);
}

#[tokio::test]
async fn a_primary_that_became_a_replica_is_unavailable_for_writes() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    world.probe.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    unavailable(world.try_take(world.partition(&record)).await, "READONLY");
    unavailable(
        world.store.ring("default", world.partition(&record), 1).await,
        "READONLY",
    );
    world.probe.ask(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(world.take(world.partition(&record)).await.len(), 1);
}

#[tokio::test]
async fn too_few_replicas_are_unavailable_for_writes() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    world.probe.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    unavailable(world.try_take(world.partition(&record)).await, "NOREPLICAS");
    world.probe.ask(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert_eq!(world.take(world.partition(&record)).await.len(), 1);
}

#[tokio::test]
async fn a_server_in_the_middle_of_a_long_script_is_unavailable() {
    let world = World::start().await;
    world.probe.ask(&["CONFIG", "SET", "busy-reply-threshold", "1"]);
    let probe = crate::probe::Probe::new(&world.redis);
    let stuck = std::thread::spawn(move || probe.try_ask(&["EVAL", "while true do end", "0"]));
    poll::until("the script to be noticed", || async {
        match world.probe.try_ask(&["PING"]) {
            Err(error) if error.code() == Some("BUSY") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    everything_is_unavailable(&world, "BUSY").await;
    world.probe.ask(&["SCRIPT", "KILL"]);
    assert!(stuck.join().unwrap().is_err());
    world.ended("c-1", End::Completed).await;
}

#[tokio::test]
async fn a_server_that_is_gone_is_unavailable_until_it_is_back() {
    let world = World::lasting().await;
    let record = world.queued("c-1").await;
    world.redis.kill();
    everything_is_unavailable(&world, "killed").await;
    world.redis.restart();
    world.probe.reconnect();
    // Old connections may still have to find out: the same call again resolves what became of the one before.
    let tokens = [token()];
    let repeat = Take {
        repeat: true,
        ..take(world.partition(&record), &world.worker, &tokens)
    };
    let taken = poll::until("a turn to be taken", || world.store.take(&repeat)).await;
    assert_eq!(taken.turns.len(), 1);
}

#[tokio::test]
async fn a_server_that_stands_still_is_unavailable_after_the_timeout() {
    let world = World::start().await;
    let options = ConnectOptions {
        timeout: Duration::from_millis(50),
        ..options(&world.redis.url())
    };
    // A busy machine may need longer than that to connect.
    let hasty = poll::until("an impatient store", async || {
        let metrics = StoreMetrics::register(&Registry::new()).unwrap();
        Store::connect(&options, metrics).await
    })
    .await;
    let record = world.queued("c-1").await;
    let partition = world.partition(&record);
    let tokens = [token()];
    world.redis.stop();
    unavailable(hasty.take(&take(partition, &world.worker, &tokens)).await, "stopped");
    world.redis.cont();
    // Whether the call was executed nobody knows; the same call, as a repeat, resolves it either way.
    let repeat = Take {
        repeat: true,
        ..take(partition, &world.worker, &tokens)
    };
    let taken = world.store.take(&repeat).await.unwrap();
    assert_eq!(taken.turns[0].record.turn, record.turn);
    assert_eq!(world.live(&record).await.token.as_ref(), Some(&tokens[0]));
}
