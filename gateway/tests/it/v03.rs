//! Clients of A2A 0.3: their methods, paths and shapes, on both bindings, and the same tasks.

use relevo_shared::domain::state::End;
use relevo_testkit::schema::without_0_3;
use reqwest::Method;
use serde_json::{Value, json};

use crate::binding::Names;
use crate::cancel::told;
use crate::client::{Client, Frame};
use crate::gateway::{World, world, world_with};
use crate::hand::Turn;
use crate::http::Request;
use crate::old::{BOTH, Binding, Caller, message};

async fn card(client: &Client, path: &str) -> Value {
    client.get(path).send().await.unwrap().json().await.unwrap()
}

/// What two turns look like to a client.
async fn conversation(world: &World, caller: &Caller) -> Vec<Value> {
    let mut parts = message("hi");
    let more = [
        json!({ "kind": "data", "data": { "a": [1, null] } }),
        json!({ "kind": "file", "file": { "bytes": "AAEC", "mimeType": "x/y", "name": "f" }, "metadata": { "k": 1 } }),
        json!({ "kind": "file", "file": { "uri": "https://example.com/f" } }),
    ];
    parts["message"]["parts"].as_array_mut().unwrap().extend(more);
    let (task, ()) = tokio::join!(caller.call("message/send", parts), async {
        world.hand.take().await.finish(End::InputRequired, "more?").await;
    });
    let task = task.unwrap();
    let id = task["id"].as_str().unwrap().to_owned();
    let mut more = message("more");
    more["message"]["taskId"] = id.clone().into();
    let mut stream = caller.open("message/stream", &more, None).await;
    let mut turn = world.hand.take().await;
    turn.say("a").await;
    turn.finish(End::Completed, "b").await;
    let events = stream.rest().await;
    let mut seen = vec![task];
    seen.extend(events.iter().map(|frame| caller.event(frame)));
    for length in [Value::Null, json!(1), json!(0)] {
        let read = caller
            .call("tasks/get", json!({ "id": id, "historyLength": length }))
            .await;
        seen.push(read.unwrap());
    }
    assert_eq!(caller.client.task(&id).await["status"]["state"], "TASK_STATE_COMPLETED");
    seen
}

#[tokio::test]
async fn a_conversation_of_0_3_looks_alike_on_both_bindings_and_is_the_same_task_for_1_0() {
    let mut seen = Vec::new();
    for binding in BOTH {
        let world = world(&[]).await;
        let caller = Caller::new(binding, world.gateway.client());
        seen.push(Names::default().replace(conversation(&world, &caller).await.into()));
    }
    assert_eq!(seen[0], seen[1]);
    let seen = seen[0].as_array().unwrap();
    let task = &seen[0];
    assert_eq!(
        (&task["kind"], &task["status"]["state"]),
        (&"task".into(), &"input-required".into())
    );
    assert_eq!(
        task["status"]["message"]["parts"],
        json!([{ "kind": "text", "text": "more?" }])
    );
    let asked = &task["history"][0];
    assert_eq!((&asked["role"], &asked["kind"]), (&"user".into(), &"message".into()));
    assert_eq!(asked["parts"][1], json!({ "kind": "data", "data": { "a": [1, null] } }));
    let file = json!({ "bytes": "AAEC", "mimeType": "x/y", "name": "f" });
    assert_eq!(asked["parts"][2]["file"], file);
    let (events, reads) = seen[1..].split_at(seen.len() - 4);
    let kinds: Vec<&str> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds[0], "task");
    assert!(kinds[1..].iter().all(|kind| *kind == "status-update"), "{kinds:?}");
    let finals: Vec<bool> = events[1..]
        .iter()
        .map(|event| event["final"].as_bool().unwrap())
        .collect();
    assert_eq!(finals.iter().filter(|last| **last).count(), 1);
    assert!(finals.last().unwrap());
    let lengths: Vec<usize> = reads
        .iter()
        .map(|task| task["history"].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!((lengths[1], lengths[2]), (1, 0), "{lengths:?}");
    assert!(lengths[0] > 1, "{lengths:?}");
}

