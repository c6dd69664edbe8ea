//! Redis that does not answer, answers late, or loses a reply.

use relevo_shared::domain::state::End;
use relevo_testkit::{FaultProxy, RedisServer, poll};
use serde_json::{Value, json};

use crate::client::{Frame, message};
use crate::gateway::{Gateway, store};
use crate::hand::Hand;

#[tokio::test]
async fn a_submit_whose_reply_is_lost_starts_exactly_one_turn() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.upstream());
    let gateway = Gateway::start_at(&proxy.url(), &[]).await;
    let hand = Hand::new(store(&redis).await);
    let client = gateway.client();
    proxy.lose_reply_to(b"a text that only this message has", 2);
    let mut stream = client
        .stream("SendStreamingMessage", message("a text that only this message has"))
        .await;
    let first = stream.event().await;
    assert_eq!(proxy.lost_replies(), 2);
    hand.take().await.finish(End::Completed, "once").await;
    assert_eq!(stream.rest().await.last().unwrap().text(), "once");
    assert!(hand.try_take().await.is_none());
    let listed = client.call("ListTasks", json!({})).await;
    assert_eq!(listed["totalSize"], 1);
    assert_eq!(listed["tasks"][0]["id"], first.result()["task"]["id"]);
}

#[tokio::test]
async fn a_redis_that_is_away_is_a_503_that_says_what_is_not_known() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[("gateway.request_timeout", "300ms")]).await;
    let client = gateway.client();
    redis.kill();
    let sent = client.request("SendMessage", &message("hi")).send().await.unwrap();
    assert_eq!(sent.status(), 503);
    assert!(sent.headers().contains_key("retry-after"));
    let body: Value = sent.json().await.unwrap();
    let info = &body["error"]["data"][0];
    assert_eq!(
        (&body["error"]["code"], &info["reason"]),
        (&json!(-32603), &json!("UNAVAILABLE"))
    );
    assert_eq!(info["metadata"]["outcome"], "unknown");
    assert!(info["metadata"]["taskId"].is_string());
    let id = json!({ "id": info["metadata"]["taskId"] });
    let read = client.request("GetTask", &id).send().await.unwrap();
    assert_eq!(read.status(), 503);
    let body: Value = read.json().await.unwrap();
    assert_eq!(body["error"]["data"][0]["metadata"]["outcome"], json!(null));
}

#[tokio::test]
async fn open_streams_are_held_over_an_outage_and_lose_nothing() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.upstream());
    let gateway = Gateway::start_at(&proxy.url(), &[("redis.timeout", "200ms")]).await;
    let hand = Hand::new(store(&redis).await);
    let client = gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    stream.event().await;
    let mut turn = hand.take().await;
    let blocking = client.call("SendMessage", message("wait"));
    let (answer, ()) = tokio::join!(blocking, async {
        let waiting = hand.take().await;
        proxy.refuse_new();
        proxy.cut_all();
        turn.say("while you were away").await;
        waiting.finish(End::Completed, "answered").await;
        poll::until("the gateway to notice", async || {
            let ready = reqwest::get(format!("http://{}/readyz", gateway.admin))
                .await
                .unwrap()
                .status();
            if ready == 503 { Ok(()) } else { Err(ready) }
        })
        .await;
        proxy.accept_new();
    });
    assert_eq!(answer["task"]["status"]["message"]["parts"][0]["text"], "answered");
    turn.finish(End::Completed, "done").await;
    let texts: Vec<String> = stream.rest().await.iter().map(Frame::text).collect();
    assert_eq!(texts, ["", "while you were away", "done"]);
    poll::until("the gateway to be ready again", async || {
        let ready = reqwest::get(format!("http://{}/readyz", gateway.admin))
            .await
            .unwrap()
            .status();
        if ready == 200 { Ok(()) } else { Err(ready) }
    })
    .await;
}

#[tokio::test]
async fn a_full_redis_refuses_new_work_and_lets_accepted_turns_end() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[]).await;
    let hand = Hand::new(store(&redis).await);
    let client = gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    stream.event().await;
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = client.request("SendMessage", &message("more")).send().await.unwrap();
    assert_eq!(refused.status(), 503);
    let body: Value = refused.json().await.unwrap();
    assert_eq!(
        body["error"]["data"][0]["metadata"],
        json!({ "cause": "memory" }),
        "nothing is unknown about it"
    );
    hand.take().await.finish(End::Completed, "done").await;
    assert_eq!(stream.rest().await.last().unwrap().text(), "done");
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    let (answer, ()) = tokio::join!(client.call("SendMessage", message("again")), async {
        hand.take().await.finish(End::Completed, "fine").await;
    });
    assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn scripts_that_redis_forgot_are_sent_again() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[]).await;
    let hand = Hand::new(store(&redis).await);
    let client = gateway.client();
    for _ in 0..3 {
        redis.cli(&["SCRIPT", "FLUSH"]);
        let (answer, ()) = tokio::join!(client.call("SendMessage", message("hi")), async {
            hand.take().await.finish(End::Completed, "fine").await;
        });
        assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    }
}

#[tokio::test]
async fn a_redis_that_stands_still_does_not_hold_a_request_beyond_its_time() {
    let redis = RedisServer::start();
    let limits = [("gateway.request_timeout", "300ms"), ("redis.timeout", "1h")];
    let gateway = Gateway::start(&redis, &limits).await;
    let client = gateway.client();
    redis.stop();
    for (method, params) in [("SendMessage", message("hi")), ("ListTasks", json!({}))] {
        let answer = client.request(method, &params).send().await.unwrap();
        assert_eq!(answer.status(), 503, "{method}");
    }
    redis.cont();
}

#[tokio::test]
async fn a_conversation_flows_on_a_cluster_of_one_node() {
    let redis = RedisServer::start_cluster_node();
    let gateway = Gateway::start(&redis, &[]).await;
    let hand = Hand::new(store(&redis).await);
    let client = gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    let mut turn = hand.take().await;
    turn.say("a").await;
    turn.finish(End::InputRequired, "b").await;
    let frames = stream.rest().await;
    let texts: Vec<String> = frames.iter().map(Frame::text).collect();
    assert_eq!(texts, ["", "", "a", "b"]);
    let id = json!({ "id": frames[0].result()["task"]["id"] });
    assert_eq!(
        client.call("CancelTask", id).await["status"]["state"],
        "TASK_STATE_CANCELED"
    );
    assert_eq!(client.call("ListTasks", json!({})).await["totalSize"], 1);
}
