//! A Redis that refuses a part of what is asked: no right to publish, no memory left.

use a2a::TaskState;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::state::End;
use relevo_shared::ids::Nonce;
use relevo_shared::janitor::{Conclusion, GivenBack, Why, conclude, give_back};
use relevo_shared::store::{
    Asked, ConnectOptions, Held, HistoryLength, Keep, LeaseClient, Open, Retry, Settled, Store, StoreError, Submit,
    Submitted,
};
use relevo_testkit::RedisServer;

use crate::fixture::{Running, TTL, World, is_done, is_repeat, options};

/// A store whose user may do everything but publish and subscribe.
async fn silent() -> World {
    let redis = RedisServer::start();
    redis.cli(&[
        "ACL",
        "SETUSER",
        "relevo",
        "on",
        ">secret",
        "~*",
        "+@all",
        "resetchannels",
    ]);
    let options = ConnectOptions {
        username: Some("relevo".to_owned()),
        password: Some("secret".to_owned()),
        ..options(&redis.url())
    };
    World::with(redis, &options).await
}

async fn renew(world: &World, turn: &Running) {
    let held = [Held {
        context: turn.taken.context.clone(),
        token: turn.taken.token.clone(),
        turn: turn.taken.record.turn,
    }];
    let (mut client, partition) = (LeaseClient::new(world.store.clone()), turn.taken.partition);
    let renewed = tokio::task::spawn_blocking(move || client.renew(partition, TTL, &held)).await;
    assert!(renewed.unwrap().unwrap().lost.is_empty());
}

async fn settle(world: &World, turn: &Running, why: Why) -> GivenBack {
    let (taken, keep) = (&turn.taken, Keep::default());
    give_back(&world.store, taken.partition, &taken.context, &taken.token, why, &keep)
        .await
        .unwrap()
}

const DRAINED: Why = Why::HandOver(FailReason::WorkerDrained);

#[tokio::test]
async fn without_the_right_to_publish_everything_is_written_and_said_to_be() {
    let world = silent().await;
    let mut turn = world.running("c-1").await;
    let task = turn.taken.record.task;
    assert!(is_done(&turn.emit(&world.store, &["one "]).await));
    let before = turn.clone();
    let (open, events) = before.events(&["two"]);
    assert_eq!(open, Open::No);
    let batch = before.batch(Nonce(9), open, &events);
    assert!(is_done(&world.store.emit(&batch).await.unwrap()));
    assert!(is_repeat(&world.store.emit(&batch).await.unwrap()));
    turn.fold_in(&events, Nonce(9));
    turn.prev = turn.prev.after(1, Nonce(9));
    assert!(is_done(&turn.finish(&world.store, End::InputRequired).await));
    assert_eq!(
        world.counter("relevo_store_doorbells_refused_total"),
        3,
        "counted, but not for the repeat"
    );

    let (record, submitted) = world.follow_up(task, "c-1").await;
    assert!(matches!(submitted, Submitted::Accepted { number: 2, .. }));
    let mut turn = world.again(&record).await;
    turn.emit(&world.store, &["three"]).await;
    renew(&world, &turn).await;
    let asked = world
        .store
        .request_cancel(turn.taken.partition, &turn.taken.context, record.turn, Nonce(1));
    assert_eq!(
        asked.await.unwrap(),
        Asked::Told,
        "the worker hears of it at its next renewal"
    );
    assert_eq!(settle(&world, &turn, DRAINED).await, GivenBack::Ended(End::Canceled));
    assert_eq!(world.stored(task).await.state, TaskState::Canceled);

    let retain = world.store.keys().retain(turn.taken.partition);
    world.probe.set_score(&retain, &format!("t:{task}"), 1);
    world.pass(&world.janitor()).await;
    assert!(world.store.read_task(task, HistoryLength::All).await.unwrap().is_none());
}

fn fill(world: &World) {
    world.probe.ask(&["CONFIG", "SET", "maxmemory", "1"]);
}

async fn try_submit(world: &World, context: &str) -> Result<Submitted, StoreError> {
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
    world.store.submit(&submit).await
}

