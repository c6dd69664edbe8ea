//! A Redis Cluster of three nodes: everything finds its node, also while slots move and while a node is away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use a2a::TaskState;
use prometheus::Registry;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{EntryId, Nonce, Partition, TaskId};
use relevo_shared::store::{
    Asked, Doorbell, Held, JournalRead, LeaseClient, ListFilter, Retry, Store, StoreError, StoreMetrics, Submit,
    Submitted,
};
use relevo_testkit::{RedisCluster, poll};

use crate::fixture::{Running, TTL, World, connect, is_done, options, serves, take, token, worker};

const POOL: [&str; 1] = ["default"];

pub fn pools() -> Vec<String> {
    POOL.map(ToOwned::to_owned).to_vec()
}

/// Which node serves a partition.
fn owner(redis: &RedisCluster, store: &Store, partition: Partition) -> usize {
    redis.owner(&store.keys().meta(partition))
}

/// Names of contexts, each of a partition of its own, so many on each of three nodes.
pub fn contexts(world: &World, each: usize) -> [Vec<String>; 3] {
    let (mut found, mut used) = ([const { Vec::new() }; 3], BTreeSet::new());
    let scope = relevo_shared::ids::ScopeKey::of("", "");
    for n in 0.. {
        let context = format!("c-{n}");
        let (_, partition) = world.store.place(&scope, &context);
        let slot = relevo_shared::ids::key_slot(world.store.keys().layout().tag(partition).unwrap());
        let node = usize::try_from(slot * 3 / 16_384).unwrap();
        if found[node].len() < each && used.insert(partition) {
            found[node].push(context);
        }
        if found.iter().all(|all| all.len() == each) {
            break;
        }
    }
    found
}

#[tokio::test]
async fn partitions_lie_evenly_on_the_nodes_and_what_spans_them_is_put_together() {
    let redis = RedisCluster::start(3);
    let world = World::spread(&redis).await;
    let mut lie = BTreeMap::new();
    for partition in world.store.keys().layout().all() {
        *lie.entry(owner(&redis, &world.store, partition)).or_insert(0) += 1;
    }
    assert_eq!(lie.into_values().collect::<Vec<_>>(), [21, 21, 22]);

    let contexts = contexts(&world, 4).concat();
    let mut tasks = BTreeSet::new();
    let mut waiting = BTreeSet::new();
    for (n, context) in contexts.iter().enumerate() {
        let mut turn = world.running(context).await;
        assert!(is_done(&turn.emit(&world.store, &["answer"]).await));
        if n % 2 == 0 {
            turn.finish(&world.store, End::Completed).await;
        } else {
            waiting.insert(turn.taken.record.task);
        }
        tasks.insert(turn.taken.record.task);
    }
    let filter = |state| ListFilter {
        scope: relevo_shared::ids::ScopeKey::of("", ""),
        context: None,
        state,
        since: None,
    };
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = world.store.list_tasks(&filter(None), after, 5).await.unwrap();
        assert_eq!(page.total, 12);
        seen.extend(page.places.iter().map(|place| (place.time, place.task)));
        after = page.places.last().copied();
        if !page.more {
            break;
        }
    }
    assert!(seen.is_sorted_by(|a, b| a > b), "newest first, over all nodes");
    assert_eq!(seen.iter().map(|(_, task)| *task).collect::<BTreeSet<_>>(), tasks);
    let working = world
        .store
        .list_tasks(&filter(Some(TaskState::Working)), None, 50)
        .await;
    assert_eq!(working.unwrap().total, 6);

    let overview = world.store.overview_with_turns(&pools(), 50).await.unwrap();
    assert_eq!((overview.backlog, overview.missing), (6, 0));
    let running = overview.turns.iter().map(|turn| TaskId::parse(&turn.task).unwrap());
    assert_eq!(running.collect::<BTreeSet<_>>(), waiting);

    // Each journal comes back in the place of its task.
    let positions: Vec<(TaskId, EntryId)> = tasks.iter().map(|task| (*task, EntryId::START)).collect();
    let reads = world.store.read_journals(&positions, 100).await.unwrap();
    for ((task, _), read) in positions.iter().zip(reads) {
        let JournalRead::Entries(entries) = read.unwrap() else {
            panic!("a gap")
        };
        let says = entries
            .iter()
            .any(|e| String::from_utf8_lossy(&e.bytes).contains(&task.to_string()));
        assert!(says, "{task}");
    }

    assert_eq!(world.store.unswept().await.unwrap().len(), 64);
    world.janitor().pass().await.unwrap();
    assert_eq!(world.store.unswept().await.unwrap().len(), 0);
    assert!(world.store.dead_turns(10).await.unwrap().is_empty());
    world
        .store
        .worker_seen(&worker("w-1"), &serves(&["default"], None), 1)
        .await
        .unwrap();
    assert_eq!(world.store.workers().await.unwrap().len(), 1);
}

