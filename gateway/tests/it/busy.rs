//! New tasks for a context whose turn is live, by the policies `queue` and `interrupt`. `reject` is in `send.rs`.

use relevo_shared::domain::state::End;
use relevo_shared::store::EmitReply;
use relevo_testkit::{FaultProxy, RedisServer, poll};
use serde_json::{Value, json};

use crate::cancel::told;
use crate::client::{Client, Stream, message_in, message_to};
use crate::gateway::{Gateway, World, store};
use crate::hand::{Hand, Turn};

const FACTS: &str = "urn:relevo:a2a:turn:v1";

async fn gateway(redis: &str, policy: &str, settings: &[(&str, &str)]) -> Gateway {
    let agents = format!("[agents.demo]\nkind = \"demo\"\nbusy = \"{policy}\"\n");
    Gateway::start_with(redis, &agents, settings).await
}

async fn world(policy: &str) -> World {
    let redis = RedisServer::start();
    let gateway = gateway(&redis.url(), policy, &[]).await;
    let hand = Hand::new(store(&redis).await);
    World { redis, gateway, hand }
}

fn immediate(text: &str) -> Value {
    let mut params = message_in("c", text);
    params["configuration"] = json!({ "returnImmediately": true });
    params
}

/// Sends a message to the context and returns the task at once.
async fn send(client: &Client, text: &str) -> Value {
    client.call("SendMessage", immediate(text)).await["task"].take()
}

fn id(task: &Value) -> String {
    task["id"].as_str().unwrap().to_owned()
}

async fn state(client: &Client, task: &Value) -> String {
    let state = client.task(&id(task)).await["status"]["state"].take();
    state.as_str().unwrap().trim_start_matches("TASK_STATE_").to_owned()
}

#[tokio::test]
async fn queued_messages_run_one_after_the_other_in_the_order_in_which_they_were_accepted() {
    let world = world("queue").await;
    let client = world.gateway.client();
    let first = send(&client, "0").await;
    assert_eq!(first["metadata"], json!(null), "it does not wait");
    for n in 1..=5 {
        let task = send(&client, &n.to_string()).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_SUBMITTED");
        assert_eq!(task["metadata"][FACTS]["queuePosition"], n);
        assert_eq!(client.task(&id(&task)).await["metadata"], json!(null));
    }
    for n in 0..=5 {
        let turn = world.hand.take().await;
        assert_eq!(turn.asked(), n.to_string());
        assert!(world.hand.try_take().await.is_none(), "one at a time");
        turn.finish(End::Completed, &format!("answer {n}")).await;
    }
    let listed = client.call("ListTasks", json!({ "contextId": "c" })).await;
    let states = listed["tasks"].as_array().unwrap().iter();
    assert!(
        states
            .clone()
            .all(|task| task["status"]["state"] == "TASK_STATE_COMPLETED")
    );
    assert_eq!(states.len(), 6);
}

#[tokio::test]
async fn calls_and_streams_of_a_waiting_turn_go_on_to_its_end() {
    let world = world("queue").await;
    let client = world.gateway.client();
    send(&client, "first").await;
    let live = world.hand.take().await;
    let mut stream = client.stream("SendStreamingMessage", message_in("c", "streamed")).await;
    let opening = stream.event().await;
    let task = opening.result()["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_SUBMITTED");
    let mut late = client.stream("SubscribeToTask", json!({ "id": task["id"] })).await;
    late.event().await;
    let (answer, ()) = tokio::join!(client.call("SendMessage", message_in("c", "blocking")), async {
        // Sent when it waits behind the stream's.
        poll::until("two turns to wait", async || {
            let overview = world.hand.store.overview(&["default".to_owned()]).await.unwrap();
            if overview.behind == 2 {
                Ok(())
            } else {
                Err(overview.behind)
            }
        })
        .await;
        live.finish(End::Completed, "one").await;
        for asked in ["streamed", "blocking"] {
            let mut turn = world.hand.take().await;
            assert_eq!(turn.asked(), asked);
            turn.say("two ").await;
            turn.finish(End::Completed, "three").await;
        }
    });
    assert_eq!(answer["task"]["status"]["message"]["parts"][0]["text"], "two three");
    for stream in [&mut stream, &mut late] {
        let states: Vec<_> = stream.rest().await.iter().map(crate::client::Frame::state).collect();
        assert_eq!(states, ["WORKING", "WORKING", "COMPLETED"]);
    }
}

#[tokio::test]
async fn sixteen_messages_wait_and_the_next_is_refused() {
    let world = world("queue").await;
    let client = world.gateway.client();
    for n in 0..=16 {
        assert_eq!(state(&client, &send(&client, &n.to_string()).await).await, "SUBMITTED");
    }
    let refused = send(&client, "17").await;
    assert_eq!(refused["status"]["state"], "TASK_STATE_FAILED");
    assert_eq!(refused["metadata"][FACTS]["reason"], "context_busy");
    world.hand.take().await.finish(End::Completed, "").await;
    assert_eq!(state(&client, &send(&client, "18").await).await, "SUBMITTED");
}