#[tokio::test]
async fn cancel_resubscribe_and_blocking_are_as_0_3_has_them() {
    for binding in BOTH {
        let world = world(&[]).await;
        let caller = Caller::new(binding, world.gateway.client());
        let mut params = message("hi");
        params["configuration"] = json!({ "blocking": false });
        let task = caller.call("message/send", params).await.unwrap();
        assert_eq!(task["status"]["state"], "submitted");
        let id = task["id"].clone();
        let mut turn = world.hand.take().await;
        let mut stream = caller.open("tasks/resubscribe", &json!({ "id": id }), None).await;
        assert_eq!(caller.event(&stream.event().await)["kind"], "task");
        turn.say("one").await;
        let heard = caller.event(&stream.event().await);
        assert_eq!(
            (&heard["kind"], &heard["status"]["state"]),
            (&"status-update".into(), &"working".into())
        );
        let cancel = caller.call("tasks/cancel", json!({ "id": id }));
        let (canceled, ()) = tokio::join!(cancel, async {
            told(&turn, &world.hand.store).await;
            Turn::again(turn).finish(End::Canceled, "").await;
        });
        let canceled = canceled.unwrap();
        assert_eq!(
            (&canceled["kind"], &canceled["status"]["state"]),
            (&"task".into(), &"canceled".into())
        );
        let rest = stream.rest().await;
        let last = caller.event(rest.last().unwrap());
        assert_eq!(
            (&last["final"], &last["status"]["state"]),
            (&true.into(), &"canceled".into())
        );
    }
}

#[tokio::test]
async fn streams_resume_and_keyed_sends_run_once() {
    for binding in BOTH {
        let world = world(&[]).await;
        let caller = Caller::new(binding, world.gateway.client());
        let mut stream = caller.open("message/stream", &message("hi"), None).await;
        let mut turn = world.hand.take().await;
        turn.say("a").await;
        turn.say("b").await;
        turn.finish(End::Completed, "c").await;
        let whole = stream.rest().await;
        let task = caller.event(&whole[0])["id"].clone();
        for (place, frame) in whole.iter().enumerate() {
            for (method, params) in [
                ("message/stream", message("hi")),
                ("tasks/resubscribe", json!({ "id": task })),
            ] {
                let resumed = caller.open(method, &params, Some(&frame.cursor())).await.rest().await;
                assert_eq!(resumed, whole[place + 1..], "{binding:?} {method} {place}");
            }
        }
        let key = "a-key-of-some-length";
        let keyed = || {
            let request = caller.request("message/send", &message("once"));
            caller.answer(request.header("idempotency-key", key))
        };
        let (first, ()) = tokio::join!(keyed(), async {
            world.hand.take().await.finish(End::Completed, "done").await;
        });
        assert_eq!(keyed().await, first, "{binding:?}");
        assert!(world.hand.try_take().await.is_none());
    }
}

#[tokio::test]
async fn errors_keep_their_codes() {
    let world = world(&[]).await;
    for binding in BOTH {
        let caller = Caller::new(binding, world.gateway.client());
        let (ended, ()) = tokio::join!(caller.call("message/send", message("hi")), async {
            world.hand.take().await.finish(End::Completed, "done").await;
        });
        let ended = json!({ "id": ended.unwrap()["id"] });
        let push = json!({ "id": "t", "pushNotificationConfigId": "c" });
        let set = json!({ "taskId": "t", "pushNotificationConfig": { "url": "https://example.com" } });
        for (code, method, params) in [
            (-32001, "tasks/get", json!({ "id": "none" })),
            (-32001, "tasks/cancel", json!({ "id": "none" })),
            (-32001, "tasks/resubscribe", json!({ "id": "none" })),
            (-32002, "tasks/cancel", ended.clone()),
            (-32004, "tasks/resubscribe", ended),
            (-32602, "message/send", json!({ "message": { "role": "user" } })),
            (-32602, "message/stream", json!({})),
            (-32003, "tasks/pushNotificationConfig/set", set),
            (-32003, "tasks/pushNotificationConfig/get", push.clone()),
            (-32003, "tasks/pushNotificationConfig/list", push.clone()),
            (-32003, "tasks/pushNotificationConfig/delete", push),
        ] {
            assert_eq!(caller.call(method, params).await, Err(code), "{binding:?} {method}");
        }
    }
    let rpc = Caller::new(Binding::JsonRpc, world.gateway.client());
    let on_paper = rpc.call("tasks/list", json!({})).await;
    assert_eq!(on_paper, Err(-32601), "0.3 had it on other bindings only");
    let extended = rpc.call("agent/getAuthenticatedExtendedCard", json!({})).await;
    assert_eq!(extended, Err(-32004));
}

