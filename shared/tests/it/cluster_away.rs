//! A Redis Cluster of which a node is away: its partitions wait, the others go on, and everyone finds it again.

use relevo_shared::domain::state::End;
use relevo_shared::ids::{Partition, TaskId};
use relevo_shared::store::{Held, LeaseClient, ListFilter};
use relevo_testkit::{RedisCluster, poll};

use crate::cluster_nodes::{contexts, pools, unavailable, until_answered};
use crate::fixture::{TTL, World, is_done};

fn all() -> ListFilter {
    ListFilter {
        scope: relevo_shared::ids::ScopeKey::of("", ""),
        context: None,
        state: None,
        since: None,
    }
}

#[tokio::test]
async fn a_node_that_dies_takes_its_partitions_and_brings_them_back() {
    let redis = RedisCluster::start(3);
    let world = World::spread(&redis).await;
    let contexts = contexts(&world, 1);
    let mut turns = Vec::new();
    for context in &contexts {
        let context = &context[0];
        let mut turn = world.running(context).await;
        assert!(is_done(&turn.emit(&world.store, &["before"]).await));
        turns.push(turn);
    }
    let (mut ear, handle) = world.store.subscriber().await.unwrap();
    let tasks: Vec<TaskId> = turns.iter().map(|turn| turn.taken.record.task).collect();
    handle.follow_all(&tasks).await.unwrap();

    let lost = turns[1].taken.partition;
    redis.nodes()[1].kill();
    unavailable(world.try_take(lost).await);
    assert!(world.store.is_away(lost) && !world.store.is_away(turns[0].taken.partition));
    assert_eq!(ear.next().await, None);
    // A subscription that begins now hears the others, and ends when the node is back.
    let (mut ear, handle) = world.store.subscriber().await.unwrap();
    handle.follow_all(&tasks).await.unwrap();
    for n in [0, 2] {
        assert!(is_done(&turns[n].emit(&world.store, &["meanwhile"]).await), "{n}");
        assert_eq!(ear.next().await.unwrap().channel, world.store.keys().channel(tasks[n]));
    }
    let overview = world.store.overview(&pools()).await.unwrap();
    assert_eq!((overview.backlog, overview.missing), (2, 21));
    let warnings = world.store.preflight().await.unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("away")), "{warnings:?}");
    assert_eq!(world.store.unswept().await.unwrap().len(), 43);
    unavailable(world.store.list_tasks(&all(), None, 10).await);
    // What can be looked at is, although the pass says that it was not all.
    world.janitor().pass().await.unwrap();
    let waiting = world.store.without_bells(&pools()).await.unwrap();
    let mut partitions: Vec<Partition> = waiting.into_iter().map(|(_, partition)| partition).collect();
    partitions.sort_unstable();
    assert_eq!(partitions, [turns[0].taken.partition, turns[2].taken.partition]);

    redis.nodes()[1].restart();
    world.probe.reconnect();
    until_answered("the node to serve again", || {
        world.store.read_context(lost, &turns[1].taken.context)
    })
    .await;
    let renewed = poll::until("the renewal", || async {
        let mut leases = LeaseClient::new(world.store.clone());
        let held = Held {
            context: turns[1].taken.context.clone(),
            token: turns[1].taken.token.clone(),
            turn: turns[1].taken.record.turn,
        };
        leases.renew(lost, TTL, &[held])
    });
    assert!(renewed.await.lost.is_empty());
    let turn = &mut turns[1];
    assert_eq!(ear.next().await, None);
    assert!(is_done(&turn.emit(&world.store, &["after"]).await));
    for turn in turns {
        assert!(is_done(&turn.finish(&world.store, End::Completed).await));
        let swept = world.sweep(turn.taken.partition).await;
        let restarted = turn.taken.partition == lost;
        assert_eq!(
            swept.restarted,
            restarted && swept.grace > swept.now,
            "only one was another server"
        );
    }
    assert_eq!(world.store.list_tasks(&all(), None, 10).await.unwrap().total, 3);
}

#[tokio::test]
async fn a_replica_that_takes_over_is_followed_and_its_leases_get_their_grace() {
    let redis = RedisCluster::start(3);
    let replica = redis.replica_of(1);
    let world = World::spread(&redis).await;
    let mut turn = world.running(&contexts(&world, 1)[1][0]).await;
    let (task, partition) = (turn.taken.record.task, turn.taken.partition);
    assert!(is_done(&turn.emit(&world.store, &["before"]).await));
    world.janitor().pass().await.unwrap();
    let acknowledged = redis.nodes()[1].cli(&["WAIT", "1", "0"]);
    assert_eq!(acknowledged, "1");
    let (mut ear, handle) = world.store.subscriber().await.unwrap();
    handle.follow(task).await.unwrap();

    redis.nodes()[1].kill();
    until_answered("the replica to take over", || {
        world.store.read_context(partition, &turn.taken.context)
    })
    .await;
    assert_eq!(ear.next().await, None);
    let swept = until_answered("a look", || async {
        let pools = pools();
        let swept = world.store.sweep(partition, TTL, 100, true, &pools).await?;
        Ok(swept.unwrap())
    })
    .await;
    assert!(swept.restarted && swept.grace > swept.now);
    let (mut ear, handle) = world.store.subscriber().await.unwrap();
    handle.follow(task).await.unwrap();
    assert!(is_done(&turn.emit(&world.store, &["after"]).await));
    assert_eq!(ear.next().await.unwrap().channel, world.store.keys().channel(task));
    let found = world.store.preflight().await.unwrap();
    assert_eq!(found.run_ids.len(), 3);
    assert!(found.run_ids.contains(&replica.info("server")["run_id"]));
}