#[tokio::test]
async fn a_waiting_task_is_canceled_at_once_and_the_others_go_on() {
    let world = world("queue").await;
    let client = world.gateway.client();
    send(&client, "live").await;
    let live = world.hand.take().await;
    let gone = send(&client, "gone").await;
    send(&client, "next").await;
    let mut stream = client.stream("SubscribeToTask", json!({ "id": gone["id"] })).await;
    stream.event().await;
    let answer = client.call("CancelTask", json!({ "id": gone["id"] })).await;
    assert_eq!(answer["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(answer["history"][0]["parts"][0]["text"], "gone");
    assert_eq!(stream.rest().await.last().unwrap().state(), "CANCELED");
    let again = client.refused("CancelTask", json!({ "id": gone["id"] })).await;
    assert_eq!(again, (-32002, "TASK_NOT_CANCELABLE".to_owned()));
    live.finish(End::Completed, "").await;
    let turn = world.hand.take().await;
    assert_eq!(turn.asked(), "next");
    turn.finish(End::Completed, "").await;
    assert!(world.hand.try_take().await.is_none());
}

#[tokio::test]
async fn a_message_for_a_task_that_has_a_turn_is_refused_under_every_policy() {
    for policy in ["reject", "queue", "interrupt"] {
        let world = world(policy).await;
        let client = world.gateway.client();
        let live = send(&client, "live").await;
        let turn = world.hand.take().await;
        let mut tasks = vec![live];
        if policy == "queue" {
            tasks.push(send(&client, "waits").await);
        }
        for task in &tasks {
            let answer = client.answer("SendMessage", message_to(&id(task), "x")).await;
            assert_eq!(answer["error"]["code"], -32004, "{policy}");
            assert_eq!(answer["error"]["message"], "Task is already working.");
            assert_eq!(client.task(&id(task)).await["history"].as_array().unwrap().len(), 1);
        }
        // One that waits for its user is no new task: it is refused while its context runs another.
        turn.finish(End::InputRequired, "?").await;
        if policy == "queue" {
            let answer = client.answer("SendMessage", message_to(&id(&tasks[0]), "x")).await;
            assert_eq!(answer["error"]["code"], -32004);
        }
    }
}

#[tokio::test]
async fn a_repeat_attaches_to_a_turn_that_waits() {
    let world = world("queue").await;
    let other = gateway(&world.redis.url(), "queue", &[]).await;
    let clients = [world.gateway.client(), other.client()];
    send(&clients[0], "live").await;
    let key = "a-key-of-some-length";
    let mut streams = Vec::new();
    for client in &clients {
        let request = client.request("SendStreamingMessage", &message_in("c", "once"));
        let mut stream = Stream::of(request.header("idempotency-key", key).send().await.unwrap());
        let opening = stream.event().await;
        streams.push((stream, opening));
    }
    assert_eq!(streams[0].1, streams[1].1);
    world.hand.take().await.finish(End::Completed, "").await;
    let turn = world.hand.take().await;
    assert_eq!(turn.asked(), "once");
    turn.finish(End::Completed, "done").await;
    let ends = [streams[0].0.rest().await, streams[1].0.rest().await];
    assert_eq!(ends[0], ends[1]);
    assert!(world.hand.try_take().await.is_none());
    let request = clients[1].request("SendStreamingMessage", &message_in("c", "once"));
    let mut late = Stream::of(request.header("idempotency-key", key).send().await.unwrap());
    assert_eq!(late.rest().await.last(), ends[0].last());
}

/// Ends a turn as a worker does that was told to stop.
async fn obey(mut turn: Turn, hand: &Hand) {
    told(&turn, &hand.store).await;
    assert_eq!(turn.try_finish(End::Completed, "late").await, EmitReply::Canceled);
    Turn::again(turn).finish(End::Canceled, "").await;
}

#[tokio::test]
async fn what_interrupts_runs_when_the_live_turn_has_stopped_and_nothing_else_is_left() {
    let world = world("interrupt").await;
    let client = world.gateway.client();
    let live = send(&client, "live").await;
    let mut turn = world.hand.take().await;
    turn.begin().await;
    let mut before = client.stream("SubscribeToTask", json!({ "id": live["id"] })).await;
    before.event().await;
    let second = send(&client, "second").await;
    assert_eq!(second["metadata"][FACTS]["queuePosition"], 1);
    let third = send(&client, "third").await;
    assert_eq!(third["metadata"][FACTS]["queuePosition"], 1);
    // CANCELED means stopped: what waited has ended, what runs has not yet.
    assert_eq!(state(&client, &second).await, "CANCELED");
    assert_eq!(state(&client, &live).await, "WORKING");
    assert!(world.hand.try_take().await.is_none());
    obey(turn, &world.hand).await;
    assert_eq!(before.rest().await.last().unwrap().state(), "CANCELED");
    let turn = world.hand.take().await;
    assert_eq!(turn.asked(), "third");
    turn.finish(End::Completed, "").await;
    assert_eq!(state(&client, &third).await, "COMPLETED");
    assert!(world.hand.try_take().await.is_none());
}

#[tokio::test]
async fn a_turn_that_nobody_holds_is_interrupted_at_once() {
    let world = world("interrupt").await;
    let client = world.gateway.client();
    let live = send(&client, "live").await;
    let (answer, ()) = tokio::join!(client.call("SendMessage", message_in("c", "instead")), async {
        let turn = world.hand.take().await;
        if turn.asked() == "live" {
            // Taken before the gateway could end it: the worker is told with the lease.
            obey(turn, &world.hand).await;
        } else {
            turn.finish(End::Completed, "mine").await;
            return;
        }
        world.hand.take().await.finish(End::Completed, "mine").await;
    });
    assert_eq!(answer["task"]["status"]["message"]["parts"][0]["text"], "mine");
    assert_eq!(state(&client, &live).await, "CANCELED");
}

#[tokio::test]
async fn many_that_interrupt_at_once_leave_one() {
    let world = world("interrupt").await;
    let other = gateway(&world.redis.url(), "interrupt", &[]).await;
    let clients = [world.gateway.client(), other.client()];
    send(&clients[0], "live").await;
    let turn = world.hand.take().await;
    let sends = (0..6).map(|n| {
        let client = &clients[n % 2];
        async move { send(client, &n.to_string()).await }
    });
    let tasks = futures_util::future::join_all(sends).await;
    obey(turn, &world.hand).await;
    world.hand.take().await.finish(End::Completed, "").await;
    assert!(world.hand.try_take().await.is_none());
    let mut completed = 0;
    for task in &tasks {
        match state(&clients[0], task).await.as_str() {
            "COMPLETED" => completed += 1,
            // One that found another context each time it looked was refused.
            "CANCELED" | "FAILED" => {}
            other => panic!("{other}"),
        }
    }
    assert_eq!(completed, 1);
}

#[tokio::test]
async fn an_interrupt_whose_reply_is_lost_is_one_all_the_same() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.upstream());
    let gateway = gateway(&proxy.url(), "interrupt", &[]).await;
    let hand = Hand::new(store(&redis).await);
    let client = gateway.client();
    let live = send(&client, "live").await;
    let turn = hand.take().await;
    // Its first submit is told that the context is busy, and that reply is lost as well.
    proxy.lose_reply_to(b"a text that only this message has", 3);
    let task = send(&client, "a text that only this message has").await;
    assert_eq!(proxy.lost_replies(), 3);
    obey(turn, &hand).await;
    hand.take().await.finish(End::Completed, "").await;
    assert!(hand.try_take().await.is_none());
    assert_eq!(state(&client, &live).await, "CANCELED");
    assert_eq!(state(&client, &task).await, "COMPLETED");
}

