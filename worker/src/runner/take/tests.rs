use std::time::Duration;

use relevo_shared::platform::config::Loader;
use relevo_shared::platform::metrics::Registry;
use relevo_shared::platform::shutdown::Shutdown;
use relevo_shared::store::{ConnectOptions, StoreMetrics};
use relevo_testkit::{RedisServer, poll};

use super::*;
use crate::fixture::record;
use crate::metrics::Instruments;

/// Longer than any test: whoever waits so long waits for ever.
const FOR_EVER: Duration = Duration::from_hours(1);

async fn worker(redis: &RedisServer) -> Arc<Worker> {
    let settings = Loader::new().set("redis.url", redis.url()).load().unwrap();
    let registry = Registry::new();
    let metrics = StoreMetrics::register(&registry).unwrap();
    let store = Store::connect(&ConnectOptions::from_settings(&settings.redis), metrics)
        .await
        .unwrap();
    let ttl = Duration::from_secs(15);
    Arc::new(Worker {
        id: WorkerId::random(1),
        store,
        agents: HashMap::new(),
        roots: Arc::new(Roots::new(&[])),
        storage: None,
        artifacts: None,
        settings: TurnSettings {
            ttl,
            bounds: Bounds {
                max_duration: ttl,
                output: OutputLimits {
                    events: 100,
                    bytes: 1 << 20,
                    event_bytes: 1 << 20,
                },
            },
            max_suspended: ttl,
            slots: 1,
            keep: Keep::default(),
        },
        authority: Authority { ttl },
        leases: Leases::default(),
        clock: RedisClock::default(),
        tasks: Tasks::new(Shutdown::new()),
        metrics: WorkerMetrics::new(Instruments::register(&registry).unwrap()),
        hand_over: HandOver(watch::channel(false).1),
        slots: Arc::new(Semaphore::new(1)),
        own_slots: BTreeMap::new(),
        last_attempt: Arc::new(Semaphore::new(1)),
    })
}

async fn until_blocked(redis: &RedisServer) {
    poll::until("a client waits for the bells", || async {
        let clients = redis.cli(&["CLIENT", "LIST"]);
        let waits = |client: &str| client.contains("cmd=bzpopmin") && client.contains("flags=b");
        if clients.lines().any(waits) {
            Ok(())
        } else {
            Err(clients)
        }
    })
    .await;
}

#[tokio::test]
async fn the_last_slot_waits_for_all_pools() {
    let redis = RedisServer::start();
    let worker = worker(&redis).await;
    let mut bells = Bells::new(&worker.store, vec!["one".into(), "two".into(), "three".into()]);
    for (n, pool) in (0..).zip(["two", "one", "three", "three", "one"]) {
        let partition = Partition(n);
        let ring = async {
            until_blocked(&redis).await;
            worker.store.ring(pool, partition, 1).await.unwrap();
        };
        let (next, ()) = tokio::join!(worker.next_partition(&mut bells, &worker.slots, FOR_EVER), ring);
        let takers = pool.to_owned();
        assert_eq!(next.unwrap().unwrap().0, Rung { takers, partition });
    }
}

#[tokio::test]
async fn no_pool_is_always_first() {
    let redis = RedisServer::start();
    let worker = worker(&redis).await;
    let mut bells = Bells::new(&worker.store, vec!["one".into(), "two".into()]);
    let mut heard = Vec::new();
    for n in 0..4 {
        for pool in ["one", "two"] {
            worker.store.ring(pool, Partition(n), 1).await.unwrap();
        }
        let (rung, _slot) = worker
            .next_partition(&mut bells, &worker.slots, FOR_EVER)
            .await
            .unwrap()
            .unwrap();
        heard.push(rung.takers);
    }
    assert_eq!(heard, ["two", "one", "two", "one"]);
}

#[tokio::test]
async fn a_turn_that_panics_leaves_no_lease_and_lets_others_run() {
    let redis = RedisServer::start();
    let worker = worker(&redis).await;
    let record = record();
    let (context, partition) = worker.store.place(&record.scope(), &record.context_id);
    let held = Held {
        context,
        token: LeaseToken::new(1),
        turn: record.turn,
    };
    worker.leases.add(held, partition, clock::boottime(), FOR_EVER);
    let holds = Holds {
        _slot: Arc::clone(&worker.slots).try_acquire_owned().unwrap(),
        _alone: Arc::clone(&worker.last_attempt).try_acquire_owned().ok(),
        leases: worker.leases.clone(),
        token: LeaseToken::new(1),
    };
    assert_eq!(worker.leases.by_partition().len(), 1);
    let run = holds.during(async { panic!("a bug") });
    let turn = tasks::spawn(&worker.tasks, "turn", Kind::BestEffort, run);
    assert_eq!(turn.join().await, None);
    assert!(worker.leases.by_partition().is_empty());
    let free = [&worker.slots, &worker.last_attempt].map(|permits| permits.available_permits());
    assert_eq!(free, [1, 1]);
}
