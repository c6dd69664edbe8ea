//! Every limit of a request in one table: what is exactly at it is taken, what is one over is refused, by the field and the rule.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use a2a_pb::{proto, protojson};
use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct};
use relevo_shared::domain::state::End;
use reqwest::Method;
use serde_json::{Value, json};
use tonic::Code;

use crate::binding::{ALL, Binding, Caller};
use crate::client::message;
use crate::gateway::{Gateway, World, client_keys, world};
use crate::grpc_client::{encode, refusal, request};

const JSON: [Binding; 2] = [Binding::JsonRpc, Binding::Rest];
/// How errors name the key, wherever it was.
const KEY: &str = "Idempotency-Key";
const IDEMPOTENCY: &str = "urn:relevo:a2a:idempotency:v1";

/// A limit: what it is of, the last size that is taken and the first that is not, a request of a size, and the field that is named.
type Edge = (
    &'static str,
    [i64; 2],
    &'static str,
    fn(i64, &str) -> Value,
    &'static str,
);

fn len(n: i64) -> usize {
    usize::try_from(n).unwrap()
}

fn long(n: i64) -> Value {
    "x".repeat(len(n)).into()
}

fn many(text: &str, n: i64) -> Value {
    vec![text; len(n)].into()
}

/// A message that is answered at once, with one member set.
fn with(pointer: &str, value: Value) -> Value {
    let mut params = message("hi");
    params["configuration"] = json!({ "returnImmediately": true });
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    params.pointer_mut(parent).unwrap()[key] = value;
    params
}

/// Lists in lists, `levels` of them.
fn nested(levels: i64) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

const SEND: &str = "SendMessage";
const LIST: &str = "ListTasks";
const GET: &str = "GetTask";

/// On every binding.
const EDGES: &[Edge] = &[
    (
        "a context",
        [128, 129],
        SEND,
        |n, _| with("/message/contextId", long(n)),
        "message.contextId",
    ),
    (
        "a filter",
        [128, 129],
        LIST,
        |n, _| json!({ "contextId": long(n) }),
        "contextId",
    ),
    (
        "a message's id",
        [256, 257],
        SEND,
        |n, _| with("/message/messageId", long(n)),
        "message.messageId",
    ),
    ("a tenant", [256, 257], SEND, |n, _| with("/tenant", long(n)), "tenant"),
    (
        "a tenant of a list",
        [256, 257],
        LIST,
        |n, _| json!({ "tenant": long(n) }),
        "tenant",
    ),
    (
        "media types",
        [64, 65],
        SEND,
        |n, _| with("/configuration/acceptedOutputModes", many("a/b", n)),
        "configuration.acceptedOutputModes",
    ),
    (
        "extensions",
        [64, 65],
        SEND,
        |n, _| with("/message/extensions", many("urn:x", n)),
        "message.extensions",
    ),
    (
        "references",
        [64, 65],
        SEND,
        |n, task| with("/message/referenceTaskIds", many(task, n)),
        "message.referenceTaskIds",
    ),
    (
        "the least history",
        [0, -1],
        GET,
        |n, task| json!({ "id": task, "historyLength": n }),
        "historyLength",
    ),
    (
        "the least history of an answer",
        [0, -1],
        SEND,
        |n, _| with("/configuration/historyLength", n.into()),
        "configuration.historyLength",
    ),
    (
        "the largest page",
        [100, 101],
        LIST,
        |n, _| json!({ "pageSize": n }),
        "pageSize",
    ),
    (
        "the smallest page",
        [1, 0],
        LIST,
        |n, _| json!({ "pageSize": n }),
        "pageSize",
    ),
    (
        "a key in metadata",
        [256, 257],
        SEND,
        |n, _| with("/metadata", json!({ IDEMPOTENCY: { "key": long(n) } })),
        KEY,
    ),
    (
        "a short key in metadata",
        [16, 15],
        SEND,
        |n, _| with("/metadata", json!({ IDEMPOTENCY: { "key": long(n) } })),
        KEY,
    ),
];

/// On those whose requests are JSON: gRPC has no larger numbers, and a depth of its own.
const EDGES_OF_JSON: &[Edge] = &[
    (
        "the most history",
        [i32::MAX as i64, i32::MAX as i64 + 1],
        GET,
        |n, task| json!({ "id": task, "historyLength": n }),
        "historyLength",
    ),
    // The parameters are the first level, their metadata the second.
    (
        "nesting",
        [62, 63],
        SEND,
        |n, _| with("/metadata", json!({ "d": nested(n) })),
        "metadata.d",
    ),
];