#[tokio::test]
async fn a_full_redis_takes_no_new_work_but_lets_accepted_turns_finish() {
    let world = World::start().await;
    let running = world.running("running").await;
    let mut begun = world.running("begun").await;
    begun.emit(&world.store, &["one "]).await;
    let queued = world.queued("queued").await;
    let canceled = world.queued("canceled").await;
    let ended = world.ended("ended", End::Completed).await.taken;
    let retain = world.store.keys().retain(ended.partition);
    world.probe.set_score(&retain, &format!("t:{}", ended.record.task), 1);
    fill(&world);

    let refused = try_submit(&world, "new").await;
    assert!(
        matches!(&refused, Err(error @ StoreError::Unavailable(_)) if error.is_full() && error.retry() == Retry::Later),
        "{refused:?}"
    );

    // Nobody ever took from the partition of this one: its group does not exist yet.
    let mut taken = world.again(&queued).await;
    assert!(is_done(&taken.emit_with_snapshot(&world.store, &["x"]).await));
    renew(&world, &taken).await;
    assert!(is_done(&taken.finish(&world.store, End::Completed).await));

    assert!(is_done(&begun.emit(&world.store, &["two"]).await));
    assert!(is_done(&begun.finish(&world.store, End::InputRequired).await));

    assert_eq!(settle(&world, &running, DRAINED).await, GivenBack::Queued);
    let view = world.view(&canceled).await;
    let end = Conclusion {
        end: End::Canceled,
        reason: None,
        dead: false,
        only_expired: false,
    };
    assert_eq!(
        conclude(&world.store, &view, end, &Keep::default()).await.unwrap(),
        Settled::Done
    );

    // What is due for deletion is deleted although the bell of the turn that waits is full as well.
    world.pass(&world.janitor()).await;
    let gone = world.store.read_task(ended.record.task, HistoryLength::All).await;
    assert!(gone.unwrap().is_none());
}

#[tokio::test]
async fn a_turn_that_comes_back_is_announced_when_memory_is_full() {
    let world = World::start().await;
    let turn = world.running("c-1").await;
    fill(&world);
    assert_eq!(settle(&world, &turn, DRAINED).await, GivenBack::Queued);
    world.reached("ring", "RUNG");
    assert_eq!(
        world.store.answer_bell("default").await.unwrap(),
        Some(turn.taken.partition)
    );
    world.pass(&world.janitor()).await;
    assert_eq!(
        world.store.answer_bell("default").await.unwrap(),
        Some(turn.taken.partition),
        "by the janitor too"
    );
}

/// What `injected.rs` relies on: a script is admitted as a whole, and memory that ends while it runs does not stop it.
#[tokio::test]
async fn a_script_is_never_stopped_half_way_for_memory() {
    let world = World::start().await;
    let used = world.probe.text(&["INFO", "memory"]).unwrap();
    let used: u64 = used
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"))
        .and_then(|n| n.trim().parse().ok())
        .unwrap();
    world
        .probe
        .ask(&["CONFIG", "SET", "maxmemory", &(used + 500_000).to_string()]);
    let text = "#!lua\nfor i = 1, 2000 do redis.call('SET', KEYS[1] .. i, string.rep('x', 1000)) end return 'whole'";
    assert_eq!(world.probe.text(&["EVAL", text, "1", "k"]).as_deref(), Some("whole"));
    assert_eq!(world.probe.keys().len(), 2_001, "and the layout");
    let next = world.probe.try_ask(&["EVAL", text, "1", "k"]);
    assert_eq!(next.unwrap_err().code(), Some("OOM"), "the next one is not admitted");
}

#[tokio::test]
async fn a_wrong_password_is_told_apart_from_a_redis_that_is_away() {
    let redis = RedisServer::start();
    let options = ConnectOptions {
        username: Some("nobody".to_owned()),
        password: Some("wrong".to_owned()),
        ..options(&redis.url())
    };
    let metrics = relevo_shared::store::StoreMetrics::register(&prometheus::Registry::new()).unwrap();
    let refused = Store::connect(&options, metrics).await;
    let Err(error) = refused else { panic!("let in") };
    assert!(
        !format!("{error:?}").contains("wrong\""),
        "the password is not in the error: {error:?}"
    );
}
