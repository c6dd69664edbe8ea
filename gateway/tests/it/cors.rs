//! What pages of other origins may do.

use relevo_testkit::RedisServer;
use reqwest::Method;

use crate::gateway::Gateway;
use crate::http::Reply;

const PAGE: &str = "https://app.example.com";
const CARD: &str = ".well-known/agent-card.json";

async fn preflight(gateway: &Gateway, path: &str, origin: &str) -> Reply {
    let request = gateway
        .client()
        .rest(Method::OPTIONS, path)
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "content-type,a2a-version,last-event-id",
        );
    request.send().await.unwrap()
}

fn allowed(response: &Reply) -> Option<&str> {
    let allowed = response.headers().get("access-control-allow-origin")?;
    allowed.to_str().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_card_is_for_every_page() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[]).await;
    let client = gateway.client();
    let card = client.get(CARD).header("origin", PAGE).send().await.unwrap();
    assert_eq!(allowed(&card), Some("*"));
    for path in ["", "tasks", "message:send"] {
        let preflight = preflight(&gateway, path, PAGE).await;
        assert_eq!(allowed(&preflight), None, "{path}");
        assert!(!preflight.status().is_success(), "{path}");
    }
    let list = client.rest(Method::GET, "tasks").header("origin", PAGE);
    assert_eq!(allowed(&list.send().await.unwrap()), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_in_the_list_may_call_every_binding() {
    let redis = RedisServer::start();
    let origins = format!("{PAGE},http://localhost:3000");
    let gateway = Gateway::start(&redis, &[("gateway.cors_origins", &origins)]).await;
    let client = gateway.client();
    for path in ["", "tasks", "message:send", "a/tasks/x:subscribe"] {
        let good = preflight(&gateway, path, PAGE).await;
        assert_eq!((good.status().as_u16(), allowed(&good)), (200, Some(PAGE)), "{path}");
        let headers = good.headers()["access-control-allow-headers"].to_str().unwrap();
        assert!(headers.contains("last-event-id"), "{headers}");
        assert_eq!(
            allowed(&preflight(&gateway, path, "https://evil.example.com").await),
            None
        );
        assert_eq!(allowed(&preflight(&gateway, path, "null").await), None);
    }
    for (method, path) in [(Method::GET, "tasks"), (Method::GET, "tasks/x"), (Method::POST, "")] {
        let request = client.rest(method, path).header("origin", PAGE);
        let response = request.send().await.unwrap();
        assert_eq!(allowed(&response), Some(PAGE), "errors are readable, too: {path}");
        assert!(response.headers()["vary"].to_str().unwrap().contains("origin"));
    }
    let card = client.get(CARD).header("origin", "https://other.example.com");
    assert_eq!(allowed(&card.send().await.unwrap()), Some("*"));
}