/// A task that waits for its user.
async fn idle(world: &World) -> String {
    let client = world.gateway.client();
    let (answer, ()) = tokio::join!(client.call(SEND, message("hi")), async {
        world.hand.take().await.finish(End::InputRequired, "more?").await;
    });
    answer["task"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_at_a_limit_is_taken_and_one_over_is_refused_with_its_field() {
    let world = world(&[]).await;
    let task = idle(&world).await;
    for binding in ALL {
        let caller = Caller::new(binding, &world.gateway);
        let of_json = EDGES_OF_JSON.iter().filter(|_| binding != Binding::Grpc);
        for (what, [at, over], method, params, field) in EDGES.iter().chain(of_json) {
            let taken = caller.call(method, params(*at, &task)).await;
            assert!(taken.is_ok(), "{binding:?} {what}: {taken:?}");
            let before = client_keys(&world.redis).len();
            let refusal = caller.call(method, params(*over, &task)).await.unwrap_err();
            assert_eq!(refusal.reason, "INVALID_PARAMS", "{binding:?} {what}: {refusal:?}");
            let named = refusal.details[1]["fieldViolations"][0]["field"].as_str().unwrap();
            assert!(named.starts_with(field), "{binding:?} {what}: {refusal:?}");
            assert_eq!(
                client_keys(&world.redis).len(),
                before,
                "{binding:?} {what}: something was stored"
            );
        }
        for (length, fits) in [(15, false), (16, true), (256, true), (257, false)] {
            let key = "k".repeat(length);
            let caller = Caller::with_headers(binding, &world.gateway, &[("idempotency-key", &key)]);
            let answer = caller.call(SEND, with("/tenant", format!("{binding:?}").into())).await;
            assert_eq!(answer.is_ok(), fits, "{binding:?}, a key of {length}: {answer:?}");
            if let Err(refusal) = answer {
                assert_eq!(refusal.details[1]["fieldViolations"][0]["field"], KEY);
            }
        }
    }
}

/// gRPC: how deep a message may be is its decoder's own.
#[tokio::test]
async fn grpc_reads_as_deep_as_its_decoder_and_refuses_what_is_deeper() {
    let world = world(&[]).await;
    let mut client = Caller::new(Binding::Grpc, &world.gateway).grpc().raw();
    for (levels, fits) in [(48, true), (49, false)] {
        let leaf = Kind::NumberValue(1.0);
        let kind = (0..levels).fold(leaf, |inner, _| {
            let values = vec![prost_types::Value { kind: Some(inner) }];
            Kind::ListValue(ListValue { values })
        });
        let value = prost_types::Value { kind: Some(kind) };
        let mut sent: proto::SendMessageRequest =
            encode::<protojson::SendMessageRequest, _>(with("/tenant", "".into()));
        sent.metadata = Some(Struct {
            fields: [("d".to_owned(), value)].into(),
        });
        let answer = client.send_message(request(sent, None)).await;
        assert_eq!(answer.is_ok(), fits, "{levels} levels: {answer:?}");
        if let Err(status) = answer {
            let refusal = refusal(&status);
            assert_eq!(refusal.reason, "INVALID_PARAMS", "{refusal:?}");
            assert_eq!(refusal.details[1]["fieldViolations"][0]["field"], "request");
        }
    }
}

#[tokio::test]
async fn an_id_of_json_rpc_has_256_bytes_as_it_is_written() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    for (id, fits) in [
        (format!("\"{}\"", "i".repeat(254)), true),
        (format!("\"{}\"", "i".repeat(255)), false),
        ("1".repeat(256), true),
        ("1".repeat(257), false),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ListTasks"}}"#);
        let answer = client.post(body).send().await.unwrap().text().await.unwrap();
        assert_eq!(answer.contains(&id), fits, "{answer}");
        assert_eq!(answer.contains("-32600"), !fits, "{answer}");
    }
}

const BODY: usize = 4 << 10;

#[tokio::test]
async fn a_body_may_be_as_large_as_the_limit_on_every_binding() {
    let world = world(&[("gateway.body_limit", "4KiB")]).await;
    let client = world.gateway.client();
    let envelope = r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks"}"#;
    let sent = with("/tenant", "".into()).to_string();
    for (size, status) in [(BODY, 200), (BODY + 1, 413)] {
        let answer = client.post(format!("{envelope:size$}")).send().await.unwrap();
        assert_eq!(answer.status(), status, "JSON-RPC, {size} bytes");
        let answer = client
            .rest(Method::POST, "message:send")
            .header("content-type", "application/json");
        let answer = answer.body(format!("{sent:size$}")).send().await.unwrap();
        assert_eq!(answer.status(), status, "HTTP+JSON, {size} bytes");
    }
    let mut grpc = Caller::new(Binding::Grpc, &world.gateway).grpc().raw();
    for (size, fits) in [(BODY, true), (BODY + 1, false)] {
        let sized = |text: usize| -> proto::SendMessageRequest {
            encode::<protojson::SendMessageRequest, _>(with("/message/parts", json!([{ "text": "x".repeat(text) }])))
        };
        let frame = sized(BODY / 2).encoded_len() - BODY / 2;
        let message = sized(size - frame);
        assert_eq!(message.encoded_len(), size);
        let answer = grpc.send_message(request(message, None)).await;
        assert_eq!(answer.is_ok(), fits, "{size} bytes: {answer:?}");
        if let Err(status) = answer {
            assert_eq!(
                (status.code(), refusal(&status).reason.as_str()),
                (Code::OutOfRange, "REQUEST_TOO_LARGE")
            );
        }
    }
}

/// What comes back for these bytes until the server closes.
fn raw(gateway: &Gateway, bytes: &str) -> String {
    let listen = gateway.listen;
    let mut stream = TcpStream::connect(listen).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_may_be_as_large_as_the_limit_and_have_a_hundred_lines() {
    let world = world(&[("gateway.header_limit", "8KiB")]).await;
    let sized = |size: usize| {
        let line = "GET /health HTTP/1.1\r\nconnection: close\r\nx: ";
        format!("{line}{}\r\n\r\n", "y".repeat(size - line.len() - 4))
    };
    let lines = |count: usize| {
        format!(
            "GET /health HTTP/1.1\r\nconnection: close\r\n{}\r\n",
            "x: y\r\n".repeat(count - 1)
        )
    };
    let whole = sized(8 << 10);
    assert_eq!(whole.len(), 8 << 10);
    // As many bytes, and the head goes on.
    let cut = &sized((8 << 10) + 4)[..8 << 10];
    for (head, status) in [
        (whole.as_str(), 200),
        (cut, 431),
        (&lines(100), 200),
        (&lines(101), 431),
    ] {
        let answer = tokio::task::block_in_place(|| raw(&world.gateway, head));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[tokio::test]
async fn a_page_is_as_large_as_its_limit_and_not_a_byte_larger() {
    const PAGE: usize = 4 << 20;
    let world = world(&[]).await;
    let client = world.gateway.client();
    let said = async |context: &str, length: usize| {
        let params = crate::client::message_in(context, "hi");
        let text = "x".repeat(length);
        let (answer, ()) = tokio::join!(client.call(SEND, params), async {
            world.hand.take().await.finish(End::Completed, &text).await;
        });
        answer["task"]["id"].as_str().unwrap().to_owned()
    };
    // Two tasks that are printed alike but for the length of what was said.
    said("c:0", 1).await;
    let listed = async |context: &str| client.call(LIST, json!({ "contextId": context })).await;
    let small = listed("c:0").await["tasks"][0].to_string().len();
    for (context, over, shown) in [("c:1", 0, 2), ("c:2", 1, 1)] {
        said(context, 1).await;
        said(context, PAGE - 2 * small + 1 + over).await;
        let page = listed(context).await;
        let tasks = page["tasks"].as_array().unwrap();
        let printed: usize = tasks.iter().map(|task| task.to_string().len()).sum();
        assert_eq!((tasks.len(), &page["totalSize"]), (shown, &json!(2)));
        assert_eq!(printed, if over == 0 { PAGE } else { PAGE + 1 - small });
    }
}

/// At most sixteen fields are named.
#[tokio::test]
async fn sixteen_wrong_fields_are_named_and_no_seventeenth() {
    let world = world(&[]).await;
    for binding in JSON {
        let caller = Caller::new(binding, &world.gateway);
        for (wrong, named) in [(16, 16), (17, 16)] {
            let parts: Vec<Value> = (0..wrong).map(|_| json!({ "text": 1 })).collect();
            let refusal = caller
                .call(SEND, with("/message/parts", parts.into()))
                .await
                .unwrap_err();
            assert_eq!(refusal.details[1]["fieldViolations"].as_array().unwrap().len(), named);
        }
    }
}