#[tokio::test]
async fn versions_do_not_mix() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    // On JSON-RPC the method says what is spoken, even to a client that names 1.0.
    let (task, ()) = tokio::join!(client.call("message/send", message("hi")), async {
        world.hand.take().await.finish(End::Completed, "done").await;
    });
    assert_eq!(
        (&task["kind"], &task["status"]["state"]),
        (&json!("task"), &json!("completed"))
    );
    let read = client.call("tasks/get", json!({ "id": task["id"] })).await;
    assert_eq!(read, task);
    // There is no method of that name in either version, and no version of that name.
    assert_eq!(client.refused("tasks/list", json!({})).await.0, -32601);
    let other = json!({ "jsonrpc": "2.0", "id": 7, "method": "tasks/get", "params": { "id": task["id"] } });
    let other = client.post_unversioned(other.to_string()).header("a2a-version", "2.0");
    let (_, refused) = status(other).await;
    assert_eq!(refused["error"]["code"], -32009);
    // On a path a client that names 1.0 has its tenants, one of which may have this name.
    let (_, ()) = tokio::join!(client.call("SendMessage", crate::client::message("hi")), async {
        world.hand.take().await.finish(End::Completed, "done").await;
    });
    let listed = async |version: &str| {
        let request = client
            .unversioned(Method::GET, "v1/tasks")
            .header("a2a-version", version);
        request.send().await.unwrap().json::<Value>().await.unwrap()["totalSize"].clone()
    };
    assert_eq!((listed("1.0").await, listed("0.3").await), (json!(0), json!(2)));
    for binding in BOTH {
        let caller = Caller::new(binding, client.clone());
        let named = caller
            .request("message/send", &message("hi"))
            .header("a2a-version", "0.3");
        let (task, ()) = tokio::join!(caller.answer(named), async {
            world.hand.take().await.finish(End::Completed, "done").await;
        });
        assert_eq!(task.unwrap()["kind"], "task");
    }
}

async fn status(request: Request) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or_default())
}

/// ProtoJSON of the proto file of 0.3, which its readers take literally.
#[tokio::test]
async fn http_json_has_the_shapes_of_the_proto_file() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let post = |path: &str, body: &str| {
        let request = client.unversioned(Method::POST, path);
        request.header("content-type", "application/json").body(body.to_owned())
    };
    let body = r#"{"request":{"message_id":"m","role":1,"content":[{"text":"hi"}]},"configuration":{"blocking":true}}"#;
    let ((_, sent), ()) = tokio::join!(status(post("v1/message:send", body)), async {
        world.hand.take().await.finish(End::Completed, "done").await;
    });
    let task = &sent["task"];
    assert_eq!(
        task["history"][0]["content"],
        json!([{ "text": "hi" }]),
        "names as in the proto file are read, too"
    );
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    // A bool that is not sent is false.
    let unsaid = r#"{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"hi"}]},"configuration":{}}"#;
    let (_, sent) = status(post("v1/message:send", unsaid)).await;
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    let id = sent["task"]["id"].as_str().unwrap();
    let mut streams = Vec::new();
    for method in [Method::GET, Method::POST] {
        let request = client.unversioned(method, &format!("v1/tasks/{id}:subscribe"));
        streams.push(crate::client::Stream::of(request.send().await.unwrap()));
    }
    let turn = world.hand.take().await;
    // "No body" is null to some clients.
    let cancel = status(post(&format!("v1/tasks/{id}:cancel"), "null"));
    let ((_, canceled), ()) = tokio::join!(cancel, async {
        told(&turn, &world.hand.store).await;
        turn.finish(End::Canceled, "").await;
    });
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELLED");
    for mut stream in streams {
        let last = stream.rest().await.last().map(Frame::json).unwrap();
        assert_eq!(last["statusUpdate"]["final"], true);
        assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELLED");
    }
    let (_, page) = status(client.unversioned(Method::GET, "v1/tasks?status=TASK_STATE_CANCELLED&pageSize=1")).await;
    assert_eq!((&page["totalSize"], &page["pageSize"]), (&json!(1), &json!(1)));
    assert_eq!(page["tasks"][0]["status"]["state"], "TASK_STATE_CANCELLED");
}

