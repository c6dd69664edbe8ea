//! The floor of Redis: what a turn costs as bare scripts of a minimal client, six that journal one event each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::redis::{Client, Script};
use relevo_testkit::RedisServer;
use serde_json::{Value, json};

use crate::machine::cpu;
use crate::table::{figure, print};

const EVENTS: usize = 6;
const JOURNAL: &str = "
redis.call('XADD', KEYS[1], '*', 'k', '1.n', 'e', ARGV[1])
redis.call('HSET', KEYS[2], 'state', 'WORKING', 'up', ARGV[2])
redis.call('PUBLISH', KEYS[3], ARGV[1])
return 1";

/// Turns per second at so many clients, and Redis' microseconds per turn.
async fn round(redis: &RedisServer, clients: usize, length: Duration) -> (f64, f64) {
    let client = Client::open(redis.url()).unwrap();
    let event = Arc::new(format!(r#"{{"statusUpdate":{{"text":"{}"}}}}"#, "x".repeat(250)));
    let turns = Arc::new(AtomicU64::new(0));
    let (begun, before) = (Instant::now(), cpu(redis.pid()));
    let mut all = tokio::task::JoinSet::new();
    for place in 0..clients {
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let (event, turns) = (Arc::clone(&event), Arc::clone(&turns));
        all.spawn(async move {
            let script = Script::new(JOURNAL);
            let mut turn = 0_u64;
            while begun.elapsed() < length {
                turn += 1;
                let key = |kind: &str| format!("{{{place}}}:{kind}:{turn}");
                for _ in 0..EVENTS {
                    let mut call = script.prepare_invoke();
                    call.key(key("ev"))
                        .key(key("task"))
                        .key(key("ch"))
                        .arg(event.as_str())
                        .arg(turn);
                    let _: i64 = call.invoke_async(&mut connection).await.unwrap();
                }
                turns.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    all.join_all().await;
    let turns = turns.load(Ordering::Relaxed) as f64;
    let result = (
        turns / begun.elapsed().as_secs_f64(),
        (cpu(redis.pid()) - before) / turns,
    );
    redis.cli(&["FLUSHALL"]);
    result
}

pub async fn run(length: Duration) -> Value {
    let redis = RedisServer::start();
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for clients in [1, 16, 128] {
        let (rate, us) = round(&redis, clients, length / 2).await;
        rows.push(vec![clients.to_string(), figure(rate), figure(us)]);
        values.push(json!({ "clients": clients, "turns_per_second": rate, "redis_us": us }));
    }
    print(
        "Floor: six journalling scripts per turn, nothing else",
        &["clients", "turns/s", "Redis us per turn"],
        &rows,
    );
    Value::Array(values)
}
