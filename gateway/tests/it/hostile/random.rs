//! Random and damaged requests at a whole gateway: whatever comes, nothing breaks, nothing is the server's fault, and what is
//! answered to a client of 1.0 has the form that the schemas want.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use relevo_testkit::hostile::{damaged, json};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Client, message};
use crate::gateway::world;

const ENVELOPES: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}"#,
    r#"{"jsonrpc":"2.0","id":"a","method":"ListTasks","params":{"pageSize":3,"pageToken":"Mi4x"}}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[]}}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tasks/get","params":{"id":"x","historyLength":1}}"#,
];
const METHODS: &[&str] = &[
    "SendMessage",
    "SendStreamingMessage",
    "GetTask",
    "ListTasks",
    "CancelTask",
    "SubscribeToTask",
    "CreateTaskPushNotificationConfig",
    "GetExtendedAgentCard",
    "message/send",
    "message/stream",
    "tasks/get",
    "tasks/cancel",
    "tasks/resubscribe",
    "tasks/pushNotificationConfig/set",
];
const NAMES: &[&str] = &[
    "message",
    "configuration",
    "metadata",
    "tenant",
    "parts",
    "content",
    "text",
    "raw",
    "url",
    "data",
    "file",
    "role",
    "messageId",
    "contextId",
    "taskId",
    "id",
    "historyLength",
    "blocking",
    "returnImmediately",
    "status",
    "pageSize",
    "pageToken",
    "statusTimestampAfter",
    "includeArtifacts",
    "pushNotificationConfig",
];
const TEXTS: &[&str] = &[
    "m",
    "ROLE_USER",
    "user",
    "AAEC",
    "https://example.com/",
    "TASK_STATE_WORKING",
    "2026-11-30T10:39:06.380Z",
    TASK,
    "a",
];
/// Of the right form, but nobody's.
const TASK: &str = "01a22c0a-cb27-7fff-b5e2-511366f7343c";
const ROUTES: &[(&str, &str)] = &[
    ("POST", "message:send"),
    ("POST", "message:stream"),
    ("GET", "tasks"),
    ("GET", "tasks/01a22c0a-cb27-7fff-b5e2-511366f7343c"),
    ("POST", "tasks/01a22c0a-cb27-7fff-b5e2-511366f7343c:cancel"),
    ("GET", "tasks/x:subscribe"),
    ("POST", "tasks/x/pushNotificationConfigs"),
    ("DELETE", "tasks/x/pushNotificationConfigs/y"),
    ("GET", "extendedAgentCard"),
    ("POST", "t/message:send"),
];
const SEGMENTS: &[&str] = &[
    "v1",
    "message:send",
    "message:stream",
    "message%3Asend",
    "tasks",
    TASK,
    "01a22c0a-cb27-7fff-b5e2-511366f7343c:cancel",
    "x:subscribe",
    "pushNotificationConfigs",
    "extendedAgentCard",
    "card",
    "%ff",
    "%00",
    "a%2Fb",
    "..",
    ":cancel",
    "",
    ".well-known",
    "agent-card.json",
    "health",
];
const QUERIES: &[&str] = &[
    "pageSize=5&contextId=a&includeArtifacts=true",
    "status=TASK_STATE_WORKING&statusTimestampAfter=2026-11-30T10%3A39%3A06.380Z&pageToken=Mi4x",
    "historyLength=0&A2A-Version=1.0&tenant=t",
];
const HEADERS: &[&str] = &[
    "last-event-id",
    "idempotency-key",
    "traceparent",
    "accept",
    "if-none-match",
    "a2a-extensions",
    "x-a2a-extensions",
    "origin",
    "content-type",
];
const VALUES: &[&str] = &[
    "01a22c0a-cb27-7fff-b5e2-511366f7343c.1-7",
    "0123456789abcdef",
    "application/a2a+json;q=0.5, */*",
    "\"x\", W/\"y\"",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "*",
    "text/event-stream",
];

#[derive(Debug)]
struct Hostile {
    method: Method,
    path: String,
    version: Option<&'static str>,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
}

