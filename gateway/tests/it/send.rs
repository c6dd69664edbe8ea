//! SendMessage.

use relevo_shared::domain::state::End;
use serde_json::json;

use crate::client::{message, message_in, message_to};
use crate::gateway::{client_keys, world};

#[tokio::test]
async fn a_blocking_call_is_answered_when_its_turn_has_ended() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let (answer, ()) = tokio::join!(client.call("SendMessage", message("hi")), async {
        let mut turn = world.hand.take().await;
        assert_eq!(turn.asked(), "hi");
        turn.say("one ").await;
        turn.finish(End::Completed, "two").await;
    });
    let task = &answer["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "one two");
    assert_eq!(task["history"][0]["parts"][0]["text"], "hi");
    assert_eq!(task["history"][0]["contextId"], task["contextId"]);
    assert_eq!(client.task(task["id"].as_str().unwrap()).await, *task);
}

#[tokio::test]
async fn a_short_answer_of_a_new_task_is_what_was_heard_and_a_long_one_is_read() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let reads = async || {
        world
            .gateway
            .metric("relevo_store_script_seconds_count{outcome=\"task\",script=\"read_task\"}")
            .await
    };
    // What is heard of a batch of more than 16 KiB is only that it is there; of several, 32 KiB are kept.
    for (pieces, size, is_read) in [(3, 10, false), (1, 20 << 10, true), (5, 10 << 10, true)] {
        let before = reads().await;
        let (answer, ()) = tokio::join!(client.call("SendMessage", message("hi")), async {
            let mut turn = world.hand.take().await;
            for _ in 0..pieces {
                turn.say(&"x".repeat(size)).await;
            }
            turn.finish(End::Completed, "end").await;
        });
        assert_eq!(reads().await > before, is_read, "{pieces} pieces of {size} bytes");
        let task = &answer["task"];
        let text = task["status"]["message"]["parts"][0]["text"].as_str().unwrap();
        assert_eq!(text.len(), pieces * size + 3);
        assert_eq!(client.task(task["id"].as_str().unwrap()).await, *task);
    }
}

#[tokio::test]
async fn an_answer_that_was_heard_has_no_more_history_than_was_asked_for() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    for (length, messages) in [(0, None), (1, Some(1)), (9, Some(2))] {
        let mut params = message("hi");
        params["configuration"] = json!({ "historyLength": length });
        let (answer, ()) = tokio::join!(client.call("SendMessage", params), async {
            let mut turn = world.hand.take().await;
            turn.say_apart("one").await;
            turn.finish(End::Completed, "two").await;
        });
        let task = &answer["task"];
        assert_eq!(task["history"].as_array().map(Vec::len), messages, "{task}");
        assert_eq!(task["status"]["message"]["parts"][0]["text"], "two");
    }
}

#[tokio::test]
async fn an_answer_that_began_anew_is_heard_without_what_is_void() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let (answer, ()) = tokio::join!(client.call("SendMessage", message("hi")), async {
        let mut turn = world.hand.take().await;
        turn.say("void ").await;
        turn.begin_anew().await;
        turn.say("one ").await;
        turn.finish(End::Completed, "two").await;
    });
    let task = &answer["task"];
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "one two");
    assert_eq!(client.task(task["id"].as_str().unwrap()).await, *task);
}

#[tokio::test]
async fn an_immediate_call_is_answered_before_its_turn_runs() {
    let world = world(&[]).await;
    let mut params = message("hi");
    params["configuration"] = json!({ "returnImmediately": true, "historyLength": 0 });
    let answer = world.gateway.client().call("SendMessage", params).await;
    assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    assert_eq!(answer["task"]["history"], json!(null));
    world.hand.take().await.finish(End::Completed, "").await;
}