#[tokio::test]
async fn every_primary_is_looked_at_before_a_start() {
    let redis = RedisCluster::start(3);
    let store = connect(&redis.url()).await;
    assert_eq!(store.preflight().await.unwrap().run_ids.len(), 3);
    assert_eq!(store.memory_share().await.unwrap(), None);
    for (node, most) in redis.nodes().iter().zip(["400mb", "100mb", "0"]) {
        node.cli(&["CONFIG", "SET", "maxmemory", most]);
    }
    let share = store.memory_share().await.unwrap().unwrap();
    let fullest = redis.nodes()[1].info("memory");
    let used: f64 = fullest["used_memory"].parse().unwrap();
    let about = used / f64::from(100 << 20);
    assert!((share - about).abs() < about / 2.0, "{share}, not {about}");

    let last = &redis.nodes()[2];
    last.cli(&["CONFIG", "SET", "appendonly", "no"]);
    let warnings = store.preflight().await.unwrap().warnings;
    let addr = last.addr().unwrap().to_string();
    assert!(warnings.len() == 1 && warnings[0].starts_with(&addr), "{warnings:?}");
    last.cli(&["CONFIG", "SET", "appendonly", "yes", "appendfsync", "no"]);
    let warnings = store.preflight().await.unwrap().warnings;
    let told = warnings[0].starts_with(&addr) && warnings[0].contains("appendfsync is no");
    assert!(warnings.len() == 1 && told, "{warnings:?}");
    last.cli(&["CONFIG", "SET", "maxmemory", "100mb"]);
    last.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    // Any node may be the one that is named.
    for node in redis.nodes() {
        let metrics = StoreMetrics::register(&Registry::new()).unwrap();
        let refused = Store::connect(&options(&node.url()), metrics).await.unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("allkeys-lru") && said.contains(&addr), "{said}");
    }
}

