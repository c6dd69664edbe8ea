//! Redis away, full, forgetful, or set back to an older state.

use std::fs;
use std::path::Path;
use std::time::Duration;

use a2a::TaskState;
use relevo_loadtest::client::CallError;
use relevo_loadtest::verify::{Kind, check_task};
use relevo_testkit::poll;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fixture::Cluster;
use crate::wire::Say;

const TURNS: usize = 20;

/// Twenty turns that run, each checked in the end.
async fn twenty(cluster: &Cluster, text: &str) -> JoinSet<()> {
    let client = cluster.client();
    let mut turns = JoinSet::new();
    for turn in 0..TURNS {
        let say = Say::new(&format!("c-{turn}"), &format!("{text} nonce=n.{turn}")).at(turn);
        let client = client.clone();
        turns.spawn(async move { drop(say.checked(&client).await) });
    }
    for turn in 0..TURNS {
        cluster.until_begun(&format!("c-{turn}")).await;
    }
    turns
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_outlive_a_redis_that_is_away_for_two_lease_times_and_pay_nothing() {
    let cluster = Cluster::setup().start().await;
    let turns = twenty(&cluster, "chunks=60 delay=100").await;
    cluster.until_said("c-0", 10).await;
    cluster.redis.kill();
    let until = Instant::now() + Duration::from_secs(8);
    tokio::time::sleep_until(until).await;
    cluster.redis.restart();
    for turn in 0..TURNS {
        let context = format!("c-{turn}");
        poll::until("the turn to be at work again", || async {
            let leased = !cluster.context(&context, "tok").is_empty();
            if leased && cluster.turn(&context, "opened") == "2" {
                Ok(())
            } else {
                Err(context.clone())
            }
        })
        .await;
        assert_eq!(cluster.turn(&context, "charged"), "", "{context}");
    }
    turns.join_all().await;
    assert_eq!(cluster.dead_letters(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_redis_lets_turns_finish_and_refuses_new_ones() {
    let cluster = Cluster::setup().start().await;
    let client = cluster.client();
    let turns = twenty(&cluster, "chunks=30 delay=100").await;
    cluster.redis.cli(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let late = Say::new("c-late", "chunks=1 nonce=z");
    for gateway in 0..2 {
        let refused = late.clone().at(gateway).run(&client).await.unwrap_err();
        assert_eq!(
            (refused.kind.as_str(), refused.refused),
            ("http_503", true),
            "{refused:?}"
        );
    }
    turns.join_all().await;
    cluster.redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    poll::until("service to resume", || async {
        late.run(&client)
            .await
            .map(drop)
            .map_err(|refused| format!("{refused:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_forgets_its_scripts_again_and_again_changes_nothing() {
    let cluster = Cluster::setup().start().await;
    let mut turns = twenty(&cluster, "chunks=30 delay=50").await;
    while !turns.is_empty() {
        cluster.redis.cli(&["SCRIPT", "FLUSH"]);
        tokio::select! {
            Some(ended) = turns.join_next() => ended.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(10)) => {} // pace: of what disturbs
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_set_back_to_an_older_state_is_told_and_nothing_is_stuck() {
    let cluster = Cluster::setup().start().await;
    let client = cluster.client();
    let kept = Say::new("c-kept", "chunks=80 delay=100 nonce=a");
    let running = tokio::spawn({
        let (kept, client) = (kept.clone(), client.clone());
        async move { kept.run(&client).await.unwrap() }
    });
    cluster.until_begun("c-kept").await;
    let kept_task = cluster.turn("c-kept", "k");
    let at_copy = cluster
        .until_journal(&kept_task, |journal| journal.len() > 5)
        .await
        .len();
    let files = cluster.redis.dir().join("appendonlydir");
    let older = cluster.redis.dir().join("older");
    copy(&files, &older);

    // After the copy: more of the first turn, and a turn that Redis will not know.
    let lost = Say::new("c-lost", "chunks=2 hold=600 nonce=b");
    let losing = tokio::spawn({
        let (lost, client) = (lost.clone(), client.clone());
        async move { lost.run(&client).await }
    });
    cluster.until_begun("c-lost").await;
    cluster
        .until_journal(&kept_task, |journal| journal.len() > at_copy + 10)
        .await;
    cluster.redis.kill();
    fs::remove_dir_all(&files).unwrap();
    copy(&older, &files);
    cluster.redis.restart();

    let done = running.await.unwrap();
    let kinds: Vec<Kind> = done.violations.iter().map(|violation| violation.kind).collect();
    assert_eq!(
        (done.state, kinds),
        (TaskState::Completed, vec![Kind::Gap]),
        "{:?}",
        done.violations
    );
    let task = client.get(0, &done.task).await.unwrap();
    assert_eq!(check_task(&task, "c-kept", &[kept.expect()]), []);

    let failure = losing.await.unwrap().unwrap_err();
    assert!(
        failure.kind == "rpc-32603" || failure.kind == "rpc-32001",
        "{failure:?}"
    );
    let unknown = client.get(0, "01900000-0000-7000-8000-000000000000").await.unwrap_err();
    assert!(matches!(unknown, CallError::Rpc(error) if error.code == -32001));
    // The context is free again.
    Say::new("c-lost", "chunks=1 nonce=c").checked(&client).await;
}
