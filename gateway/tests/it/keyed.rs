//! Keyed sends: once, cluster-wide.

use futures_util::future::join_all;
use relevo_shared::domain::state::End;
use serde_json::{Value, json};

use crate::binding::{ALL, Caller};
use crate::client::{Frame, Stream, message, message_in, message_to};
use crate::gateway::{Gateway, world};

fn at_once(text: &str) -> Value {
    let mut params = message(text);
    params["configuration"] = json!({ "returnImmediately": true });
    params
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_keyed_sends_from_two_gateways_at_once_are_a_thousand_turns() {
    let world = world(&[]).await;
    let other = Gateway::start(&world.redis, &[]).await;
    let clients = [world.gateway.client(), other.client()];
    let sends = (0..1_000).flat_map(|n| {
        clients.iter().map(move |client| async move {
            let answer = client
                .keyed(&format!("key-number-{n:06}"), &at_once(&format!("text {n}")))
                .await;
            (n, answer.unwrap()["task"]["id"].as_str().unwrap().to_owned())
        })
    });
    let mut tasks = vec![Vec::new(); 1_000];
    for (n, task) in join_all(sends).await {
        tasks[n].push(task);
    }
    assert!(tasks.iter().all(|both| both.len() == 2 && both[0] == both[1]));
    let listed = clients[1].call("ListTasks", json!({ "pageSize": 1 })).await;
    assert_eq!(listed["totalSize"], 1_000);
    let requests = world.gateway.metric("relevo_gateway_requests_total").await;
    assert!((requests - 1_000.0).abs() < 0.5, "{requests}");
}

#[tokio::test]
async fn a_repeat_attaches_to_the_turn_of_the_first_while_it_runs_and_after_its_end() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let key = "a-key-of-some-length";
    let request = || {
        client
            .request("SendStreamingMessage", &message("hi"))
            .header("idempotency-key", key)
    };
    let mut first = Stream::of(request().send().await.unwrap());
    let opening = first.event().await;
    let mut turn = world.hand.take().await;
    turn.say("one").await;
    let mut repeat = Stream::of(request().send().await.unwrap());
    turn.finish(End::Completed, "two").await;
    let whole: Vec<_> = [opening].into_iter().chain(first.rest().await).collect();
    assert_eq!(repeat.rest().await, whole);
    let mut late = Stream::of(request().send().await.unwrap());
    assert_eq!(late.rest().await, whole);
    assert!(world.hand.try_take().await.is_none());
    // The answer of a blocking repeat is the task; another request under the key is a conflict.
    let other = client.keyed(key, &message("other")).await.unwrap_err();
    assert_eq!(other["code"], -32602);
    assert_eq!(
        other["data"][1]["fieldViolations"][0]["field"], "Idempotency-Key",
        "{other}"
    );
}

#[tokio::test]
async fn a_keyed_follow_up_is_answered_again_after_its_task_has_ended() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let (first, ()) = tokio::join!(client.call("SendMessage", message("hi")), async {
        world.hand.take().await.finish(End::InputRequired, "more?").await;
    });
    let params = message_to(first["task"]["id"].as_str().unwrap(), "more");
    let key = "a-key-of-some-length";
    let (answer, ()) = tokio::join!(client.keyed(key, &params), async {
        world.hand.take().await.finish(End::Completed, "done").await;
    });
    let repeat = client.keyed(key, &params).await;
    assert_eq!(repeat, answer);
    assert_eq!(answer.unwrap()["task"]["status"]["message"]["parts"][0]["text"], "done");
    assert!(world.hand.try_take().await.is_none());
}

#[tokio::test]
async fn a_refused_send_may_be_sent_again_under_its_key_and_another_may_not() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let key = "a-key-of-some-length";
    let mut params = message_in("c-1", "first");
    params["configuration"] = json!({ "returnImmediately": true });
    client.call("SendMessage", params.clone()).await;
    params["message"]["parts"][0]["text"] = "second".into();
    let busy = client.keyed(key, &params).await.unwrap();
    assert_eq!(busy["task"]["status"]["state"], "TASK_STATE_FAILED");
    world.hand.take().await.finish(End::Completed, "").await;
    let accepted = client.keyed(key, &params).await.unwrap();
    assert_eq!(accepted["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    assert_ne!(accepted["task"]["id"], busy["task"]["id"]);
    assert_eq!(
        client.task(busy["task"]["id"].as_str().unwrap()).await["id"],
        busy["task"]["id"]
    );
    let other = client.keyed(key, &message_in("c-1", "third")).await.unwrap_err();
    assert_eq!(other["code"], -32602);
}

#[tokio::test]
async fn a_key_that_could_be_guessed_is_refused() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    for key in ["short", "", &"k".repeat(257)] {
        let error = client.keyed(key, &message("hi")).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{key}: {error}");
    }
}

