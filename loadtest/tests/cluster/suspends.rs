//! Turns that wait for their users while everything that they came through goes.

use a2a::TaskState;
use relevo_loadtest::turn::read_task;
use relevo_loadtest::verify::check_task;
use relevo_testkit::poll::LONGEST;

use crate::fixture::Cluster;
use crate::wire::Say;

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_turn_outlives_every_process_and_its_answer_a_crash() {
    let mut cluster = Cluster::setup()
        .gateways(1)
        .workers(1)
        .set("RELEVO_LEASE_TTL", "2s")
        .start()
        .await;
    let asks = Say::new("c-1", "chunks=3 suspend=input-required nonce=asks");
    let (asked, _) = asks.checked(&cluster.client()).await;
    assert_eq!(asked.state, TaskState::InputRequired);
    let turn = cluster.context("c-1", "turn");
    assert!(!turn.is_empty(), "it is the live turn");
    let epoch: u64 = cluster.context("c-1", "ep").parse().unwrap();
    cluster.kill_worker(0);
    cluster.kill_gateway(0);

    cluster.start_gateway().await;
    let client = cluster.client();
    let answers = Say::new("c-1", "chunks=40 delay=50 nonce=answers").task(&asked.task);
    let answering = tokio::spawn({
        let (client, answers) = (client.clone(), Say::new("c-1", &answers.text).task(&asked.task));
        async move { answers.run(&client).await.unwrap() }
    });
    cluster.start_worker().await;
    cluster.until_said("c-1", 15).await;
    assert_eq!(cluster.context("c-1", "turn"), turn, "the same turn goes on");
    assert!(cluster.context("c-1", "ep").parse::<u64>().unwrap() > epoch);
    cluster.kill_worker(0);
    cluster.start_worker().await;

    let done = answering.await.unwrap();
    assert_eq!((done.state, done.boundaries), (TaskState::Completed, 1));
    assert_eq!(done.violations, []);
    let task = read_task(&client, 0, &asked.task, LONGEST).await.unwrap();
    assert_eq!(
        check_task(&task, "c-1", &[asks.expect(), answers.expect()]),
        [],
        "{task:#?}"
    );
    assert_eq!(cluster.dead_letters(), 0);
}
