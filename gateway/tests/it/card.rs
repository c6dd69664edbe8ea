//! The agent card and /health over HTTP.

use relevo_testkit::RedisServer;
use reqwest::Method;
use serde_json::Value;

use crate::gateway::Gateway;

const PATH: &str = ".well-known/agent-card.json";

#[tokio::test]
async fn the_card_is_cached_by_its_etag_and_names_the_listener() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[]).await;
    let client = gateway.client();
    let full = client.get(PATH).send().await.unwrap();
    assert_eq!(full.status(), 200);
    assert_eq!(full.headers()["cache-control"], "public, max-age=60");
    let etag = full.headers()["etag"].clone();
    let card: Value = full.json().await.unwrap();
    assert_eq!(
        card["supportedInterfaces"][0]["url"],
        format!("http://{}", gateway.listen)
    );
    let again = client
        .get(PATH)
        .header("if-none-match", etag.clone())
        .send()
        .await
        .unwrap();
    assert_eq!(again.status(), 304);
    assert_eq!(again.headers()["etag"], etag);
    assert_eq!(again.bytes().await.unwrap().len(), 0);
    let other = client
        .get(PATH)
        .header("if-none-match", "\"other\"")
        .send()
        .await
        .unwrap();
    assert_eq!(other.status(), 200);
}

#[tokio::test]
async fn head_is_answered_without_a_body() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[("gateway.public_url", "https://agents.example.com")]).await;
    let client = gateway.client();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let head = http
        .request(Method::HEAD, format!("{}{PATH}", client.url))
        .send()
        .await
        .unwrap();
    assert_eq!(head.status(), 200);
    assert!(head.headers().contains_key("etag"));
    assert_eq!(head.bytes().await.unwrap().len(), 0);
    let card: Value = client.get(PATH).send().await.unwrap().json().await.unwrap();
    assert_eq!(card["supportedInterfaces"][0]["url"], "https://agents.example.com");
    let wrong = http.post(format!("{}{PATH}", client.url)).send().await.unwrap();
    assert_eq!(
        (wrong.status().as_u16(), &wrong.headers()["allow"]),
        (405, &"GET, HEAD".parse().unwrap())
    );
    let health: Value = client.get("health").send().await.unwrap().json().await.unwrap();
    assert_eq!(health["status"], "healthy");
}