#[tokio::test]
async fn a_gateway_that_is_lost_in_the_middle_of_an_interrupt_leaves_nothing_behind() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.upstream());
    let lost = gateway(&proxy.url(), "interrupt", &[("gateway.request_timeout", "500ms")]).await;
    let other = gateway(&redis.url(), "interrupt", &[]).await;
    let hand = Hand::new(store(&redis).await);
    let client = other.client();
    let live = send(&client, "live").await;
    // The interrupting submit names the live turn: it is written, and the gateway never hears of it.
    let (context, partition) = {
        let scope = relevo_shared::ids::ScopeKey::of("", "");
        hand.store.place(&scope, "c")
    };
    let view = hand.store.read_context(partition, &context).await.unwrap();
    let turn = view.live.unwrap().record.turn;
    proxy.swallow_reply_to(turn.to_string().as_bytes());
    let unknown = lost.client().request("SendMessage", &immediate("instead")).send();
    let body: Value = unknown.await.unwrap().json().await.unwrap();
    let info = &body["error"]["data"][0];
    assert_eq!(info["metadata"]["outcome"], "unknown", "{body}");
    let task = json!({ "id": info["metadata"]["taskId"] });
    drop(lost);
    // Whoever holds nothing of it ends the live turn, and the new one runs.
    poll::until("the live turn to end", async || {
        match state(&client, &live).await.as_str() {
            "CANCELED" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
    let turn = hand.take().await;
    assert_eq!(turn.asked(), "instead");
    turn.finish(End::Completed, "").await;
    assert_eq!(state(&client, &task).await, "COMPLETED");
}