#[tokio::test]
async fn what_http_json_refuses_it_refuses_in_the_shape_of_0_3() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let get = |path: &str| client.unversioned(Method::GET, path);
    let (code, error) = status(get("v1/tasks/none")).await;
    assert_eq!(
        (code, &error["code"], &error["message"]),
        (404, &json!(-32001), &json!("Task not found"))
    );
    assert_eq!(error["data"][0]["reason"], "TASK_NOT_FOUND");
    let body = client
        .unversioned(Method::POST, "v1/message:send")
        .header("content-type", "application/json");
    let (code, error) = status(body.body(r#"{"message":{"messageId":"m","role":"ROLE_USER","content":[{}]}}"#)).await;
    assert_eq!((code, &error["code"]), (400, &json!(-32602)));
    assert_eq!(error["data"][1]["fieldViolations"][0]["field"], "message.content[0]");
    let (code, error) = status(client.unversioned(Method::DELETE, "v1/tasks/t")).await;
    assert_eq!((code, &error["message"]), (405, &json!("method not allowed")));
    let (code, error) = status(client.unversioned(Method::POST, "v1/message:send").body("{}")).await;
    assert_eq!((code, error["code"].is_i64()), (415, true));
    let (code, _) = status(get("v1/x/tasks")).await;
    assert_eq!(code, 404, "0.3 has no tenants");
    let broken = get("v1/tasks/none:subscribe").header("last-event-id", "nonsense");
    assert_eq!(status(broken).await.1["code"], -32602);
}

#[tokio::test]
async fn the_card_tells_clients_of_0_3_where_they_are_served() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let public = card(&client, ".well-known/agent-card.json").await;
    assert_eq!(card(&client, "v1/card").await, public);
    assert_eq!(
        (&public["protocolVersion"], &public["preferredTransport"]),
        (&"0.3.0".into(), &"JSONRPC".into())
    );
    let interfaces = public["supportedInterfaces"].as_array().unwrap();
    let url = &interfaces[0]["url"];
    let listed: Vec<_> = interfaces
        .iter()
        .map(|interface| (&interface["protocolBinding"], &interface["protocolVersion"]))
        .map(|(binding, version)| (binding.as_str().unwrap(), version.as_str().unwrap()))
        .collect();
    let expected = [
        ("JSONRPC", "1.0"),
        ("HTTP+JSON", "1.0"),
        ("GRPC", "1.0"),
        ("JSONRPC", "0.3"),
        ("HTTP+JSON", "0.3"),
    ];
    assert_eq!(listed, expected, "the later version first");
    assert_eq!(&public["url"], url);
    assert_eq!(
        public["additionalInterfaces"],
        json!([{ "url": url, "transport": "JSONRPC" }, { "url": url, "transport": "HTTP+JSON" }])
    );
    // Who names 1.0 gets nothing that 1.0 does not know; a cache keeps the two apart.
    let path = ".well-known/agent-card.json";
    let strict = client.rest(Method::GET, path).send().await.unwrap();
    let both = client.get(path).send().await.unwrap();
    for card in [&strict, &both] {
        assert_eq!(card.headers()["vary"], "a2a-version");
    }
    let etag = both.headers()["etag"].clone();
    assert_ne!(strict.headers()["etag"], etag);
    let strict: Value = strict.json().await.unwrap();
    assert_eq!(strict, without_0_3(public.clone()));
    let known = client.rest(Method::GET, path).header("if-none-match", &etag);
    assert_eq!(known.send().await.unwrap().status(), 200);
}

/// Which is the one of 0.3 where there is one: `/v1/card` and the method are both about it.
#[tokio::test]
async fn the_extended_card_is_one_of_0_3_for_its_clients() {
    let world = world_with("[principals.ann]\ntoken = \"ann-1\"\n", &[]).await;
    let stranger = world.gateway.client();
    let public = card(&stranger, ".well-known/agent-card.json").await;
    assert_eq!(public["supportsAuthenticatedExtendedCard"], true);
    let scheme = public["securitySchemes"].as_object().unwrap().values().next().unwrap();
    assert_eq!(
        (&scheme["type"], &scheme["scheme"]),
        (&json!("http"), &scheme["httpAuthSecurityScheme"]["scheme"])
    );
    assert!(public["security"][0].as_object().unwrap().values().all(Value::is_array));
    assert_eq!(status(stranger.get("v1/card")).await.0, 401);
    let ann = world.gateway.client_with(&[("authorization", "Bearer ann-1")]);
    let rest = card(&ann, "v1/card").await;
    let method = "agent/getAuthenticatedExtendedCard";
    let rpc = json!({ "jsonrpc": "2.0", "id": 7, "method": method });
    let (_, rpc) = status(ann.post_unversioned(rpc.to_string())).await;
    assert_eq!(rpc["result"], rest);
    for field in ["url", "protocolVersion", "additionalInterfaces", "security"] {
        assert_eq!(rest[field], public[field], "{field}");
    }
    assert!(rest.get("kind").is_none());
}

#[tokio::test]
async fn a_gateway_that_does_not_serve_0_3_says_so() {
    let world = world(&[("gateway.a2a_0_3", "false")]).await;
    let client = world.gateway.client();
    let rpc = Caller::new(Binding::JsonRpc, client.clone());
    assert_eq!(rpc.call("message/send", message("hi")).await, Err(-32009));
    let rest = Caller::new(Binding::Rest, client.clone());
    let (code, error) = status(rest.request("message/send", &message("hi"))).await;
    assert_eq!(
        (code, &error["error"]["details"][0]["reason"]),
        (400, &json!("VERSION_NOT_SUPPORTED"))
    );
    assert_eq!(status(client.get("v1/card")).await.0, 404);
    let card = card(&client, ".well-known/agent-card.json").await;
    assert!(
        card.get("url").is_none() && card.get("protocolVersion").is_none(),
        "{card}"
    );
}
