//! Streams that break and go on elsewhere: each event once, whenever they come back.

use relevo_loadtest::client::CallError;
use serde_json::json;
use tokio::task::JoinSet;

use crate::fixture::Cluster;
use crate::wire::{Say, ids, rest, task_of};

/// The ids of a task's journal as clients see them.
fn cursors(cluster: &Cluster, task: &str) -> Vec<String> {
    cluster
        .journal(task)
        .iter()
        .map(|entry| format!("{task}.{}", entry.id))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_a_killed_gateway_go_on_at_the_other_with_each_event_once() {
    let mut cluster = Cluster::setup().start().await;
    let client = cluster.client();
    let mut turns = JoinSet::new();
    for turn in 0..8 {
        let say = Say::new(&format!("c-{turn}"), &format!("chunks=40 delay=50 nonce=n.{turn}"));
        let client = client.clone();
        turns.spawn(async move { say.checked(&client).await });
    }
    for turn in 0..8 {
        cluster.until_said(&format!("c-{turn}"), 5).await;
    }
    cluster.kill_gateway(0);
    for (done, _) in turns.join_all().await {
        assert_eq!((done.resumes, done.boundaries), (1, 0));
    }
    assert!(cluster.metric("relevo_gateway_stream_resumes_total").await >= 8.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_after_its_turn_has_ended_and_from_every_place() {
    let mut cluster = Cluster::setup().workers(1).start().await;
    let client = cluster.client();
    let say = Say::new("c-1", "chunks=10 delay=50 nonce=q");
    let (mut stream, first) = say.open(&client).await;
    let task = task_of(&first).id;
    let mut heard = vec![first];
    while heard.len() < 4 {
        heard.push(stream.next().await.unwrap().unwrap());
    }
    cluster.kill_gateway(0);
    cluster.until_over("c-1").await;
    drop(stream);

    let all = cursors(&cluster, &task);
    let other = cluster.client();
    let last = ids(&heard).pop();
    heard.extend(rest(&mut other.subscribe(0, &task, last.as_deref()).await.unwrap()).await);
    assert_eq!(ids(&heard), all);
    for (place, cursor) in all.iter().enumerate() {
        let resumed = rest(&mut other.subscribe(0, &task, Some(cursor)).await.unwrap()).await;
        assert_eq!(resumed, heard[place + 1..], "after {cursor}");
    }
    // Without a place there is nothing to subscribe to any more.
    let refused = other.subscribe(0, &task, None).await.unwrap_err();
    assert!(matches!(refused, CallError::Rpc(error) if error.code == -32004));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_sent_again_with_its_place_resumes_and_starts_nothing() {
    let cluster = Cluster::setup().workers(1).start().await;
    let client = cluster.client();
    let say = Say::new("c-1", "chunks=10 delay=20 nonce=q");
    let (mut stream, first) = say.open(&client).await;
    let task = task_of(&first).id;
    let mut heard = vec![first, stream.next().await.unwrap().unwrap()];
    drop(stream);

    let params = json!({ "message": { "messageId": "m-again", "contextId": "c-1", "role": "ROLE_USER",
        "parts": [{ "text": say.text }] } });
    let last = ids(&heard).pop().unwrap();
    let headers = [("last-event-id", last.as_str())];
    let mut again = client.open(1, "SendStreamingMessage", &params, &headers).await.unwrap();
    heard.extend(rest(&mut again).await);
    assert_eq!(ids(&heard), cursors(&cluster, &task));
    let listed: serde_json::Value = client
        .call(0, "ListTasks", &json!({ "contextId": "c-1" }))
        .await
        .unwrap();
    assert_eq!(listed["totalSize"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_readers_of_one_turn_hear_the_same() {
    let cluster = Cluster::setup().workers(1).start().await;
    let client = cluster.client();
    let (mut one, first) = Say::new("c-1", "chunks=20 delay=30 nonce=q").open(&client).await;
    let task = task_of(&first).id;
    let mut two = client.subscribe(1, &task, None).await.unwrap();
    let snapshot = two.next().await.unwrap().unwrap();
    let (heard, also) = tokio::join!(rest(&mut one), rest(&mut two));
    let from = snapshot.id.unwrap();
    let place = ids(&heard)
        .iter()
        .position(|id| *id == from)
        .map_or(0, |place| place + 1);
    assert_eq!(also, heard[place..]);
    assert_eq!(ids(&heard), cursors(&cluster, &task)[1..]);
}
