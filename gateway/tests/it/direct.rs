//! Answers without a task: one message and nothing else, on every binding, for agents that may give one.

use relevo_shared::domain::state::End;
use relevo_testkit::{FaultProxy, RedisServer, poll};
use serde_json::{Value, json};

use crate::binding::{ALL, Binding, Caller};
use crate::client::{message, message_in};
use crate::gateway::{Gateway, World, store, world_with};
use crate::hand::Hand;
use crate::old;

const FILE: &str = "[agents.a]\nkind = \"demo\"\ndirect = true\n";

/// Nothing that a client could ask for shows a task.
async fn nothing_is_left(world: &World, task: &str) {
    let client = world.gateway.client();
    assert_eq!(client.call("ListTasks", json!({})).await["totalSize"], 0);
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        assert_eq!(
            client.refused(method, json!({ "id": task })).await.1,
            "TASK_NOT_FOUND",
            "{method}"
        );
    }
}

fn check(answer: &Value) {
    let said = &answer["message"];
    assert_eq!(
        (&said["parts"][0]["text"], &said["role"]),
        (&json!("hello"), &json!("ROLE_AGENT")),
        "{answer}"
    );
    assert!(
        said["contextId"].is_string() && said["taskId"].is_null() && answer["task"].is_null(),
        "{answer}"
    );
}

#[tokio::test]
async fn an_answer_without_a_task_is_a_message_on_every_binding() {
    let world = world_with(FILE, &[]).await;
    for binding in ALL {
        let caller = Caller::new(binding, &world.gateway);
        let (answer, task) = tokio::join!(caller.result("SendMessage", message("hi")), async {
            let mut turn = world.hand.take().await;
            let task = turn.task();
            turn.begin().await;
            turn.answer("hello").await;
            task
        });
        check(&answer);
        nothing_is_left(&world, &task).await;

        let streamed = async {
            caller
                .open("SendStreamingMessage", message("hi"), None)
                .await
                .ok()
                .unwrap()
                .rest()
                .await
        };
        let (events, task) = tokio::join!(streamed, async {
            let turn = world.hand.take().await;
            let task = turn.task();
            turn.answer("hello").await;
            task
        });
        assert_eq!(events.len(), 1, "{binding:?} {events:?}");
        check(&events[0].0);
        nothing_is_left(&world, &task).await;
    }
}

