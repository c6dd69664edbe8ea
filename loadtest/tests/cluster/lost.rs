//! Redis does what it is asked, and the answer is lost: whoever asked asks again, and it has happened once.

use std::time::Duration;

use crate::fixture::Cluster;
use crate::points::sha;
use crate::wire::{LIMIT, Say};

const TURNS: usize = 6;

/// Turns on a cluster of which every process loses the answers to the first calls of a script.
async fn loses_answers_to(script: &str) {
    let mut cluster = Cluster::setup().gateways(0).workers(0).start().await;
    let proxy = cluster.proxy();
    let needle = sha(&cluster.redis, script);
    cluster.start_gateway_at(&proxy.url()).await;
    cluster.start_worker_at(&proxy.url()).await;
    proxy.lose_reply_to(needle.as_bytes(), TURNS);
    let client = cluster.client();
    let turns: Vec<_> = (0..TURNS)
        .map(|turn| {
            let say = Say::new(&format!("c-{turn}"), &format!("chunks=5 delay=40 nonce=n.{turn}"));
            let client = client.clone();
            tokio::spawn(async move { say.checked(&client).await })
        })
        .collect();
    for turn in turns {
        let (done, task) = turn.await.unwrap();
        assert_eq!(done.boundaries, 0, "{script}");
        // Nothing is in the journal twice: its first event, WORKING, five chunks, the end.
        assert_eq!(cluster.journal(&task.id).len(), 8, "{script}");
    }
    assert!(proxy.lost_replies() > 0, "{script} was never called");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_to_any_script_changes_nothing() {
    let lost = ["submit", "take", "emit", "finish"].map(|script| tokio::spawn(loses_answers_to(script)));
    let mut failed = 0;
    for lost in lost {
        failed += usize::from(lost.await.is_err());
    }
    assert_eq!(failed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_breaks_again_and_again_changes_nothing() {
    let mut cluster = Cluster::setup().gateways(0).workers(0).start().await;
    let proxy = cluster.proxy();
    for _ in 0..2 {
        cluster.start_gateway_at(&proxy.url()).await;
        cluster.start_worker_at(&proxy.url()).await;
    }
    let client = cluster.client();
    let mut turns: Vec<_> = (0..20)
        .map(|turn| {
            let say = Say::new(&format!("c-{turn}"), &format!("chunks=60 delay=50 nonce=n.{turn}")).at(turn);
            let client = client.clone();
            tokio::spawn(async move { say.checked(&client).await })
        })
        .collect();
    let over = async {
        for turn in &mut turns {
            turn.await.unwrap();
        }
    };
    let cuts = async {
        loop {
            tokio::time::sleep(Duration::from_millis(150)).await; // pace: connections are cut again and again
            proxy.cut_all();
        }
    };
    let disturbed = async {
        tokio::select! {
            () = over => {}
            () = cuts => {}
        }
    };
    tokio::time::timeout(LIMIT, disturbed)
        .await
        .expect("the turns do not end");
    assert_eq!(cluster.dead_letters(), 0);
}