#[tokio::test]
async fn user_and_password_are_used_with_every_node() {
    let redis = RedisCluster::start(3);
    for node in redis.nodes() {
        node.cli(&["ACL", "SETUSER", "relevo", "on", ">secret", "~*", "&*", "+@all"]);
        node.cli(&["ACL", "SETUSER", "default", "-@all", "+ping"]);
    }
    let with = relevo_shared::store::ConnectOptions {
        username: Some("relevo".to_owned()),
        password: Some("secret".to_owned()),
        ..options(&redis.url())
    };
    let store = Store::connect(&with, StoreMetrics::register(&Registry::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(store.overview(&pools()).await.unwrap().missing, 0);
    let (_ear, handle) = store.subscriber().await.unwrap();
    handle.follow_control().await.unwrap();
    handle.ping().await.unwrap();
}

#[tokio::test]
async fn doorbells_are_heard_from_every_node_and_only_what_is_followed() {
    let redis = RedisCluster::start(3);
    let world = World::spread(&redis).await;
    let (mut ear, handle) = world.store.subscriber().await.unwrap();
    let mut turns = Vec::new();
    for context in contexts(&world, 2).concat() {
        turns.push(world.running(&context).await);
    }
    let tasks: Vec<TaskId> = turns.iter().map(|turn| turn.taken.record.task).collect();
    handle.follow_all(&tasks).await.unwrap();
    handle.follow_control().await.unwrap();
    handle.ping().await.unwrap();
    for turn in &mut turns {
        let prev = turn.prev;
        assert!(is_done(&turn.emit(&world.store, &["said"]).await));
        let heard = ear.next().await.unwrap();
        assert_eq!(heard.channel, world.store.keys().channel(turn.taken.record.task));
        let bell = Doorbell::parse(&heard.payload).unwrap();
        assert_eq!((bell.prev, bell.last), (prev, turn.prev));
    }
    handle.leave_all(&tasks[..5]).await.unwrap();
    for turn in &mut turns {
        assert!(is_done(&turn.emit(&world.store, &["more"]).await));
    }
    let last = &turns[5].taken;
    assert_eq!(
        ear.next().await.unwrap().channel,
        world.store.keys().channel(last.record.task)
    );
    let asked = world
        .store
        .request_cancel(last.partition, &last.context, last.record.turn, Nonce(1));
    assert_eq!(asked.await.unwrap(), Asked::Told);
    assert_eq!(
        ear.next().await.unwrap().channel,
        world.store.keys().control(last.partition)
    );
    assert_eq!(world.counter("relevo_store_doorbells_refused_total"), 0);
}

#[tokio::test]
async fn a_subscription_ends_when_its_slot_moves_and_the_next_one_hears() {
    let redis = RedisCluster::start(3);
    let world = World::spread(&redis).await;
    let context = &contexts(&world, 1)[0][0];
    let mut turn = world.running(context).await;
    let task = turn.taken.record.task;
    let (mut ear, handle) = world.store.subscriber().await.unwrap();
    handle.follow(task).await.unwrap();
    redis.move_slot(&world.store.keys().meta(turn.taken.partition), 2);
    assert_eq!(ear.next().await, None, "what rings now rings elsewhere");
    // The first to be sent away is sent on.
    let before = turn.prev;
    assert!(is_done(&turn.emit(&world.store, &["moved"]).await));
    let (mut ear, handle) = world.store.subscriber().await.unwrap();
    handle.follow(task).await.unwrap();
    turn.emit(&world.store, &["heard"]).await;
    let bell = Doorbell::parse(&ear.next().await.unwrap().payload).unwrap();
    assert_eq!(bell.last, turn.prev);
    assert!(before < bell.prev);
}

#[tokio::test]
async fn a_slot_that_moves_refuses_scripts_as_a_whole_and_loses_nothing() {
    let redis = RedisCluster::start(3);
    let world = World::spread(&redis).await;
    let context = &contexts(&world, 1)[0][0];
    let mut turn = world.running(context).await;
    turn.emit(&world.store, &["before"]).await;
    let partition = turn.taken.partition;
    let meta = world.store.keys().meta(partition);
    let mut leases = LeaseClient::new(world.store.clone());
    let held = [Held {
        context: turn.taken.context.clone(),
        token: turn.taken.token.clone(),
        turn: turn.taken.record.turn,
    }];
    let keys = world.probe.keys_of(&meta);

    redis.begin_move(&meta, 2);
    let mut moved = 0;
    loop {
        // All keys here, then half of them, then none: whatever is there, nothing is done by halves.
        let (open, events) = turn.events(&["during"]);
        let batch = turn.batch(Nonce(7), open, &events);
        unavailable(world.store.emit(&batch).await);
        unavailable(world.try_take(partition).await);
        assert!(leases.renew(partition, TTL, &held).is_err());
        assert_eq!(world.probe.keys_of(&meta), keys);
        if !redis.move_some(&meta, 0, 2, 2) {
            break;
        }
        moved += 1;
    }
    assert!(moved > 0);
    redis.end_move(&meta, 0, 2);
    assert_eq!(world.probe.keys_of(&meta), keys);
    // Neither the thread of the leases nor the store knows yet: both are sent on.
    let renewed = leases.renew(partition, TTL, &held).unwrap();
    assert!(renewed.lost.is_empty());
    assert!(is_done(&turn.emit(&world.store, &["after"]).await));
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    let kinds = world.kinds(turn.taken.record.task).await;
    assert_eq!(kinds, ["1.n", "1.n", "1.n", "1.n", "1.t"]);
    // Another server answers for the partition: leases there get their grace.
    assert!(world.sweep(partition).await.restarted || world.probe.field(&meta, "run").is_some());
}

/// Conversations go on while partitions move from the first node to the others, those of some of them included.
#[tokio::test(flavor = "multi_thread")]
async fn slots_move_under_traffic_and_nothing_is_lost() {
    let redis = RedisCluster::start(3);
    let world = Arc::new(World::spread(&redis).await);
    let over = Arc::new(AtomicBool::new(false));
    let mut talks = tokio::task::JoinSet::new();
    let contexts = contexts(&world, 3);
    let place = |context: &String| world.store.place(&relevo_shared::ids::ScopeKey::of("", ""), context).1;
    let moved: Vec<Partition> = contexts[0].iter().map(place).collect();
    for context in contexts.concat() {
        let (world, over) = (Arc::clone(&world), Arc::clone(&over));
        talks.spawn(async move {
            let mut turns = Vec::new();
            while !over.load(Ordering::Relaxed) || turns.is_empty() {
                turns.push(one_turn(&world, &context).await);
            }
            turns
        });
    }
    let moving = {
        let (redis, world) = (redis.clone(), Arc::clone(&world));
        tokio::task::spawn_blocking(move || {
            for (n, partition) in moved.into_iter().enumerate() {
                redis.move_slot(&world.store.keys().meta(partition), 1 + n % 2);
            }
            // And the bells.
            redis.move_slot(&world.store.keys().bell("default"), 0);
        })
    };
    moving.await.unwrap();
    over.store(true, Ordering::Relaxed);
    let turns: Vec<TaskId> = talks.join_all().await.concat();
    for task in &turns {
        assert_eq!(world.kinds(*task).await, ["1.n", "1.n", "1.n", "1.t"], "{task}");
    }
    let filter = ListFilter {
        scope: relevo_shared::ids::ScopeKey::of("", ""),
        context: None,
        state: Some(TaskState::Completed),
        since: None,
    };
    let listed = poll::until("the listing", || world.store.list_tasks(&filter, None, 1)).await;
    assert_eq!(listed.total, turns.len() as u64);
    world.store.ring("default", Partition(3), 1).await.unwrap();
    assert_eq!(world.store.answer_bell("default").await.unwrap(), Some(Partition(3)));
    let overview = world.store.overview(&pools()).await.unwrap();
    assert_eq!((overview.backlog, overview.missing), (0, 0));
}

/// A turn from its submit to its end, every call repeated with the same ids until it is answered.
async fn one_turn(world: &World, context: &str) -> TaskId {
    let record = world.record(context).await;
    let first = relevo_shared::domain::event::submitted(&record, record.submitted);
    let submit = Submit {
        record: &record,
        first: &first,
        nonce: Nonce(1),
        scope_limit: None,
        follows: None,
        history: &[],
        interrupt: None,
    };
    let submitted = until_answered("the submit", || world.store.submit(&submit)).await;
    assert!(matches!(submitted, Submitted::Accepted { .. }), "{submitted:?}");
    let tokens = [token()];
    let taken = until_answered("the take", || async {
        let repeat = relevo_shared::store::Take {
            repeat: true,
            ..take(record.task.partition(), &world.worker, &tokens)
        };
        let took = world.store.take(&repeat).await?;
        Ok(took.turns)
    });
    let taken = taken.await.pop().unwrap();
    assert_eq!(taken.record.turn, record.turn);
    let turn = Running::new(taken);
    let (open, events) = turn.events(&["answer"]);
    let batch = turn.batch(Nonce(2), open, &events);
    let emitted = until_answered("the emit", || world.store.emit(&batch)).await;
    let relevo_shared::store::EmitReply::Done { last, .. } = emitted else {
        panic!("{emitted:?}")
    };
    let mut turn = turn.clone();
    turn.fold_in(&events, Nonce(2));
    (turn.prev, turn.opened) = (last, true);
    let ended = until_answered("the end", || async {
        turn.try_finish(&world.store, End::Completed, Nonce(3), None, false)
            .await
    })
    .await;
    assert!(
        matches!(ended, relevo_shared::store::EmitReply::Done { .. }),
        "{ended:?}"
    );
    record.task
}

/// Repeats a call as long as Redis is away, as everyone does.
pub async fn until_answered<T, F: Future<Output = Result<T, StoreError>>>(what: &str, call: impl Fn() -> F) -> T {
    poll::until(what, || async {
        match call().await {
            Err(error) if error.retry() == Retry::Later => Err(error),
            answer => Ok(answer.unwrap()),
        }
    })
    .await
}

#[track_caller]
pub fn unavailable<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    match answer {
        Err(error) => assert_eq!(error.retry(), Retry::Later, "{error:?}"),
        answer => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn a_new_node_is_found_when_slots_come_to_it() {
    let redis = RedisCluster::start(4);
    let world = World::spread(&redis).await;
    // The fourth holds nothing that this store knows of until a partition of the first moves there.
    let context = &contexts(&world, 1)[0][0];
    let record = world.queued(context).await;
    let partition = world.partition(&record);
    redis.move_slot(&world.store.keys().meta(partition), 3);
    assert_eq!(world.take(partition).await.len(), 1);
    assert_eq!(owner(&redis, &world.store, partition), 3);
    assert!(!world.store.is_away(partition));
}