#[tokio::test]
async fn a_follow_up_is_never_answered_with_the_old_answer() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let (first, ()) = tokio::join!(client.call("SendMessage", message("first")), async {
        world.hand.take().await.finish(End::InputRequired, "what else?").await;
    });
    let task = first["task"]["id"].as_str().unwrap();
    for round in 0..20 {
        let asked = format!("more {round}");
        let (answer, ()) = tokio::join!(client.call("SendMessage", message_to(task, &asked)), async {
            let turn = world.hand.take().await;
            assert_eq!(turn.asked(), asked);
            turn.finish(End::InputRequired, &format!("answer {round}")).await;
        });
        let text = &answer["task"]["status"]["message"]["parts"][0]["text"];
        assert_eq!(text, &format!("answer {round}"), "{answer}");
        assert_eq!(answer["task"]["history"].as_array().unwrap().len(), 2 * (round + 1) + 1);
    }
}

#[tokio::test]
async fn a_turn_that_waits_for_credentials_answers_the_call_and_goes_on() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut turn = None;
    let (answer, ()) = tokio::join!(client.call("SendMessage", message("hi")), async {
        let taken = turn.insert(world.hand.take().await);
        taken.ask_for_credentials().await;
    });
    assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_AUTH_REQUIRED");
    let id = answer["task"]["id"].as_str().unwrap();
    assert_eq!(client.refused("SendMessage", message_to(id, "x")).await.0, -32004);
    turn.unwrap().finish(End::Completed, "done").await;
    assert_eq!(client.task(id).await["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_call_that_waits_too_long_is_answered_with_the_running_task() {
    let world = world(&[("send.max_wait", "50ms")]).await;
    let client = world.gateway.client();
    let answer = client.call("SendMessage", message("hi")).await;
    assert_eq!(
        answer["task"]["metadata"]["urn:relevo:a2a:turn:v1"]["stillRunning"],
        true
    );
    world.hand.take().await.finish(End::Completed, "").await;
    let task = client.task(answer["task"]["id"].as_str().unwrap()).await;
    assert_eq!(task["metadata"], json!(null));
}

#[tokio::test]
async fn a_message_for_a_busy_context_becomes_a_failed_task() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut params = message_in("ctx-1", "long");
    params["configuration"] = json!({ "returnImmediately": true });
    let first = client.call("SendMessage", params).await;
    let second = client.call("SendMessage", message_in("ctx-1", "short")).await;
    let task = &second["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
    assert_eq!(
        task["status"]["message"]["parts"][0]["text"],
        "Task is already working."
    );
    assert_eq!(task["metadata"]["urn:relevo:a2a:turn:v1"]["reason"], "context_busy");
    assert_ne!(task["id"], first["task"]["id"]);
    assert_eq!(client.task(task["id"].as_str().unwrap()).await, *task);
    let mut stream = client
        .stream("SendStreamingMessage", message_in("ctx-1", "streamed"))
        .await;
    let frames = stream.rest().await;
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].state(), "FAILED");
    world.hand.take().await.finish(End::Completed, "").await;
    assert!(
        world.hand.try_take().await.is_none(),
        "nothing but the first was queued"
    );
}

#[tokio::test]
async fn a_message_for_a_task_is_judged_by_its_state() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut params = message_in("ctx-1", "hi");
    params["configuration"] = json!({ "returnImmediately": true });
    let task = client.call("SendMessage", params).await["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let working = client.answer("SendMessage", message_to(&task, "x")).await;
    assert_eq!(working["error"]["code"], -32004);
    assert_eq!(working["error"]["message"], "Task is already working.");
    world.hand.take().await.finish(End::InputRequired, "?").await;
    let mut elsewhere = message_to(&task, "x");
    elsewhere["message"]["contextId"] = "ctx-2".into();
    let mismatch = client.answer("SendMessage", elsewhere).await;
    assert_eq!(mismatch["error"]["code"], -32602);
    assert_eq!(
        mismatch["error"]["data"][1]["fieldViolations"][0]["field"],
        "message.contextId"
    );
    let (answer, ()) = tokio::join!(client.call("SendMessage", message_to(&task, "end")), async {
        world.hand.take().await.finish(End::Completed, "").await;
    });
    assert_eq!(answer["task"]["contextId"], "ctx-1", "the context is that of the task");
    assert_eq!(client.refused("SendMessage", message_to(&task, "x")).await.0, -32004);
}