#[tokio::test]
async fn a_keyed_stream_of_a_follow_up_begins_with_the_task_again() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let (first, ()) = tokio::join!(client.call("SendMessage", message("hi")), async {
        world.hand.take().await.finish(End::InputRequired, "more?").await;
    });
    let params = message_to(first["task"]["id"].as_str().unwrap(), "more");
    let send = || {
        client
            .request("SendStreamingMessage", &params)
            .header("idempotency-key", "a-key-of-some-length")
    };
    let mut stream = Stream::of(send().send().await.unwrap());
    assert_eq!(
        stream.event().await.result()["task"]["status"]["state"],
        "TASK_STATE_SUBMITTED"
    );
    let mut turn = world.hand.take().await;
    turn.say("one ").await;
    let mut repeat = Stream::of(send().send().await.unwrap());
    let opening = repeat.event().await;
    let shown = &opening.result()["task"];
    assert_eq!(shown["status"]["message"]["parts"][0]["text"], "one ", "{shown}");
    turn.finish(End::Completed, "two").await;
    let texts: Vec<String> = repeat.rest().await.iter().map(Frame::text).collect();
    assert_eq!(texts, ["two"], "what the task shows already does not follow again");
    let late = Stream::of(send().send().await.unwrap()).rest().await;
    assert_eq!(late.len(), 1);
    assert_eq!(
        late[0].result()["task"]["status"]["message"]["parts"][0]["text"],
        "one two"
    );
    assert!(world.hand.try_take().await.is_none());
}

#[tokio::test]
async fn a_repeat_attaches_also_when_nothing_new_is_admitted() {
    let world = world(&[("limits.scope_turns", "1")]).await;
    let client = world.gateway.client();
    let key = "a-key-of-some-length";
    let accepted = client.keyed(key, &at_once("hi")).await.unwrap();
    let refused = client
        .keyed("another-key-of-some-length", &at_once("two"))
        .await
        .unwrap_err();
    assert_eq!(refused["data"][0]["reason"], "RATE_LIMITED");
    let repeat = client.keyed(key, &at_once("hi")).await.unwrap();
    assert_eq!(repeat["task"]["id"], accepted["task"]["id"]);
    world.hand.take().await.finish(End::Completed, "").await;
    // What was not admitted has left no trace: its key is free.
    relevo_testkit::poll::until("the scope may go on", || async {
        client.keyed("another-key-of-some-length", &at_once("three")).await
    })
    .await;
}

#[tokio::test]
async fn a_message_is_known_by_its_id_where_that_is_wanted() {
    let world = world(&[("gateway.message_id_key", "true")]).await;
    let sending = |id: &str, text: &str| {
        let mut params = at_once(text);
        params["message"]["messageId"] = id.into();
        params
    };
    let mut tasks = Vec::new();
    for binding in ALL {
        let caller = Caller::new(binding, &world.gateway);
        let sent = caller
            .result("SendMessage", sending("an-id-of-some-length", "hi"))
            .await;
        tasks.push(sent["task"]["id"].clone());
        for (params, rule) in [
            (sending("an-id-of-some-length", "other"), "was used for another request"),
            (sending("short", "hi"), "must be at least 16 bytes"),
        ] {
            let refused = caller.call("SendMessage", params).await.unwrap_err();
            assert_eq!(refused.reason, "INVALID_PARAMS");
            let field = &refused.details[1]["fieldViolations"][0];
            assert_eq!(field["field"], "message.messageId", "{binding:?} {refused:?}");
            assert!(field["description"].as_str().unwrap().starts_with(rule), "{refused:?}");
        }
    }
    tasks.dedup();
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    // A key that is given is another one, whatever it says.
    let client = world.gateway.client();
    let keyed = client
        .keyed("an-id-of-some-length", &sending("an-id-of-some-length", "hi"))
        .await;
    assert_ne!(keyed.unwrap()["task"]["id"], tasks[0]);
}
