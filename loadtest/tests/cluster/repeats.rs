//! Messages that follow at once, and messages that are sent twice.

use std::collections::HashSet;

use a2a::TaskState;
use relevo_loadtest::client::Outgoing;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::fixture::Cluster;
use crate::wire::{Say, message_id, rest, state_of, task_of};

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_sent_the_instant_input_is_required_is_never_busy() {
    const CONVERSATIONS: usize = 20;
    const TURNS: usize = 50;
    let cluster = Cluster::setup().start().await;
    let client = cluster.client();
    let mut conversations = JoinSet::new();
    for conversation in 0..CONVERSATIONS {
        let client = client.clone();
        conversations.spawn(async move {
            let mut say = Say::new(&format!("c-{conversation}"), "");
            let mut open = Vec::new();
            for turn in 0..TURNS {
                say.text = format!("chunks=1 end=input-required nonce=n.{conversation}.{turn}");
                say.at = turn;
                let (mut stream, first) = say.open(&client).await;
                say.task = Some(task_of(&first).id);
                loop {
                    let event = stream.next().await.unwrap().unwrap();
                    match state_of(&event.event) {
                        // At once: while this stream is still being closed.
                        Some(TaskState::InputRequired) => break,
                        Some(TaskState::Submitted | TaskState::Working) | None => {}
                        Some(other) => panic!("{other:?}: {event:?}"),
                    }
                }
                open.push(stream);
            }
            for mut stream in open {
                assert_eq!(rest(&mut stream).await, []);
            }
        });
    }
    conversations.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_keyed_messages_sent_to_two_gateways_at_once_are_a_thousand_turns() {
    const KEYS: usize = 1_000;
    const AT_ONCE: usize = 50;
    let cluster = Cluster::setup().start().await;
    let client = cluster.client();
    let mut senders = JoinSet::new();
    for sender in 0..AT_ONCE {
        let client = client.clone();
        senders.spawn(async move {
            let mut tasks = Vec::new();
            for number in (sender..KEYS).step_by(AT_ONCE) {
                // No context: each gateway would choose its own.
                let params = json!({ "message": { "messageId": message_id(), "role": "ROLE_USER",
                    "parts": [{ "text": format!("chunks=1 nonce=n.{number}") }] } });
                let key = format!("a-key-of-some-length-{number}");
                let headers = [("idempotency-key", key.as_str())];
                let send = |at| client.call_with::<Value>(at, "SendMessage", &params, &headers);
                let (one, two) = tokio::join!(send(0), send(1));
                let (one, two) = (one.unwrap(), two.unwrap());
                assert_eq!(one["task"]["id"], two["task"]["id"]);
                assert_eq!(one["task"]["status"]["state"], "TASK_STATE_COMPLETED");
                tasks.push(one["task"]["id"].as_str().unwrap().to_owned());
            }
            tasks
        });
    }
    let tasks: HashSet<String> = senders.join_all().await.into_iter().flatten().collect();
    assert_eq!(tasks.len(), KEYS);
    let listed: Value = client.call(0, "ListTasks", &json!({ "pageSize": 1 })).await.unwrap();
    assert_eq!(listed["totalSize"], KEYS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_into_a_busy_context_is_refused_and_disturbs_nothing() {
    let cluster = Cluster::setup().workers(1).start().await;
    let client = cluster.client();
    let say = Say::new("c-1", "chunks=20 delay=50 nonce=a");
    let running = tokio::spawn({
        let (say, client) = (say.clone(), client.clone());
        async move { say.checked(&client).await }
    });
    cluster.until_begun("c-1").await;
    let id = message_id();
    let message = Outgoing {
        message_id: &id,
        context: "c-1",
        task: None,
        text: "chunks=1 nonce=b",
    };
    let refused = client.send(1, &message).await.unwrap();
    assert_eq!(refused.status.state, TaskState::Failed);
    assert_eq!(running.await.unwrap().0.state, TaskState::Completed);
}
