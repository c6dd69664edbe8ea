//! Extensions: declared, switched on, told back, required, on every binding.

use relevo_shared::domain::state::End;
use serde_json::{Value, json};

use crate::binding::{ALL, Binding, Caller};
use crate::client::message;
use crate::gateway::{world, world_with};
use crate::grpc_client::{encode, request};
use a2a_pb::protojson;

const RESUME: &str = "urn:relevo:a2a:resume:v1";
const IDEMPOTENCY: &str = "urn:relevo:a2a:idempotency:v1";
const TURN: &str = "urn:relevo:a2a:turn:v1";
const NEEDED: &str = "urn:example:needed:v1";
const FILE: &str = "
[profiles.strict]
[[profiles.strict.extensions]]
uri = \"urn:example:needed:v1\"
required = true
[agents.a]
kind = \"demo\"
profile = \"strict\"
";

#[tokio::test]
async fn what_is_declared_and_listed_is_active_and_told_back() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let card: Value = client
        .get(".well-known/agent-card.json")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let declared = card["capabilities"]["extensions"].as_array().unwrap();
    let uris: Vec<&str> = declared.iter().map(|e| e["uri"].as_str().unwrap()).collect();
    assert_eq!(uris, [RESUME, IDEMPOTENCY, TURN, "urn:relevo:a2a:skill:v1"]);

    let listed = format!("urn:x,{TURN} , {RESUME},{RESUME}");
    let expected = format!("{RESUME}, {TURN}");
    for answer in [
        client
            .request("GetTask", &json!({ "id": "x" }))
            .header("a2a-extensions", &listed),
        client
            .request("ListTasks", &json!({}))
            .header("A2A-Extensions", &listed),
        client
            .rest(reqwest::Method::GET, "tasks")
            .header("x-a2a-extensions", &listed),
        client
            .unversioned(reqwest::Method::GET, "v1/tasks")
            .header("x-a2a-extensions", &listed),
        client
            .rest(reqwest::Method::GET, "tasks/x")
            .header("a2a-extensions", TURN)
            .header("a2a-extensions", RESUME),
    ] {
        // Those of 0.3 read it under the name that they send.
        let old = answer.0.try_clone().unwrap().build().unwrap();
        let answer = answer.send().await.unwrap();
        assert_eq!(answer.headers()["a2a-extensions"], expected);
        let told = answer.headers().get("x-a2a-extensions");
        let named = old.headers().contains_key("x-a2a-extensions");
        assert_eq!(told.map(|told| told == &expected), named.then_some(true));
    }
    let odd = client
        .request("ListTasks", &json!({}))
        .header(
            "a2a-extensions",
            &[b"\xff,urn:\xc3\xbc,", RESUME.as_bytes(), b",\xfe"].concat()[..],
        )
        .send()
        .await
        .unwrap();
    assert_eq!(odd.headers()["a2a-extensions"], RESUME);
    let silent = client
        .request("ListTasks", &json!({}))
        .header("a2a-extensions", "urn:x")
        .send()
        .await
        .unwrap();
    assert!(!silent.headers().contains_key("a2a-extensions"));
    let mut grpc = Caller::new(Binding::Grpc, &world.gateway).grpc().raw();
    let list = encode::<protojson::ListTasksRequest, _>(json!({}));
    let answer = grpc.list_tasks(request(list, None)).await.unwrap();
    assert_eq!(answer.metadata().get("a2a-extensions").unwrap(), RESUME);
}

#[tokio::test]
async fn events_say_inside_where_they_stand_to_clients_that_want_it() {
    let world = world(&[]).await;
    for (binding, wrapped) in [(Binding::JsonRpc, true), (Binding::Rest, false)] {
        let caller = Caller::with_headers(binding, &world.gateway, &[("a2a-extensions", RESUME)]);
        let mut feed = caller.open("SendStreamingMessage", message("hi"), None).await.unwrap();
        let turn = world.hand.take().await;
        assert_eq!(turn.taken.record.extensions, [RESUME]);
        turn.finish(End::Completed, "done").await;
        for (event, cursor) in feed.rest().await {
            let kind = if event["task"].is_object() {
                "task"
            } else {
                "statusUpdate"
            };
            assert_eq!(event[kind]["metadata"][RESUME]["cursor"], cursor, "{wrapped} {event}");
        }
        let plain = Caller::new(binding, &world.gateway);
        let mut feed = plain.open("SendStreamingMessage", message("hi"), None).await.unwrap();
        world.hand.take().await.finish(End::Completed, "done").await;
        for (event, _) in feed.rest().await {
            assert!(!event.to_string().contains("cursor"), "{event}");
        }
    }
}