/// Parameters that are right but for one thing, and others.
fn params() -> impl Strategy<Value = Value> {
    let nearly =
        (select(NAMES), json(NAMES, TEXTS), any::<[bool; 3]>()).prop_map(|(name, value, [in_it, beside, at_once])| {
            let mut params = message("hi");
            // Of 0.3: the readers of each version pass over what is the other's.
            params["message"]["content"] = params["message"]["parts"].clone();
            params["configuration"] = json!({ "returnImmediately": at_once, "blocking": !at_once });
            params["id"] = TASK.into();
            if in_it {
                params["message"][name] = value.clone();
            }
            if beside {
                params[name] = value;
            }
            params
        });
    prop_oneof![3 => nearly, 1 => json(NAMES, TEXTS)]
}

fn envelope() -> impl Strategy<Value = Vec<u8>> {
    let called = (select(METHODS), params()).prop_map(|(method, params)| {
        let envelope = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        envelope.to_string().into_bytes()
    });
    prop_oneof![3 => called, 1 => damaged(ENVELOPES)]
}

fn query() -> impl Strategy<Value = String> {
    let damaged = damaged(QUERIES).prop_map(|query| format!("?{}", String::from_utf8_lossy(&query).replace('#', "")));
    prop_oneof![1 => Just(String::new()), 1 => damaged]
}

/// The method, the path and the body of a request.
fn target() -> impl Strategy<Value = (Method, String, Vec<u8>)> {
    let rpc = envelope().prop_map(|body| (Method::POST, String::new(), body));
    let rest = (select(ROUTES), any::<bool>(), query(), params()).prop_map(|((method, path), old, query, params)| {
        let path = if old {
            format!("v1/{path}{query}")
        } else {
            format!("{path}{query}")
        };
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        (method, path, params.to_string().into_bytes())
    });
    let method = select(["GET", "POST", "DELETE", "PUT"].as_slice());
    let body = prop_oneof![envelope(), vec(any::<u8>(), 0..100)];
    let other = (method, vec(select(SEGMENTS), 0..5), query(), body).prop_map(|(method, segments, query, body)| {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        (method, segments.join("/") + &query, body)
    });
    prop_oneof![2 => rpc, 2 => rest, 1 => other]
}

fn request() -> impl Strategy<Value = Hostile> {
    let headers = vec((select(HEADERS), damaged(VALUES)), 0..3);
    let headers = prop_oneof![1 => Just(Vec::new()), 1 => headers];
    let version = prop_oneof![
        4 => Just(Some("1.0")),
        3 => Just(None),
        1 => select([Some("0.3"), Some("2.0"), Some("1.x")].as_slice()),
    ];
    (target(), version, headers).prop_map(|((method, path, body), version, headers)| Hostile {
        method,
        path,
        version,
        headers,
        body,
    })
}

async fn ask(client: &Client, hostile: &Hostile) {
    let mut request = client.unversioned(hostile.method.clone(), &hostile.path);
    if let Some(version) = hostile.version {
        request = request.header("a2a-version", version);
    }
    let labelled = hostile.headers.iter().any(|(name, _)| *name == "content-type");
    if hostile.method == Method::POST && !labelled {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in &hostile.headers {
        // Other bytes cannot be sent.
        let value = value.iter().copied().filter(|byte| *byte >= b' ' && *byte != 0x7f);
        request = request.header(name, value.collect::<Vec<u8>>());
    }
    let reply = request
        .body(hostile.body.clone())
        .send()
        .await
        .expect("an answer comes");
    let status = reply.status().as_u16();
    // What was sent may be work, of which there may be too much.
    assert!(status < 500 || status == 503, "{status}");
    let label = reply.headers().get("content-type").cloned();
    if label.is_some_and(|label| label == "text/event-stream") {
        return;
    }
    let body = reply.bytes().await.expect("the answer is whole");
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    assert!(status == 503 || body["error"]["code"] != -32603, "{body}");
}

#[test]
fn nothing_that_is_sent_is_answered_with_an_error_of_the_server() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let world = runtime.block_on(world(&[("send.max_wait", "1ms"), ("cancel.wait", "1ms")]));
    let client = world.gateway.client();
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let ran = TestRunner::new(config).run(&request(), |hostile| {
        runtime.block_on(ask(&client, &hostile));
        Ok(())
    });
    if let Err(failed) = ran {
        panic!("{failed}");
    }
    runtime.block_on(async {
        let work = world.hand.try_take().await;
        assert!(work.is_some(), "some of it is right");
        let card = client.get(".well-known/agent-card.json").send().await.unwrap();
        assert_eq!(card.status(), 200, "it goes on serving");
    });
}
