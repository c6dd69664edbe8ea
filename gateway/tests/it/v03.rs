//! Clients of A2A 0.3: their methods, their shapes, the same tasks.

use relevo_shared::domain::state::End;
use serde_json::{Value, json};

use crate::cancel::told;
use crate::client::{Client, Frame, Stream};
use crate::gateway::world;
use crate::hand::Turn;

fn message(text: &str) -> Value {
    json!({ "message": { "kind": "message", "messageId": "m", "role": "user", "parts": [{ "kind": "text", "text": text }] } })
}

/// What a client of 0.3 sends: no version.
fn post(client: &Client, method: &str, params: &Value) -> crate::http::Request {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    client.post_unversioned(body.to_string())
}

async fn call(client: &Client, method: &str, params: Value) -> Value {
    let answer: Value = post(client, method, &params)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(answer["id"], 7);
    answer
}

async fn card(client: &Client) -> Value {
    let answer = client.get(".well-known/agent-card.json").send().await.unwrap();
    answer.json().await.unwrap()
}

#[tokio::test]
async fn a_conversation_of_0_3_flows_and_is_the_same_task_for_1_0() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let (answer, ()) = tokio::join!(call(&client, "message/send", message("hi")), async {
        world.hand.take().await.finish(End::InputRequired, "more?").await;
    });
    let task = &answer["result"];
    assert_eq!(
        (&task["kind"], &task["status"]["state"]),
        (&"task".into(), &"input-required".into())
    );
    assert_eq!(
        task["status"]["message"]["parts"],
        json!([{ "kind": "text", "text": "more?" }])
    );
    assert_eq!(
        (&task["history"][0]["role"], &task["history"][0]["kind"]),
        (&"user".into(), &"message".into())
    );
    let id = task["id"].as_str().unwrap();
    let mut more = message("more");
    more["message"]["taskId"] = id.into();
    let mut stream = Stream::of(post(&client, "message/stream", &more).send().await.unwrap());
    let mut turn = world.hand.take().await;
    turn.say("a").await;
    turn.finish(End::Completed, "b").await;
    let events: Vec<Value> = stream.rest().await.iter().map(Frame::result).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds[0], "task");
    assert!(kinds[1..].iter().all(|kind| *kind == "status-update"), "{kinds:?}");
    let finals: Vec<bool> = events[1..]
        .iter()
        .map(|event| event["final"].as_bool().unwrap())
        .collect();
    assert_eq!(finals.iter().filter(|last| **last).count(), 1);
    assert!(finals.last().unwrap());
    let got = call(&client, "tasks/get", json!({ "id": id })).await;
    assert_eq!(got["result"]["status"]["state"], "completed");
    assert_eq!(client.task(id).await["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn cancel_resubscribe_and_blocking_are_as_0_3_has_them() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut params = message("hi");
    params["configuration"] = json!({ "blocking": false });
    let answer = call(&client, "message/send", params).await;
    assert_eq!(answer["result"]["status"]["state"], "submitted");
    let id = answer["result"]["id"].clone();
    let mut turn = world.hand.take().await;
    let mut stream = Stream::of(
        post(&client, "tasks/resubscribe", &json!({ "id": id }))
            .send()
            .await
            .unwrap(),
    );
    assert_eq!(stream.event().await.result()["kind"], "task");
    turn.say("one").await;
    let heard = stream.event().await.result();
    assert_eq!(
        (&heard["kind"], &heard["status"]["state"]),
        (&"status-update".into(), &"working".into())
    );
    let cancel = call(&client, "tasks/cancel", json!({ "id": id }));
    let (canceled, ()) = tokio::join!(cancel, async {
        told(&turn, &world.hand.store).await;
        Turn::again(turn).finish(End::Canceled, "").await;
    });
    assert_eq!(
        (&canceled["result"]["kind"], &canceled["result"]["status"]["state"]),
        (&"task".into(), &"canceled".into())
    );
    assert!(stream.rest().await.last().unwrap().result()["final"].as_bool().unwrap());
}

#[tokio::test]
async fn errors_keep_their_codes_and_versions_do_not_mix() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let code = |answer: &Value| answer["error"]["code"].as_i64().unwrap();
    assert_eq!(code(&call(&client, "tasks/get", json!({ "id": "none" })).await), -32001);
    assert_eq!(
        code(&call(&client, "message/send", json!({ "message": { "role": "user" } })).await),
        -32602
    );
    assert_eq!(
        code(&call(&client, "tasks/list", json!({})).await),
        -32601,
        "0.3 had it on paper only"
    );
    let push = json!({ "taskId": "t", "pushNotificationConfig": { "url": "https://example.com" } });
    assert_eq!(
        code(&call(&client, "tasks/pushNotificationConfig/set", push).await),
        -32003
    );
    assert_eq!(
        code(&call(&client, "agent/getAuthenticatedExtendedCard", json!({})).await),
        -32004
    );
    // A client that names 1.0 has the methods of 1.0.
    let (refused, _) = client.refused("message/send", message("hi")).await;
    assert_eq!(refused, -32601);
    let old = post(&client, "message/send", &message("hi")).header("a2a-version", "0.3");
    let (answer, ()) = tokio::join!(
        async { old.send().await.unwrap().json::<Value>().await.unwrap() },
        async {
            world.hand.take().await.finish(End::Completed, "done").await;
        }
    );
    assert_eq!(answer["result"]["kind"], "task");
    let card = card(&client).await;
    assert_eq!(
        (&card["protocolVersion"], &card["preferredTransport"]),
        (&"0.3.0".into(), &"JSONRPC".into())
    );
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    assert_eq!(interfaces.last().unwrap()["protocolVersion"], "0.3");
    assert_eq!(card["url"], interfaces[0]["url"]);
}

#[tokio::test]
async fn a_gateway_that_does_not_serve_0_3_says_so() {
    let world = world(&[("gateway.a2a_0_3", "false")]).await;
    let client = world.gateway.client();
    assert_eq!(
        call(&client, "message/send", message("hi")).await["error"]["code"],
        -32009
    );
    let card = card(&client).await;
    assert!(
        card.get("url").is_none() && card.get("protocolVersion").is_none(),
        "{card}"
    );
}
