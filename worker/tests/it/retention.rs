//! Nothing is kept for ever: what tasks leave behind goes with its retention.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use relevo_testkit::poll;

use crate::fixture::{RunningWorker, World};

const TASKS: usize = 20_000;
/// Enough to reach every partition.
const WARM: usize = 2_000;

fn used_memory(world: &World) -> u64 {
    world.redis.cli(&["MEMORY", "PURGE"]);
    world.redis.used_memory()
}

fn keys(world: &World) -> usize {
    world
        .redis
        .cli(&["DBSIZE"])
        .trim()
        .trim_start_matches("(integer) ")
        .parse()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_tasks_leave_nothing_behind() {
    let world = World::start().await;
    let settings = [
        ("worker.slots", "512"),
        ("retention.task", "1s"),
        ("retention.idle", "1s"),
        ("retention.context", "1s"),
        ("retention.journal", "1s"),
        ("retention.refused", "1s"),
        ("retention.idempotency", "1s"),
    ];
    let _worker = RunningWorker::start(&world.redis.url(), &settings).await;
    // What exists once per partition is there before it is counted.
    send(&world, 0, WARM).await;
    until_gone(&world, WARM, 0).await;
    let (memory, count) = (used_memory(&world), keys(&world));

    send(&world, WARM, TASKS).await;
    until_gone(&world, TASKS, count).await;
    let after = used_memory(&world);
    assert!(keys(&world) <= count, "{} keys, {count} before", keys(&world));
    // Hash tables of Redis shrink in steps; 20,000 tasks hold some 120 MiB while they are there.
    assert!(after < memory + (3 << 20), "{memory} bytes before, {after} after");
}

async fn send(world: &World, from: usize, count: usize) {
    let sends = stream::iter(from..from + count)
        .map(|n| world.send_text(n))
        .buffer_unordered(128);
    sends.for_each(|()| async {}).await;
}

/// Waits until only what answers repeated submits is left, then lets the ten minutes of that pass.
async fn until_gone(world: &World, tasks: usize, before: usize) {
    // What exists once per partition (meta, queues) is there for good.
    let most = if before == 0 { 5 * 64 } else { before };
    let limit = Duration::from_mins(4);
    poll::within(limit, "tasks and contexts are deleted", || async {
        let left = keys(world);
        // One reduced turn each.
        if left <= tasks + most {
            Ok(())
        } else {
            Err(format!("{left} keys"))
        }
    })
    .await;
    let pass = "for _, key in ipairs(redis.call('KEYS', '*:turn:*')) do \
                if redis.call('PTTL', key) > 0 then redis.call('DEL', key) end end";
    poll::within(limit, "nothing is left of any task", || async {
        world.redis.cli(&["EVAL", pass, "0"]);
        let left = world
            .redis
            .cli(&["EVAL", "return #redis.call('KEYS', '*:t[au][sr][kn]:*')", "0"]);
        if left.trim().ends_with('0') && keys(world) <= most {
            Ok(())
        } else {
            Err(left)
        }
    })
    .await;
}
