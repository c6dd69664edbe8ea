//! Bad and hostile input: the right code, the field that is wrong, nothing stored.

mod random;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use relevo_shared::domain::state::End;
use relevo_testkit::{RedisServer, poll};
use serde_json::{Value, json};

use crate::client::message;
use crate::gateway::{Gateway, client_keys, world};
use crate::http::Request;

fn with(pointer: &str, value: Value) -> Value {
    let mut params = message("hi");
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    params.pointer_mut(parent).unwrap()[key] = value;
    params
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_wrong_gets_past_the_door() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[("gateway.body_limit", "256KiB")]).await;
    let client = gateway.client();
    let long = "x".repeat(65_536);
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let secret = json!({ "iac_code_api_key": "s3cr3t-canary" });
    for method in ["SendMessage", "SendStreamingMessage"] {
        for (params, code, field) in [
            (json!(null), -32602, "message"),
            (json!([]), -32602, "params"),
            (json!({ "message": "hi" }), -32602, "message"),
            (with("/message/parts", json!([])), -32602, "message.parts"),
            (
                with("/message/parts", json!([{ "text": 1 }])),
                -32602,
                "message.parts[0].text",
            ),
            (
                with("/message/parts", json!([{ "text": "a" }, { "text": "a", "raw": "" }])),
                -32602,
                "message.parts[1]",
            ),
            (with("/message/role", json!("ROLE_EMPEROR")), -32602, "message.role"),
            (with("/message/messageId", json!("")), -32602, "message.messageId"),
            (with("/message/messageId", json!(long)), -32602, "message.messageId"),
            (with("/message/contextId", json!("a/b")), -32602, "message.contextId"),
            (with("/message/contextId", json!("{}")), -32602, "message.contextId"),
            (
                with("/message/contextId", json!("a\u{0}b")),
                -32602,
                "message.contextId",
            ),
            (with("/message/contextId", json!(long)), -32602, "message.contextId"),
            (
                with("/message/metadata", secret.clone()),
                -32602,
                "message.metadata.iac_code_api_key",
            ),
            (
                with("/configuration", json!({ "historyLength": -1 })),
                -32602,
                "configuration.historyLength",
            ),
            (with("/message/taskId", json!(7)), -32602, "message.taskId"),
            (with("/message/taskId", json!("a:b")), -32001, ""),
            (with("/message/taskId", json!("{}/*\r\n")), -32001, ""),
            (with("/message/taskId", json!("\u{0}")), -32001, ""),
            (with("/message/taskId", json!(long)), -32001, ""),
            // Of the right shape, but of a partition that does not exist.
            (
                with("/message/taskId", json!("01a22c0a-cb27-7fff-b5e2-511366f7343c")),
                -32001,
                "",
            ),
        ] {
            let answer = client.answer(method, params.clone()).await;
            assert_eq!(answer["error"]["code"], code, "{method} {answer}");
            assert_eq!(answer["id"], "q");
            let violated = &answer["error"]["data"][1]["fieldViolations"][0]["field"];
            assert_eq!(violated.as_str().unwrap_or_default(), field, "{method} {answer}");
            assert!(answer.to_string().len() < 2_000, "an answer is small");
            assert!(!answer.to_string().contains("canary"), "secrets are not repeated");
        }
        let nested = client
            .answer(method, with("/message/parts/0/metadata", json!({ "d": deep })))
            .await;
        assert_eq!(nested["error"]["code"], -32602, "{nested}");
        let path = nested["error"]["data"][1]["fieldViolations"][0]["field"]
            .as_str()
            .unwrap();
        assert!(path.starts_with("message.parts[0].metadata.d[0]"), "{path}");
    }
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        for id in ["x", "a:b/c", "{}", "\u{0}", "../..", &long] {
            assert_eq!(client.refused(method, json!({ "id": id })).await.0, -32001, "{method}");
        }
        assert_eq!(client.refused(method, json!({ "id": 1 })).await.0, -32602);
        assert_eq!(
            client.refused(method, json!({})).await,
            (-32602, "INVALID_PARAMS".to_owned())
        );
    }
    assert_eq!(client_keys(&redis), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_envelope_that_is_wrong_is_answered_as_the_standard_says() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[]).await;
    let client = gateway.client();
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{}}}"#,
        "[".repeat(100_000)
    );
    for (body, code, id) in [
        ("", -32700, json!(null)),
        ("{", -32700, json!(null)),
        ("\u{feff}{}", -32700, json!(null)),
        (deep.as_str(), -32700, json!(null)),
        ("[]", -32600, json!(null)),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]"#, -32600, json!(null)),
        (
            r#"{"jsonrpc":"2.0","method":"GetTask","params":{"id":"x"}}"#,
            -32600,
            json!(null),
        ),
        (r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#, -32600, json!(null)),
        (r#"{"jsonrpc":"1.0","id":7,"method":"GetTask"}"#, -32600, json!(7)),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tasks/list"}"#, -32601, json!(7)),
        (r#"{"jsonrpc":"2.0","id":"é","method":"gettask"}"#, -32601, json!("é")),
    ] {
        let response = client.post(body.to_owned()).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["error"]["code"], code, "{body:.80} {answer}");
        assert_eq!(answer["id"], id, "{body:.80} {answer}");
        assert_eq!(
            answer["error"]["data"][0]["@type"],
            "type.googleapis.com/google.rpc.ErrorInfo"
        );
    }
    let exact = r#"{"jsonrpc":"2.0","id":1.50,"method":"GetTask","params":{"id":"x"}}"#;
    let answer = client.post(exact).send().await.unwrap().text().await.unwrap();
    assert!(answer.starts_with(r#"{"jsonrpc":"2.0","id":1.50,"error":"#), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_version_1_is_served() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[]).await;
    let client = gateway.client();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {} }).to_string();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for (header, query, served) in [
        (Some("1.0"), "", true),
        (Some("1.0.1"), "", true),
        (Some("1.2"), "", true),
        (None, "?A2A-Version=1.0", true),
        (None, "", false),
        (Some(""), "", false),
        (Some("0.3"), "", false),
        (Some("2.0"), "", false),
        (Some("one"), "", false),
    ] {
        let mut request =
            Request(http.post(format!("{}{query}", client.url))).header("content-type", "application/json");
        if let Some(version) = header {
            request = request.header("a2a-version", version);
        }
        let answer: Value = request.body(body.clone()).send().await.unwrap().json().await.unwrap();
        let expected = if served { json!(null) } else { json!(-32009) };
        assert_eq!(answer["error"]["code"], expected, "{header:?} {query} {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_below_the_protocol_is_answered_in_plain() {
    let redis = RedisServer::start();
    let limits = [
        ("gateway.body_limit", "1KiB"),
        ("gateway.header_limit", "8KiB"),
        ("gateway.request_timeout", "200ms"),
    ];
    let gateway = Gateway::start(&redis, &limits).await;
    let client = gateway.client();
    let big = "x".repeat(2_000);
    assert_eq!(client.post(big.clone()).send().await.unwrap().status(), 413);
    let pieces = futures_util::stream::iter([big.clone(), big.clone()].map(Ok::<_, std::io::Error>));
    let unannounced = client.post(reqwest::Body::wrap_stream(pieces)).send().await.unwrap();
    assert_eq!(unannounced.status(), 413);
    assert_eq!(client.get("nope").send().await.unwrap().status(), 404);
    let wrong_method = client.get("").send().await.unwrap();
    assert_eq!(wrong_method.status(), 405);
    assert_eq!(wrong_method.headers()["allow"], "POST");
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    // JSON-RPC has words of its own for it.
    let unlabelled = Request(http.post(&client.url)).body("{}").send().await.unwrap();
    assert_eq!(unlabelled.status(), 200);
    let unlabelled: Value = unlabelled.json().await.unwrap();
    assert_eq!(
        (&unlabelled["error"]["code"], &unlabelled["id"]),
        (&(-32005).into(), &Value::Null)
    );
    let huge_header = client
        .post("{}")
        .header("x-long", "y".repeat(20_000))
        .send()
        .await
        .unwrap();
    assert_eq!(huge_header.status(), 431);
    let many = raw(&gateway, &format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(101)));
    assert!(many.starts_with("HTTP/1.1 431 "), "{many}");
    let slow = raw(
        &gateway,
        "POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
    );
    assert!(slow.starts_with("HTTP/1.1 408 "), "{slow}");
    assert_eq!(client_keys(&redis), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_never_ends_is_given_up() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[("gateway.header_timeout", "100ms")]).await;
    let answer = raw(&gateway, "POST / HTTP/1.1\r\nhost: x\r\n");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

/// What comes back for these bytes until the server closes.
fn raw(gateway: &Gateway, bytes: &str) -> String {
    let listen = gateway.listen;
    let bytes = bytes.to_owned();
    tokio::task::block_in_place(move || {
        let mut stream = TcpStream::connect(listen).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    })
}

#[tokio::test]
async fn an_error_is_never_much_larger_than_its_reasons() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[]).await;
    let long = "k".repeat(2_000_000);
    let secrets: serde_json::Map<String, Value> = (0..16).map(|n| (format!("a{n}_security_token"), 1.into())).collect();
    let mut params = message("hi");
    params["metadata"] = json!({ &long: secrets });
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!({ &long[..10_000]: deep });
    }
    let mut nested = message("hi");
    nested["metadata"] = deep;
    for params in [params, nested] {
        let answer = gateway.client().request("SendMessage", &params).send().await.unwrap();
        let text = answer.text().await.unwrap();
        assert!(text.contains("-32602") && text.len() < 64 << 10, "{} bytes", text.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_nothing_loses_its_connection_and_one_that_is_slow_does_not() {
    let world = world(&[("gateway.write_timeout", "300ms"), ("stream.keep_alive", "1s")]).await;
    let mut slow = world
        .gateway
        .client()
        .stream("SendStreamingMessage", message("slow"))
        .await;
    slow.event().await;
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": message("stuck"),
    });
    let body = body.to_string();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut stuck = socket.connect(world.gateway.listen).await.unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: x\r\na2a-version: 1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    tokio::io::AsyncWriteExt::write_all(&mut stuck, format!("{head}{body}").as_bytes())
        .await
        .unwrap();
    let mut turns = [world.hand.take().await, world.hand.take().await];
    turns.sort_by_key(crate::hand::Turn::asked);
    let [quiet, mut loud] = turns;
    // More than the buffers of the system hold.
    let much = "x".repeat(900_000);
    for _ in 0..12 {
        loud.say(&much).await;
    }
    poll::until("the stuck client's connection to be closed", async || {
        match world.gateway.metric("relevo_gateway_streams_open").await {
            open if open < 1.5 => Ok(()),
            open => Err(open),
        }
    })
    .await;
    quiet.finish(End::Completed, "done").await;
    assert_eq!(slow.rest().await.last().unwrap().text(), "done");
    drop(stuck);
}

#[tokio::test]
async fn a_request_whose_values_take_many_times_its_size_is_not_read() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[]).await;
    let junk = format!("[{}0]", r#"{"":0},"#.repeat(1_000_000));
    let message = message("hi").to_string();
    let inside = message.replacen(r#"{"text":"hi"}"#, &format!(r#"{{"data":{junk}}}"#), 1);
    let beside = message.replacen('{', &format!(r#"{{"unknown":{junk},"#), 1);
    let client = gateway.client();
    for params in [inside, beside] {
        assert!(params.len() > junk.len());
        let envelope = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{params}}}"#);
        let rpc = client.post(envelope).send().await.unwrap();
        let rest = client
            .rest(reqwest::Method::POST, "message:send")
            .body(params)
            .send()
            .await
            .unwrap();
        for answer in [rpc, rest] {
            assert_eq!(answer.status(), 413);
            assert!(answer.text().await.unwrap().contains("too many values"));
        }
    }
    assert_eq!(client_keys(&redis), Vec::<String>::new());
}
