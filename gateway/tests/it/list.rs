//! ListTasks.

use relevo_shared::domain::state::End;
use serde_json::{Value, json};

use crate::client::{Client, message, message_in};
use crate::gateway::{Gateway, World, world};

async fn ended(world: &World, client: &Client, params: Value, end: End) -> String {
    let (answer, ()) = tokio::join!(client.call("SendMessage", params), async {
        world.hand.take().await.finish(end, "done").await;
    });
    answer["task"]["id"].as_str().unwrap().to_owned()
}

fn ids(page: &Value) -> Vec<String> {
    page["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn pages_show_every_task_once_newest_first() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let empty = client.call("ListTasks", json!({})).await;
    assert_eq!(
        empty,
        json!({ "tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0 })
    );
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(ended(&world, &client, message("hi"), End::Completed).await);
    }
    let mut seen = Vec::new();
    let mut token = String::new();
    loop {
        let page = client
            .call("ListTasks", json!({ "pageSize": 3, "pageToken": token }))
            .await;
        assert_eq!((&page["totalSize"], &page["pageSize"]), (&json!(7), &json!(3)));
        seen.extend(ids(&page));
        token = page["nextPageToken"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
    }
    made.reverse();
    assert_eq!(seen, made);
}

#[tokio::test]
async fn a_listing_is_filtered_and_shows_no_more_than_asked_for() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let a = ended(&world, &client, message_in("a", "one"), End::Completed).await;
    let b = ended(&world, &client, message_in("b", "two"), End::InputRequired).await;
    let by = async |params: Value| ids(&client.call("ListTasks", params).await);
    assert_eq!(by(json!({})).await, [b.as_str(), a.as_str()]);
    assert_eq!(by(json!({ "contextId": "a" })).await, [a.as_str()]);
    assert_eq!(by(json!({ "context_id": "nobody" })).await, Vec::<String>::new());
    assert_eq!(by(json!({ "status": "TASK_STATE_INPUT_REQUIRED" })).await, [b.as_str()]);
    assert_eq!(
        by(json!({ "status": "TASK_STATE_COMPLETED", "contextId": "b" })).await,
        Vec::<String>::new()
    );
    assert_eq!(by(json!({ "tenant": "other" })).await, Vec::<String>::new());
    let page = client.call("ListTasks", json!({})).await;
    assert_eq!(page["tasks"][0]["history"], json!(null));
    assert_eq!(page["tasks"][0]["artifacts"], json!(null));
    let page = client
        .call("ListTasks", json!({ "historyLength": 5, "includeArtifacts": true }))
        .await;
    assert_eq!(page["tasks"][0]["history"][0]["parts"][0]["text"], "two");
    assert_eq!(page["tasks"][0]["artifacts"], json!([]));
}

#[tokio::test]
async fn a_token_of_another_listing_is_refused() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    for _ in 0..2 {
        ended(&world, &client, message("hi"), End::Completed).await;
    }
    let page = client.call("ListTasks", json!({ "pageSize": 1 })).await;
    let token = &page["nextPageToken"];
    let token = token.as_str().unwrap();
    assert_ne!(token, "");
    let changed = token.replacen(&token[9..10], if &token[9..10] == "M" { "N" } else { "M" }, 1);
    for params in [
        json!({ "pageToken": token, "status": "TASK_STATE_COMPLETED" }),
        json!({ "pageToken": token, "contextId": "a" }),
        json!({ "pageToken": token, "tenant": "other" }),
        json!({ "pageToken": token, "statusTimestampAfter": "2026-01-01T00:00:00Z" }),
        json!({ "pageToken": changed }),
        json!({ "pageToken": format!("{token}A") }),
        json!({ "pageToken": "nonsense" }),
        json!({ "pageSize": 0 }),
        json!({ "pageSize": 101 }),
        json!({ "historyLength": -1 }),
        json!({ "status": "TASK_STATE_RUNNING" }),
        json!({ "statusTimestampAfter": "2026-01-01" }),
        json!({ "statusTimestampAfter": "2026-01-01T00:00:00+00:00" }),
    ] {
        assert_eq!(client.refused("ListTasks", params.clone()).await.0, -32602, "{params}");
    }
}

#[tokio::test]
async fn a_token_is_good_at_every_gateway() {
    let world = world(&[]).await;
    let second = Gateway::start(&world.redis, &[]).await;
    let (client, other) = (world.gateway.client(), second.client());
    let mut made = Vec::new();
    for _ in 0..3 {
        made.insert(0, ended(&world, &client, message("hi"), End::Completed).await);
    }
    let first = client.call("ListTasks", json!({ "pageSize": 1 })).await;
    let rest = other
        .call(
            "ListTasks",
            json!({ "pageSize": 2, "pageToken": first["nextPageToken"] }),
        )
        .await;
    assert_eq!([ids(&first), ids(&rest)].concat(), made);
}

#[tokio::test]
async fn a_listing_since_a_time_begins_with_that_status() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut made = Vec::new();
    for _ in 0..3 {
        made.insert(0, ended(&world, &client, message_in("c", "hi"), End::Completed).await);
    }
    let all = client.call("ListTasks", json!({})).await;
    for (place, task) in all["tasks"].as_array().unwrap().iter().enumerate() {
        let time = task["status"]["timestamp"].as_str().unwrap();
        let same = |other: &&Value| other["status"]["timestamp"].as_str().unwrap() >= time;
        let expected = all["tasks"].as_array().unwrap().iter().filter(same).count();
        assert!(expected > place);
        for filter in [
            json!({}),
            json!({ "contextId": "c" }),
            json!({ "contextId": "c", "status": "TASK_STATE_COMPLETED" }),
        ] {
            let mut params = filter.clone();
            params["statusTimestampAfter"] = time.into();
            params["pageSize"] = 1.into();
            let (mut seen, mut token) = (Vec::new(), json!(""));
            while seen.is_empty() || token != "" {
                params["pageToken"] = token;
                let page = client.call("ListTasks", params.clone()).await;
                assert_eq!(page["totalSize"], expected, "{params}");
                seen.extend(ids(&page));
                token = page["nextPageToken"].clone();
            }
            assert_eq!(seen, made[..expected], "{params}");
            // A moment later it is another status.
            params["statusTimestampAfter"] = time.replace('Z', "000001Z").into();
            params["pageToken"] = json!("");
            let later = |other: &&Value| other["status"]["timestamp"].as_str().unwrap() > time;
            let fewer = all["tasks"].as_array().unwrap().iter().filter(later).count();
            assert_eq!(
                client.call("ListTasks", params.clone()).await["totalSize"],
                fewer,
                "{params}"
            );
        }
    }
}

#[tokio::test]
async fn a_page_of_large_statuses_is_cut_short() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let text = "x".repeat(1_000_000);
    let mut made = Vec::new();
    for _ in 0..6 {
        let (answer, ()) = tokio::join!(client.call("SendMessage", message("hi")), async {
            world.hand.take().await.finish(End::Completed, &text).await;
        });
        made.insert(0, answer["task"]["id"].as_str().unwrap().to_owned());
    }
    let page = client.call("ListTasks", json!({})).await;
    assert_eq!(ids(&page), made[..4]);
    let page = client
        .call("ListTasks", json!({ "pageToken": page["nextPageToken"] }))
        .await;
    assert_eq!((ids(&page), &page["nextPageToken"]), (made[4..].to_vec(), &json!("")));
}