#[tokio::test]
async fn what_the_card_requires_must_be_listed_for_every_operation() {
    let world = world_with(FILE, &[]).await;
    for binding in ALL {
        let caller = Caller::new(binding, &world.gateway);
        for (method, params) in [
            ("SendMessage", message("hi")),
            ("GetTask", json!({ "id": "x" })),
            ("ListTasks", json!({})),
            ("CancelTask", json!({ "id": "x" })),
            ("GetExtendedAgentCard", json!({})),
        ] {
            let refusal = caller.call(method, params).await.unwrap_err();
            assert_eq!(refusal.reason, "EXTENSION_SUPPORT_REQUIRED", "{binding:?} {method}");
            assert_eq!(
                refusal.details[0]["metadata"]["extension"], NEEDED,
                "{binding:?} {method}"
            );
        }
        let refusal = caller
            .open("SubscribeToTask", json!({ "id": "x" }), None)
            .await
            .err()
            .unwrap();
        assert_eq!(refusal.reason, "EXTENSION_SUPPORT_REQUIRED", "{binding:?}");
        let willing = Caller::with_headers(binding, &world.gateway, &[("a2a-extensions", NEEDED)]);
        assert_eq!(
            willing.result("ListTasks", json!({})).await["totalSize"],
            0,
            "{binding:?}"
        );
    }
    let code = world.gateway.client().refused("ListTasks", json!({})).await.0;
    assert_eq!(code, -32008);
}

#[tokio::test]
async fn a_key_in_the_metadata_is_a_key_on_every_binding() {
    let world = world(&[]).await;
    let mut ids = Vec::new();
    for binding in ALL {
        let caller = Caller::new(binding, &world.gateway);
        let mut params = message("hi");
        params["configuration"] = json!({ "returnImmediately": true });
        params["metadata"] = json!({ IDEMPOTENCY: { "key": "sixteen-letters-long" } });
        ids.push(caller.result("SendMessage", params.clone()).await["task"]["id"].clone());
        params["metadata"] = json!({ IDEMPOTENCY: { "key": "short" } });
        let refusal = caller.call("SendMessage", params.clone()).await.unwrap_err();
        assert_eq!(refusal.reason, "INVALID_PARAMS", "{binding:?}");
        params["metadata"] = json!({ IDEMPOTENCY: {} });
        let refusal = caller.call("SendMessage", params).await.unwrap_err();
        let field = &refusal.details[1]["fieldViolations"][0]["field"];
        assert_eq!(*field, format!("metadata.{IDEMPOTENCY}.key"), "{binding:?}");
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    // The header is the same key.
    let mut params = message("hi");
    params["configuration"] = json!({ "returnImmediately": true });
    let by_header = world
        .gateway
        .client()
        .keyed("sixteen-letters-long", &params)
        .await
        .unwrap();
    assert_eq!(by_header["task"]["id"], ids[0]);
}

#[tokio::test]
async fn parts_of_other_types_than_the_cards_are_refused_with_their_place() {
    let file = "[agents.a]\nkind = \"demo\"\nprofile = \"iac-code\"\n";
    let world = world_with(file, &[]).await;
    for binding in ALL {
        let caller = Caller::new(binding, &world.gateway);
        let mut params = message("hi");
        params["message"]["parts"] = json!([{ "text": "a" }, { "raw": "AA==", "mediaType": "Video/MP4; codecs=x" }]);
        let refusal = caller.call("SendMessage", params).await.unwrap_err();
        assert_eq!(refusal.reason, "CONTENT_TYPE_NOT_SUPPORTED", "{binding:?}");
        assert_eq!(
            refusal.details[0]["metadata"]["field"], "message.parts[1].mediaType",
            "{binding:?}"
        );
    }
    let client = world.gateway.client();
    let mut params = message("hi");
    params["message"]["parts"] = json!([{ "text": "a", "mediaType": "text/x-python" }]);
    assert_eq!(client.refused("SendMessage", params).await.0, -32005);
    assert_eq!(crate::gateway::client_keys(&world.redis), Vec::<String>::new());
    let unlabelled = client.post("{}").header("content-type", "text/plain");
    let answer: Value = unlabelled.send().await.unwrap().json().await.unwrap();
    assert!(answer["id"].is_null());
}