#[tokio::test]
async fn an_agent_that_takes_its_time_has_a_task() {
    let world = world_with(FILE, &[]).await;
    let client = world.gateway.client();
    let (mut stream, turn) = tokio::join!(client.stream("SendStreamingMessage", message("hi")), world.hand.take());
    // It was shown, in the stream and in the listing, before the agent said anything.
    let first = stream.event().await.result();
    assert_eq!(first["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    assert_eq!(client.call("ListTasks", json!({})).await["totalSize"], 1);
    let id = turn.task();
    turn.answer("hello").await;
    let rest = stream.rest().await;
    let last = rest.last().unwrap();
    assert_eq!((last.state().as_str(), last.text().as_str()), ("COMPLETED", "hello"));
    assert_eq!(client.task(&id).await["status"]["message"]["parts"][0]["text"], "hello");
}

#[tokio::test]
async fn whoever_does_not_wait_has_a_task() {
    let world = world_with(FILE, &[]).await;
    let client = world.gateway.client();
    let mut params = message("hi");
    params["configuration"] = json!({ "returnImmediately": true });
    let id = client.call("SendMessage", params).await["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    world.hand.take().await.answer("hello").await;
    assert_eq!(client.task(&id).await["status"]["state"], "TASK_STATE_COMPLETED");

    // And whoever waits for no longer than the server does.
    let world = world_with(FILE, &[("send.max_wait", "50ms")]).await;
    let client = world.gateway.client();
    let answer = client.call("SendMessage", message("hi")).await;
    let id = answer["task"]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        answer["task"]["metadata"]["urn:relevo:a2a:turn:v1"]["stillRunning"],
        true
    );
    world.hand.take().await.answer("hello").await;
    assert_eq!(client.task(&id).await["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_client_that_comes_back_with_the_messages_position_hears_nothing_more() {
    let world = world_with(FILE, &[]).await;
    let client = world.gateway.client();
    let streamed = async {
        let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
        stream.rest().await
    };
    let (events, ()) = tokio::join!(streamed, async { world.hand.take().await.answer("hello").await });
    let cursor = events[0].cursor();
    let mut again = client.resume("SendStreamingMessage", message("hi"), &cursor).await;
    assert!(again.ended().await);
    assert!(world.hand.try_take().await.is_none());
    // Of the task it is no position: there is none.
    let task = cursor.split('.').next().unwrap();
    let subscribing = client
        .request("SubscribeToTask", &json!({ "id": task }))
        .header("last-event-id", &cursor);
    let refused: Value = subscribing.send().await.unwrap().json().await.unwrap();
    assert_eq!(refused["error"]["data"][0]["reason"], "TASK_NOT_FOUND", "{refused}");
}

#[tokio::test]
async fn a_task_whose_client_went_away_can_be_found() {
    let world = world_with(FILE, &[]).await;
    let client = world.gateway.client();
    let params = message("hi");
    let _turn = tokio::select! {
        answer = client.request("SendMessage", &params).send() => panic!("{answer:?}"),
        turn = world.hand.take() => turn,
    };
    poll::until("the task to be listed", async || {
        match client.call("ListTasks", json!({})).await["totalSize"].as_u64() {
            Some(1) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn a_task_whose_client_went_away_before_it_was_known_to_be_taken_can_be_found() {
    for method in ["SendMessage", "SendStreamingMessage"] {
        let redis = RedisServer::start();
        let proxy = FaultProxy::start(redis.upstream());
        let gateway = Gateway::start_with(&proxy.url(), FILE, &[]).await;
        let other = Gateway::start_with(&redis.url(), FILE, &[]).await;
        let hand = Hand::new(store(&redis).await);
        // Redis knows the scripts.
        let first = gateway.client();
        tokio::join!(first.call("SendMessage", message("first")), async {
            hand.take().await.answer("hello").await;
        });
        // The turn is stored, and the gateway does not hear of it as long as its client is there.
        proxy.swallow_reply_to(b"a text that only this message has");
        let params = message("a text that only this message has");
        let turn = tokio::select! {
            answer = gateway.client().request(method, &params).send() => panic!("{answer:?}"),
            turn = hand.take() => turn,
        };
        let id = turn.task();
        turn.answer("hello").await;
        poll::until("the task to be listed", async || {
            let listed = other.client().call("ListTasks", json!({})).await;
            match listed["tasks"][0]["id"].as_str() {
                Some(found) if found == id => Ok(()),
                _ => Err(listed),
            }
        })
        .await;
        let task = other.client().task(&id).await;
        assert_eq!(task["status"]["message"]["parts"][0]["text"], "hello", "{task}");
    }
}

#[tokio::test]
async fn any_other_end_is_a_tasks() {
    let world = world_with(FILE, &[]).await;
    let client = world.gateway.client();
    for (end, state) in [
        (End::Completed, "COMPLETED"),
        (End::InputRequired, "INPUT_REQUIRED"),
        (End::Failed, "FAILED"),
    ] {
        let sent = client.call("SendMessage", message_in("c-1", "hi"));
        let (answer, ()) = tokio::join!(sent, async { world.hand.take().await.finish(end, "done").await });
        assert_eq!(answer["task"]["status"]["state"], format!("TASK_STATE_{state}"));
        let id = answer["task"]["id"].as_str().unwrap();
        assert_eq!(client.task(id).await["id"], id);
        let (mut stream, ()) = tokio::join!(client.stream("SendStreamingMessage", message_in("c-1", "hi")), async {
            world.hand.take().await.finish(end, "done").await;
        });
        let events = stream.rest().await;
        assert!(events[0].result()["task"].is_object());
        assert_eq!(events.last().unwrap().state(), state);
    }
    assert_eq!(client.call("ListTasks", json!({})).await["totalSize"], 6);
}

#[tokio::test]
async fn a_repeat_with_its_key_is_answered_by_the_same_message() {
    let world = world_with(FILE, &[]).await;
    let client = world.gateway.client();
    let key = "sixteen-letters-long";
    let params = message("hi");
    let (answer, ()) = tokio::join!(client.keyed(key, &params), async {
        world.hand.take().await.answer("hello").await;
    });
    let answer = answer.unwrap();
    check(&answer);
    assert_eq!(client.keyed(key, &params).await.unwrap(), answer);
    let again = client
        .request("SendStreamingMessage", &params)
        .header("idempotency-key", key);
    let mut again = crate::client::Stream::of(again.send().await.unwrap());
    let events = again.rest().await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].result(), answer);
    assert!(world.hand.try_take().await.is_none());
}

#[tokio::test]
async fn clients_of_0_3_get_their_message_on_both_bindings() {
    let world = world_with(FILE, &[]).await;
    for binding in old::BOTH {
        let caller = old::Caller::new(binding, world.gateway.client());
        let (said, ()) = tokio::join!(caller.call("message/send", old::message("hi")), async {
            world.hand.take().await.answer("hello").await;
        });
        let streamed = async {
            caller
                .open("message/stream", &old::message("hi"), None)
                .await
                .rest()
                .await
        };
        let (events, ()) = tokio::join!(streamed, async {
            world.hand.take().await.answer("hello").await;
        });
        assert_eq!(events.len(), 1, "{binding:?}");
        for said in [said.unwrap(), caller.event(&events[0])] {
            assert_eq!(
                (&said["kind"], &said["role"], &said["parts"][0]["text"]),
                (&json!("message"), &json!("agent"), &json!("hello")),
                "{binding:?} {said}"
            );
        }
    }
}

#[tokio::test]
async fn an_agent_that_may_not_has_a_task() {
    let world = world_with("", &[]).await;
    let caller = Caller::new(Binding::JsonRpc, &world.gateway);
    let (answer, ()) = tokio::join!(caller.result("SendMessage", message("hi")), async {
        world.hand.take().await.answer("hello").await;
    });
    assert_eq!(answer["task"]["status"]["message"]["parts"][0]["text"], "hello");
}
