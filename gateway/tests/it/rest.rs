//! HTTP+JSON alone: paths, labels, bodies, and what is hostile.

use relevo_shared::domain::state::End;
use relevo_testkit::RedisServer;
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Stream, message};
use crate::gateway::{Gateway, client_keys, world};

#[tokio::test(flavor = "multi_thread")]
async fn both_media_types_are_understood_and_the_named_one_is_answered() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    for (sent, accept, answered) in [
        ("application/json", "*/*", "application/json"),
        (
            "application/json; charset=utf-8",
            "application/json",
            "application/json",
        ),
        ("application/a2a+json", "*/*", "application/a2a+json"),
        ("application/json", "application/a2a+json", "application/a2a+json"),
    ] {
        let mut params = message("hi");
        params["configuration"] = json!({ "returnImmediately": true });
        let request = client
            .rest(Method::POST, "message:send")
            .header("content-type", sent)
            .header("accept", accept);
        let response = request.body(params.to_string()).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], answered, "{sent} {accept}");
        let answer: Value = response.json().await.unwrap();
        let task = answer["task"]["id"].as_str().unwrap();
        let missing = client.rest(Method::GET, "tasks/x").header("accept", accept);
        let missing = missing.send().await.unwrap();
        assert_eq!(missing.status(), 404);
        let label = if accept == "application/a2a+json" {
            accept
        } else {
            "application/json"
        };
        assert_eq!(missing.headers()["content-type"], label);
        let found = client
            .rest(Method::GET, &format!("tasks/{task}/"))
            .send()
            .await
            .unwrap();
        assert_eq!(found.json::<Value>().await.unwrap(), answer["task"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_opened_by_get_and_by_post() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let request = client.rest(Method::POST, "message:stream").json(&message("hi"));
    let mut sent = Stream::of(request.send().await.unwrap());
    let first = sent.event().await;
    let task = first.json()["task"]["id"].as_str().unwrap().to_owned();
    let turn = world.hand.take().await;
    let path = format!("tasks/{task}:subscribe");
    let requests = [
        client.rest(Method::GET, &path),
        client.rest(Method::POST, &path),
        client.rest(Method::POST, &path).json(&json!({})),
    ];
    let mut streams = Vec::new();
    for request in requests {
        let mut stream = Stream::of(request.send().await.unwrap());
        assert_eq!(stream.event().await.json()["task"]["id"], *task);
        streams.push(stream);
    }
    turn.finish(End::Completed, "done").await;
    let expected = sent.rest().await;
    for mut stream in streams {
        assert_eq!(stream.rest().await, expected, "no envelope, the same bytes");
    }
    let request = client.rest(Method::GET, &path).header("last-event-id", first.cursor());
    let resumed = Stream::of(request.send().await.unwrap()).rest().await;
    assert_eq!(resumed, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_a_repeated_send_one_turn() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut params = message("hi");
    params["configuration"] = json!({ "returnImmediately": true });
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let request = client.rest(Method::POST, "message:send").json(&params);
        let request = request.header("idempotency-key", "0123456789abcdef");
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        tasks.push(answer["task"]["id"].clone());
    }
    assert!(tasks[0].is_string());
    assert_eq!(tasks[0], tasks[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_in_the_path_wins_over_the_body() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut params = message("hi");
    params["tenant"] = "b".into();
    params["configuration"] = json!({ "returnImmediately": true });
    let request = client.rest(Method::POST, "a/message:send").json(&params);
    let answer: Value = request.send().await.unwrap().json().await.unwrap();
    let task = answer["task"]["id"].as_str().unwrap();
    for (path, status) in [
        (format!("a/tasks/{task}"), 200),
        (format!("tasks/{task}?tenant=a"), 200),
        (format!("a/tasks/{task}?tenant=b"), 200),
        (format!("b/tasks/{task}"), 404),
        (format!("tasks/{task}"), 404),
    ] {
        let response = client.rest(Method::GET, &path).send().await.unwrap();
        assert_eq!(response.status(), status, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn nothing_hostile_gets_past_the_paths() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[("gateway.body_limit", "2KiB")]).await;
    let client = gateway.client();
    let long = "x".repeat(5_000);
    let deep = format!("{{\"message\":{}", "[".repeat(1_000));
    let post = |path: &str, body: &str| {
        client
            .rest(Method::POST, path)
            .header("content-type", "application/json")
            .body(body.to_owned())
    };
    let get = |path: &str| client.rest(Method::GET, path);
    for (request, status, name, reason) in [
        (post("message:send", ""), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        (post("message:send", "{"), 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
        (post("message:send", "nonsense"), 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
        (post("message:send", &deep), 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
        (post("message:send", "[]"), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        (post("message:send", "null"), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        (
            post("message:stream", "{\"message\":1}"),
            400,
            "INVALID_ARGUMENT",
            "INVALID_PARAMS",
        ),
        (post("message:send", &long), 413, "OUT_OF_RANGE", "REQUEST_TOO_LARGE"),
        (
            client.rest(Method::POST, "message:send").body("{}"),
            415,
            "INVALID_ARGUMENT",
            "CONTENT_TYPE_NOT_SUPPORTED",
        ),
        (
            client
                .rest(Method::POST, "message:send")
                .header("content-type", "text/plain")
                .body("{}"),
            415,
            "INVALID_ARGUMENT",
            "CONTENT_TYPE_NOT_SUPPORTED",
        ),
        (get("message:send"), 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED"),
        (
            client.rest(Method::DELETE, "tasks/x"),
            405,
            "UNIMPLEMENTED",
            "METHOD_NOT_ALLOWED",
        ),
        (get("tasks/x:cancel"), 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED"),
        (get("tasks/%00"), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (get("tasks/%ff%fe"), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (get("tasks/%2e%2e%2f%2e%2e"), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (get("tasks/a:b:c"), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (get("tasks/%7B%7D%2A%0D%0A"), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (get(&format!("tasks/{long}")), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (get(&format!("{long}/tasks")), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        (post("tasks/x:y:cancel", ""), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (post("tasks/x:cancel", "[]"), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        (post("tasks/x:subscribe", ""), 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (get("tasks?pageSize=x"), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        (
            get("tasks?pageSize=99999999999"),
            400,
            "INVALID_ARGUMENT",
            "INVALID_PARAMS",
        ),
        (
            get("tasks?pageSize=1&pageSize=2"),
            400,
            "INVALID_ARGUMENT",
            "INVALID_PARAMS",
        ),
        (
            get("tasks?includeArtifacts=yes"),
            400,
            "INVALID_ARGUMENT",
            "INVALID_PARAMS",
        ),
        (
            get("tasks?status=TASK_STATE_RUNNING"),
            400,
            "INVALID_ARGUMENT",
            "INVALID_PARAMS",
        ),
        (get("tasks?contextId=%2F"), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        (get("tasks?pageToken=%00"), 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        (
            get("tasks/x?historyLength=-1"),
            400,
            "INVALID_ARGUMENT",
            "INVALID_PARAMS",
        ),
        (
            get("tasks/x:subscribe").header("last-event-id", "1"),
            400,
            "INVALID_ARGUMENT",
            "INVALID_PARAMS",
        ),
    ] {
        let response = request.send().await.unwrap();
        let path = response.url().path().to_owned();
        assert_eq!(response.status(), status, "{path:.80}");
        assert_eq!(response.headers()["content-type"], "application/json", "{path:.80}");
        let text = response.text().await.unwrap();
        assert!(text.len() < 2_000, "an answer is small");
        let error = serde_json::from_str::<Value>(&text).unwrap()["error"].take();
        assert_eq!(error["code"], status, "{path:.80} {error}");
        assert_eq!(error["status"], name, "{path:.80} {error}");
        assert_eq!(error["details"][0]["reason"], reason, "{path:.80} {error}");
    }
    for path in ["x", "a/b/tasks", "tasks/x/y", "v1/message:send/x"] {
        assert_eq!(get(path).send().await.unwrap().status(), 404, "{path}");
    }
    assert_eq!(client_keys(&redis), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_parameter_says_nothing_and_the_version_may_be_one() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[]).await;
    let url = gateway.client().url;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = |path: &str| http.get(format!("{url}{path}"));
    for (path, status) in [
        ("tasks?A2A-Version=1.0", 200),
        ("tasks?A2A-Version=1.0&surprise=%5B1%5D&pageSize=", 400),
        ("tasks?A2A-Version=1.0&surprise=%5B1%5D&page_size=7", 200),
        ("tasks?A2A-Version=0.3", 400),
        ("tasks", 400),
    ] {
        let response = get(path).send().await.unwrap();
        assert_eq!(response.status(), status, "{path}");
    }
    let refused: Value = get("tasks").send().await.unwrap().json().await.unwrap();
    let info = &refused["error"]["details"][0];
    assert_eq!(info["reason"], "VERSION_NOT_SUPPORTED");
    assert_eq!(info["metadata"]["supportedVersions"], "1.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overload_is_a_503_with_a_time_to_come_back() {
    let world = world(&[("limits.scope_turns", "1")]).await;
    let client = world.gateway.client();
    let mut params = message("hi");
    params["configuration"] = json!({ "returnImmediately": true });
    let send = async || {
        let request = client.rest(Method::POST, "message:send").json(&params);
        request.send().await.unwrap()
    };
    // A scope has its share in each partition, at least one turn: some partition is met twice before long.
    let refused = loop {
        let response = send().await;
        if response.status() != 200 {
            break response;
        }
    };
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let error: Value = refused.json().await.unwrap();
    assert_eq!(error["error"]["status"], "RESOURCE_EXHAUSTED");
    assert_eq!(error["error"]["details"][0]["domain"], "relevo");
}
