//! Cancelling through another gateway than the one that took the message, wherever the turn stands.

use a2a::TaskState;
use relevo_loadtest::client::CallError;
use relevo_testkit::{FaultProxy, poll};

use crate::fixture::Cluster;
use crate::points::sha;
use crate::wire::{LIMIT, Say, rest, state_of, task_of};

const LONG: &str = "chunks=2 hold=600 nonce=q";

async fn until_asked(cluster: &Cluster) {
    poll::until("the cancel to be stored", || async {
        if cluster.context("c-1", "cancel").is_empty() {
            Err("not yet")
        } else {
            Ok(())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_turn_is_canceled_with_pub_sub_denied_for_the_whole_run() {
    let deny = ["ACL", "SETUSER", "default", "resetchannels"];
    let cluster = Cluster::setup().prepare(&deny).start().await;
    let client = cluster.client();
    let (mut stream, first) = Say::new("c-1", LONG).open(&client).await;
    cluster.until_begun("c-1").await;
    let task = client.cancel(1, &task_of(&first).id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Canceled);
    let last = rest(&mut stream).await.pop().unwrap();
    assert_eq!(state_of(&last.event), Some(TaskState::Canceled));
    let again = client.cancel(0, &task.id).await.unwrap_err();
    assert!(matches!(again, CallError::Rpc(error) if error.code == -32002));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_a_given_back_and_a_recovered_turn_are_canceled_at_once() {
    let mut cluster = Cluster::setup()
        .workers(0)
        .set("RELEVO_DRAIN_DEADLINE", "2s")
        .start()
        .await;
    let client = cluster.client();
    let queued = Say::new("c-1", LONG).begin(&client).await;
    assert_eq!(
        client.cancel(1, &queued.id).await.unwrap().status.state,
        TaskState::Canceled
    );

    // Given back: its worker stops before it has ended.
    cluster.start_worker().await;
    let (mut stream, given_back) = Say::new("c-1", LONG).open(&client).await;
    cluster.until_begun("c-1").await;
    let worker = cluster.workers.remove(0);
    assert!(worker.process.sigterm());
    assert!(worker.process.exited(LIMIT).await.success());
    assert_eq!(
        (cluster.context("c-1", "tok"), cluster.turn("c-1", "handbacks")),
        (String::new(), "1".to_owned())
    );
    let canceled = client.cancel(1, &task_of(&given_back).id).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
    assert_eq!(
        state_of(&rest(&mut stream).await.pop().unwrap().event),
        Some(TaskState::Canceled)
    );

    // Recovered: its worker died and its lease has run out.
    cluster.start_worker().await;
    let (mut stream, recovered) = Say::new("c-1", LONG).open(&client).await;
    cluster.until_begun("c-1").await;
    cluster.kill_worker(0);
    poll::until("the turn to be recovered", || async {
        if cluster.context("c-1", "tok").is_empty() {
            Ok(())
        } else {
            Err("leased")
        }
    })
    .await;
    let canceled = client.cancel(1, &task_of(&recovered).id).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
    assert_eq!(
        state_of(&rest(&mut stream).await.pop().unwrap().event),
        Some(TaskState::Canceled)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_of_a_dead_worker_is_canceled_when_its_lease_has_run_out() {
    let mut cluster = Cluster::setup().workers(1).start().await;
    let client = cluster.client();
    let (_stream, first) = Say::new("c-1", LONG).open(&client).await;
    cluster.until_begun("c-1").await;
    cluster.kill_worker(0);
    let task = client.cancel(1, &task_of(&first).id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Canceled);
}

/// What the worker writes at `script` waits in the network while the cancel comes.
async fn canceled_while_held_at(script: &str, text: &str) {
    let mut cluster = Cluster::setup().workers(0).start().await;
    let proxy = FaultProxy::start(cluster.redis.upstream());
    proxy.swallow_request(sha(&cluster.redis, script).as_bytes());
    cluster.start_worker_at(&proxy.url()).await;
    let client = cluster.client();
    let (mut stream, first) = Say::new("c-1", text).open(&client).await;
    poll::until("the worker to be held", || async {
        if proxy.swallowed() > 0 { Ok(()) } else { Err("not yet") }
    })
    .await;
    let task = task_of(&first).id;
    let canceling = tokio::spawn({
        let (client, task) = (client.clone(), task.clone());
        async move { client.cancel(1, &task).await }
    });
    until_asked(&cluster).await;
    // The worker sends it again on another connection, and learns that only one end is left.
    proxy.forget_needle();
    proxy.cut_all();
    assert_eq!(canceling.await.unwrap().unwrap().status.state, TaskState::Canceled);
    let last = rest(&mut stream).await.pop().unwrap();
    assert_eq!(state_of(&last.event), Some(TaskState::Canceled));
    assert_eq!(client.get(0, &task).await.unwrap().status.state, TaskState::Canceled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_canceled_between_its_lease_and_its_first_word() {
    canceled_while_held_at("emit", LONG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_canceled_although_its_answer_is_on_the_way() {
    canceled_while_held_at("finish", "chunks=2 nonce=q").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_of_one_turn_never_touches_the_next() {
    let cluster = Cluster::setup().workers(1).start().await;
    let client = cluster.client();
    let (ended, _) = Say::new("c-1", "chunks=1 nonce=a").checked(&client).await;
    let next = Say::new("c-1", "chunks=20 delay=50 nonce=b");
    let running = tokio::spawn({
        let client = client.clone();
        async move { next.checked(&client).await }
    });
    cluster.until_begun("c-1").await;
    for gateway in 0..2 {
        let refused = client.cancel(gateway, &ended.task).await.unwrap_err();
        assert!(matches!(refused, CallError::Rpc(error) if error.code == -32002));
    }
    assert_eq!(running.await.unwrap().0.state, TaskState::Completed);
}
