//! Turns from their lease to their end.

use a2a::{Message, Part, Role, TaskState};
use relevo_shared::domain::record::CrashPolicy;

use crate::fixture::{AS_USER, RunningWorker, World, answer};

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_run_to_its_end() {
    let world = World::start().await;
    let worker = RunningWorker::start(&world.redis.url(), &[]).await;
    let turn = world.send("c-1", "chunks=3 nonce=q").await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    assert_eq!(
        answer(&stored),
        "seq=0 nonce=q\nseq=1 nonce=q\nseq=2 nonce=q\ndone nonce=q"
    );
    assert!(worker.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_ending_reaches_the_task() {
    let world = World::start().await;
    let _worker = RunningWorker::start(&world.redis.url(), &[]).await;
    for (end, state) in [
        ("completed", TaskState::Completed),
        ("failed", TaskState::Failed),
        ("rejected", TaskState::Rejected),
        ("input-required", TaskState::InputRequired),
        ("auth-required", TaskState::AuthRequired),
    ] {
        let turn = world.send(end, &format!("end={end} chunks=1")).await;
        let stored = world.until_over(turn.task).await;
        assert_eq!(stored.state, state);
        assert_eq!(stored.terminal, state.is_terminal());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_are_merged_and_files_are_whole() {
    let world = World::start().await;
    let _worker = RunningWorker::start(&world.redis.url(), &[]).await;
    let chunks = world.send("c-1", "chunks=4 nonce=a artifact=chunks").await;
    let file = world.send("c-2", "chunks=4 nonce=b artifact=file").await;
    let chunks = world.until_over(chunks.task).await.folded.artifacts;
    assert_eq!(chunks.len(), 1);
    assert_eq!(
        chunks[0].parts[0].as_text(),
        Some("seq=0 nonce=a\nseq=1 nonce=a\nseq=2 nonce=a\nseq=3 nonce=a\n")
    );
    let file = world.until_over(file.task).await.folded.artifacts;
    assert_eq!(file[0].parts[0].filename.as_deref(), Some("b.bin"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_chunk_is_split_and_reads_as_one_text() {
    let world = World::start().await;
    let _worker = RunningWorker::start(&world.redis.url(), &[("turn.event_bytes", "16KiB")]).await;
    let turn = world.send("c-1", "chunks=2 nonce=q size=100000").await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    assert_eq!(answer(&stored).matches('x').count(), 200_000);
    assert!(world.journal(turn.task).await.iter().all(|e| e.bytes.len() <= 16 << 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_split_or_is_too_much_ends_the_turn() {
    let world = World::start().await;
    let limits = [("turn.event_bytes", "16KiB"), ("turn.max_events", "50")];
    let _worker = RunningWorker::start(&world.redis.url(), &limits).await;
    let file = world.send("c-1", "chunks=1 size=100000 artifact=file").await;
    let many = world.send("c-2", "chunks=200").await;
    for turn in [file, many] {
        let stored = world.until_over(turn.task).await;
        assert_eq!(stored.state, TaskState::Failed);
        assert_eq!(
            stored.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"],
            "output_limit"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_does_not_outgrow_the_limit_of_a_turn() {
    let world = World::start().await;
    let limits = [("turn.event_bytes", "256KiB"), ("turn.max_bytes", "256KiB")];
    let _worker = RunningWorker::start(&world.redis.url(), &limits).await;
    let words = |n: u32| format!("chunks=10 size=10000 nonce={n} artifact=chunks end=input-required");
    let first = world.send("c-1", &words(1)).await;
    let mut artifacts = Vec::new();
    for n in 2..=4 {
        let stored = world.until_over(first.task).await;
        artifacts.push((stored.state.clone(), stored.folded.artifacts.len()));
        if !stored.terminal {
            world.ask_again(&first, &words(n)).await;
        }
    }
    let waiting = TaskState::InputRequired;
    assert_eq!(artifacts, [(waiting.clone(), 1), (waiting, 2), (TaskState::Failed, 3)]);
    let stored = world.until_over(first.task).await;
    assert_eq!(
        stored.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"],
        "output_limit"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_does_not_let_the_worker_write_costs_no_attempt() {
    let world = World::start().await;
    world.permit("+evalsha");
    let worker = RunningWorker::start(&world.redis.url(), &AS_USER).await;
    let message = Message::new(Role::User, vec![Part::text("chunks=100 delay=40 nonce=q")]);
    let mut record = world.record("c-1", "demo", CrashPolicy::Restart, message).await;
    // A charge would end it.
    record.attempts = 1;
    let turn = world.submit(record).await;
    world.until_entries(turn.task, 4).await;
    world.permit("-evalsha");
    worker.until_refused("emit").await;
    worker.until_refused("read_context").await;
    world.permit("+evalsha");
    let stored = world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    let text = answer(&stored);
    assert!(
        (0..100).all(|n| text.matches(&format!("seq={n} nonce=q\n")).count() == 1),
        "{text}"
    );
    let outcomes = ["handed_back", "crashed", "abandoned"]
        .map(|outcome| worker.metric("relevo_worker_turns_total", Some(outcome)).to_string());
    assert_eq!(outcomes, ["1", "0", "0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_turn_keeps_snapshots_and_reads_the_same() {
    let world = World::start().await;
    let _worker = RunningWorker::start(&world.redis.url(), &[]).await;
    let turn = world.send("c-1", "chunks=3000 nonce=q").await;
    let stored = world.until_over(turn.task).await;
    let text = answer(&stored);
    assert!((0..3000).all(|n| text.contains(&format!("seq={n} nonce=q\n"))));
    assert_eq!(text.lines().count(), 3001);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_worker_lets_turns_finish_and_gives_the_rest_back() {
    let world = World::start().await;
    let settings = [("drain.deadline", "4s"), ("drain.delay", "0s")];
    let worker = RunningWorker::start(&world.redis.url(), &settings).await;
    let long = world.send("c-1", "chunks=2 nonce=q hold=3600").await;
    let once = world
        .send_with("c-2", "chunks=2 nonce=q hold=3600", CrashPolicy::Fail)
        .await;
    let short = world.send("c-3", "chunks=20 delay=20").await;
    for turn in [&long, &once, &short] {
        world.until_entries(turn.task, 3).await;
    }
    assert!(worker.stop().await);
    let (_, partition) = world.store.place(&long.scope(), "c-1");
    let view = world
        .store
        .read_context(partition, &long.context_key(64))
        .await
        .unwrap();
    let live = view.live.unwrap();
    assert!(live.token.is_none());
    assert_eq!((live.tries.charged, live.tries.handbacks), (0, 1));
    let once = world.until_over(once.task).await;
    assert_eq!(
        once.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"],
        "worker_drained"
    );
    assert_eq!(world.until_over(short.task).await.state, TaskState::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_was_away_for_two_lease_times_costs_no_attempt() {
    let world = World::on(relevo_testkit::RedisServer::builder().append_only().start()).await;
    let worker = RunningWorker::start(&world.redis.url(), &[("lease.ttl", "2s")]).await;
    let turn = world.send("c-1", "chunks=40 delay=100 nonce=q").await;
    world.until_entries(turn.task, 4).await;
    world.redis.stop();
    let resumed = std::time::Instant::now() + std::time::Duration::from_secs(4);
    relevo_testkit::poll::until("two lease times have passed", || async {
        if std::time::Instant::now() > resumed {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await;
    world.redis.cont();
    let stored = world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    let text = answer(&stored);
    assert!(
        (0..40).all(|n| text.matches(&format!("seq={n} nonce=q\n")).count() == 1),
        "{text}"
    );
    assert!(worker.metric("relevo_worker_attempts_total", None) >= 2.0);
}