#[tokio::test]
async fn what_another_tenant_owns_is_not_found() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut params = message("hi");
    params["tenant"] = "a".into();
    params["configuration"] = json!({ "returnImmediately": true });
    let task = client.call("SendMessage", params).await["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        client.call("GetTask", json!({ "id": task, "tenant": "a" })).await["id"],
        *task
    );
    let unknown = "00000000-0000-7000-8000-000000000000";
    for tenant in ["", "b"] {
        for id in [&task, unknown] {
            let named = json!({ "id": id, "tenant": tenant });
            let mut sent = message_to(id, "x");
            sent["tenant"] = tenant.into();
            for (method, params) in [
                ("GetTask", named.clone()),
                ("CancelTask", named.clone()),
                ("SubscribeToTask", named),
                ("SendMessage", sent.clone()),
                ("SendStreamingMessage", sent),
            ] {
                let refused = client.refused(method, params).await;
                assert_eq!(refused, (-32001, "TASK_NOT_FOUND".to_owned()), "{method} {tenant} {id}");
            }
        }
    }
    world.hand.take().await.finish(End::Completed, "").await;
}

#[tokio::test]
async fn history_is_cut_to_the_length_asked_for() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let (first, ()) = tokio::join!(client.call("SendMessage", message("one")), async {
        world.hand.take().await.finish(End::InputRequired, "two").await;
    });
    let id = first["task"]["id"].as_str().unwrap();
    let mut params = message_to(id, "three");
    params["configuration"] = json!({ "historyLength": 2 });
    let (answer, ()) = tokio::join!(client.call("SendMessage", params), async {
        world.hand.take().await.finish(End::Completed, "four").await;
    });
    let texts = |task: &serde_json::Value| -> Vec<String> {
        let messages = task["history"].as_array().cloned().unwrap_or_default();
        messages
            .iter()
            .map(|m| m["parts"][0]["text"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(texts(&answer["task"]), ["two", "three"]);
    assert_eq!(texts(&client.task(id).await), ["one", "two", "three"]);
    let none = client.call("GetTask", json!({ "id": id, "historyLength": 0 })).await;
    assert_eq!(none["history"], json!(null));
}

#[tokio::test]
async fn a_full_backlog_refuses_new_work_and_says_when_to_come_back() {
    let world = world(&[("limits.backlog", "1")]).await;
    let client = world.gateway.client();
    let mut params = message("hi");
    params["configuration"] = json!({ "returnImmediately": true });
    client.call("SendMessage", params.clone()).await;
    let refused = relevo_testkit::poll::until("the limit to hold", async || {
        let response = client.request("SendMessage", &params).send().await.unwrap();
        if response.status() == 503 {
            Ok(response)
        } else {
            Err(response.status())
        }
    })
    .await;
    let seconds: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
    let body: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(body["error"]["code"], -32603);
    assert_eq!(body["error"]["data"][0]["reason"], "UNAVAILABLE");
    assert_eq!(body["error"]["data"][0]["domain"], "relevo");
}

#[tokio::test]
async fn push_is_refused_before_anything_is_stored() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut params = message("hi");
    params["configuration"] = json!({ "taskPushNotificationConfig": { "url": "https://h" } });
    assert_eq!(client.refused("SendMessage", params).await.0, -32003);
    for method in ["Create", "Get", "Delete"] {
        let method = format!("{method}TaskPushNotificationConfig");
        assert_eq!(client.refused(&method, json!({ "taskId": "x" })).await.0, -32003);
    }
    let listed = client.refused("ListTaskPushNotificationConfigs", json!({})).await;
    assert_eq!(listed, (-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED".to_owned()));
    assert_eq!(client.refused("GetExtendedAgentCard", json!(null)).await.0, -32004);
    assert_eq!(client_keys(&world.redis), Vec::<String>::new());
}
