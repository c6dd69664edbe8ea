//! What is refused before it is stored.

use serde_json::{Value, json};

use crate::client::message;
use crate::gateway::{client_keys, world};

async fn refusal(client: &crate::client::Client) -> (u16, Option<String>, Value) {
    let mut params = message("hi");
    params["configuration"] = json!({ "returnImmediately": true });
    let response = client.request("SendMessage", &params).send().await.unwrap();
    let status = response.status().as_u16();
    let after = response
        .headers()
        .get("retry-after")
        .map(|v| v.to_str().unwrap().to_owned());
    let mut body: Value = response.json().await.unwrap();
    (status, after, body["error"].take())
}

#[tokio::test]
async fn a_scope_has_as_many_live_turns_as_it_may_and_then_again() {
    let world = world(&[("limits.scope_turns", "3")]).await;
    let client = world.gateway.client();
    let mut accepted = 0;
    let (status, after, error) = loop {
        let (status, after, error) = refusal(&client).await;
        if status != 200 {
            break (status, after, error);
        }
        accepted += 1;
    };
    assert_eq!(accepted, 3);
    assert_eq!(status, 429);
    assert!(after.unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(error["code"], -32603);
    assert_eq!(error["data"][0]["reason"], "RATE_LIMITED");
    for _ in 0..accepted {
        world
            .hand
            .take()
            .await
            .finish(relevo_shared::domain::state::End::Completed, "")
            .await;
    }
    relevo_testkit::poll::until("the scope may go on", || async {
        match refusal(&client).await.0 {
            200 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    world
        .hand
        .take()
        .await
        .finish(relevo_shared::domain::state::End::Completed, "")
        .await;
    let left = client_keys(&world.redis);
    assert!(left.iter().all(|key| !key.contains(":q:")), "{left:?}");
}

#[tokio::test]
async fn a_nearly_full_redis_takes_no_new_work_and_stores_nothing() {
    let world = world(&[("limits.redis_memory", "0.5")]).await;
    let client = world.gateway.client();
    assert_eq!(refusal(&client).await.0, 200);
    // Beside this, what connections and scripts take and give back is small: the share stays where it is put.
    world.redis.cli(&["SETRANGE", "ballast", "33554431", "x"]);
    let before = client_keys(&world.redis).len();
    let used = world.redis.used_memory();
    world
        .redis
        .cli(&["CONFIG", "SET", "maxmemory", &(used * 3 / 2).to_string()]);
    let (after, error) = relevo_testkit::poll::until("new work is refused", || async {
        match refusal(&client).await {
            (503, after, error) => Ok((after, error)),
            (other, ..) => Err(other),
        }
    })
    .await;
    assert!(after.is_some());
    assert_eq!(error["data"][0]["reason"], "UNAVAILABLE");
    assert_eq!(error["data"][0]["metadata"]["cause"], "memory");
    let refused_from = client_keys(&world.redis).len();
    assert_eq!(refusal(&client).await.0, 503);
    assert_eq!(client_keys(&world.redis).len(), refused_from);
    assert!(refused_from >= before);
    world.redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    relevo_testkit::poll::until("service resumes", || async {
        match refusal(&client).await.0 {
            200 => Ok(()),
            other => Err(other),
        }
    })
    .await;
}
