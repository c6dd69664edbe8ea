//! Gateways and workers on a Redis Cluster of three nodes, with the load driver looking at every turn.

use relevo_testkit::poll;

use crate::fixture::Cluster;
use crate::load::{drive, report, verified};
use crate::wire::Say;

/// Turns that have ended so far.
async fn until_ended(cluster: &Cluster, more: f64) {
    let before = cluster.metric("relevo_worker_turns_total").await;
    poll::until("turns to end", || async {
        let now = cluster.metric("relevo_worker_turns_total").await;
        if now >= before + more { Ok(()) } else { Err(now) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_answers_on_three_nodes_are_clean() {
    let cluster = Cluster::setup().nodes(3).start().await;
    let stream = [
        "--contexts",
        "60",
        "--turns",
        "240",
        "--duration",
        "2m",
        "--followups",
        "1",
    ];
    assert_eq!(verified(&cluster, &stream).await["verified"], 240);
    let send = [
        "--mode",
        "send",
        "--contexts",
        "30",
        "--turns",
        "120",
        "--duration",
        "2m",
    ];
    assert_eq!(verified(&cluster, &send).await["verified"], 120);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_dies_under_load_and_comes_back_and_nothing_is_lost() {
    let cluster = Cluster::setup().nodes(3).start().await;
    let bells = cluster.node_of_bells();
    for node in [bells, (bells + 1) % 3] {
        let text = "chunks=20 delay=50 nonce={nonce}";
        let load = ["--contexts", "45", "--duration", "12s", "--text", text];
        let driver = drive(&cluster, &load);
        until_ended(&cluster, 45.0).await;
        cluster.nodes().nodes()[node].kill();
        // The other two nodes go on.
        until_ended(&cluster, 30.0).await;
        cluster.nodes().nodes()[node].restart();
        let report = report(driver).await;
        assert!(report["verified"].as_u64().unwrap() > 90, "{report}");
    }
    assert_eq!(cluster.dead_letters(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_move_under_load_and_no_event_is_missed() {
    let cluster = Cluster::setup().nodes(3).start().await;
    let text = "chunks=10 delay=50 nonce={nonce}";
    let load = ["--contexts", "64", "--duration", "10s", "--text", text];
    let driver = drive(&cluster, &load);
    until_ended(&cluster, 32.0).await;
    for partition in 0..4 {
        cluster.nodes().move_slot(&cluster.meta(partition), 2);
    }
    let report = report(driver).await;
    assert_eq!(report["refused"], 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_begin_while_the_node_of_the_bells_is_away() {
    let cluster = Cluster::setup().nodes(3).start().await;
    let client = cluster.client();
    let bells = cluster.node_of_bells();
    let contexts: Vec<String> = (0..6)
        .map(|n| cluster.context_on((bells + 1 + n % 2) % 3, n / 2))
        .collect();
    cluster.nodes().nodes()[bells].kill();
    for (n, context) in contexts.iter().enumerate() {
        // Both gateways; their first calls may meet what is broken, which is refused and not lost.
        let say = Say::new(context, &format!("chunks=5 nonce=b.{n}")).at(n);
        let (done, _) = say.checked(&client).await;
        assert_eq!(done.violations, [], "{context}");
    }
    cluster.nodes().nodes()[bells].restart();
    cluster.nodes().until_whole();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stands_still_holds_up_only_its_own_partitions() {
    let cluster = Cluster::setup().nodes(3).start().await;
    let client = cluster.client();
    let still = (cluster.node_of_bells() + 1) % 3;
    let run = |node: usize, n: usize, text: &str| {
        let say = Say::new(&cluster.context_on(node, n), &format!("{text} nonce=s.{node}.{n}")).at(n);
        let client = client.clone();
        tokio::spawn(async move { say.checked(&client).await.0.boundaries })
    };
    let others = [(still + 1) % 3, (still + 2) % 3];
    let mut running = Vec::new();
    for n in 0..3 {
        running.extend(others.map(|node| run(node, n, "chunks=70 delay=100")));
    }
    let there = run(still, 0, "chunks=70 delay=100");
    for n in 0..3 {
        for node in [others[0], others[1]] {
            cluster.until_said(&cluster.context_on(node, n), 3).await;
        }
    }
    cluster.until_said(&cluster.context_on(still, 0), 3).await;
    cluster.nodes().nodes()[still].stop();
    // Those that run go on under their leases, and others begin, for longer than a lease.
    for n in 3..6 {
        running.extend(others.map(|node| run(node, n, "chunks=20 delay=100")));
    }
    for turn in running {
        assert_eq!(turn.await.unwrap(), 0, "no lease of another node was lost");
    }
    cluster.nodes().nodes()[still].cont();
    assert!(there.await.unwrap() <= 1);
    assert_eq!(cluster.dead_letters(), 0);
}
