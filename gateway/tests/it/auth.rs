//! Credentials: who is let in on which binding, what is said to the others, what only those who are let in see.

use relevo_shared::domain::state::End;
use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::binding::{ALL, Binding, Caller};
use crate::client::message;
use crate::gateway::{Gateway, World, client_keys, world_with};
use crate::grpc_client::{encode, request};
use a2a_pb::protojson;
use relevo_testkit::RedisServer;
use relevo_testkit::schema::without_0_3;

const PRINCIPALS: &str = "
[principals.ann]
token = [\"ann-1\", \"ann-2\"]
api_key = \"ann-key\"
[principals.bob]
password = \"bobs\"
";
const CARD: &str = ".well-known/agent-card.json";

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[tokio::test]
async fn whoever_shows_no_credential_gets_nowhere_on_any_binding() {
    let world = world_with(PRINCIPALS, &[]).await;
    for headers in [
        vec![],
        vec![("authorization", "Bearer nobody")],
        vec![("x-api-key", "ann-1")],
    ] {
        let client = world.gateway.client_with(&headers);
        for refused in [
            client.request("SendMessage", &message("hi")),
            client.request("NoSuchMethod", &json!({})),
            client.post("no json"),
            client.rest(reqwest::Method::GET, "tasks"),
            client.rest(reqwest::Method::POST, "message:send").body("{}"),
            client.rest(reqwest::Method::GET, "extendedAgentCard"),
        ] {
            let answer = refused.send().await.unwrap();
            assert_eq!(answer.status(), 401);
            let challenges: Vec<_> = answer.headers().get_all("www-authenticate").iter().cloned().collect();
            assert_eq!(challenges.len(), 2, "{challenges:?}");
            assert_eq!(answer.headers()["content-type"], "application/json");
            assert_eq!(answer.text().await.unwrap(), r#"{"error":"Unauthorized"}"#);
        }
        let caller = Caller::with_headers(Binding::Grpc, &world.gateway, &headers);
        let refusal = caller.call("GetTask", json!({ "id": "x" })).await.unwrap_err();
        assert_eq!(
            (refusal.code, refusal.reason.as_str()),
            (Code::Unauthenticated as i64, "UNAUTHENTICATED")
        );
    }
    assert_eq!(client_keys(&world.redis), Vec::<String>::new());
    // What load balancers and newcomers need is open.
    let open = world.gateway.client();
    assert_eq!(open.get("health").send().await.unwrap().status(), 200);
    assert_eq!(open.get(CARD).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn all_credentials_of_a_principal_are_one_caller_on_every_binding() {
    let world = world_with(PRINCIPALS, &[]).await;
    let ann = world.gateway.client_with(&[("authorization", "Bearer ann-1")]);
    let call = ann.call("SendMessage", message("hi"));
    let (sent, ()) = tokio::join!(call, async {
        let turn = world.hand.take().await;
        assert_eq!(turn.taken.record.sender.subject, "ann");
        turn.finish(End::Completed, "done").await;
    });
    let id = &sent["task"]["id"];
    for headers in [("authorization", "Bearer ann-2"), ("x-api-key", "ann-key")] {
        for binding in ALL {
            let caller = Caller::with_headers(binding, &world.gateway, &[headers]);
            assert_eq!(
                caller.result("GetTask", json!({ "id": id })).await["id"],
                *id,
                "{binding:?}"
            );
        }
    }
    let bob = world.gateway.client_with(&[("authorization", "Basic Ym9iOmJvYnM=")]);
    assert_eq!(
        bob.refused("GetTask", json!({ "id": id })).await,
        (-32001, "TASK_NOT_FOUND".to_owned())
    );
    assert_eq!(bob.call("ListTasks", json!({})).await["totalSize"], 0);
    // The credential itself is nowhere: not in the task, not in Redis.
    let dump = world.redis.cli(&["--no-raw", "EVAL", DUMP, "0"]);
    assert!(dump.contains("w-") && !dump.contains("ann-"), "{dump}");
}

/// Everything that hashes and lists hold.
const DUMP: &str = "local all = {} for _, key in ipairs(redis.call('KEYS', '*')) do local t = redis.call('TYPE', key).ok \
    if t == 'hash' then all[#all+1] = table.concat(redis.call('HGETALL', key), ' ') \
    elseif t == 'list' then all[#all+1] = table.concat(redis.call('LRANGE', key, 0, -1), ' ') end end return all";

async fn public_card(world: &World) -> Value {
    let answer = world.gateway.client().get(CARD).send().await.unwrap();
    answer.json().await.unwrap()
}

#[tokio::test]
async fn the_extended_card_is_for_callers_with_a_credential_on_every_binding() {
    let file = format!("{PRINCIPALS}[agents.a]\nkind = \"demo\"\nprofile = \"iac-code\"\n");
    let world = world_with(&file, &[]).await;
    let public = public_card(&world).await;
    assert_eq!(public["capabilities"]["extendedAgentCard"], true);
    assert_eq!(public["skills"].as_array().unwrap().len(), 4);
    for binding in ALL {
        let ann = Caller::with_headers(binding, &world.gateway, &[("authorization", &bearer("ann-1"))]);
        let card = ann.result("GetExtendedAgentCard", json!({})).await;
        assert_eq!(card["name"], "iac-code", "{binding:?}");
        assert_eq!(card["skills"].as_array().unwrap().len(), 5, "{binding:?}");
        let schemes = &without_0_3(public.clone())["securitySchemes"];
        assert_eq!(&card["securitySchemes"], schemes, "{binding:?}");
    }
    let ann = world.gateway.client_with(&[("authorization", "Bearer ann-1")]);
    let answer = ann
        .rest(reqwest::Method::GET, "extendedAgentCard")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.headers()["cache-control"], "private, max-age=60");
    // Parameters may be absent altogether.
    let bare = json!({ "jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard" });
    let answer: Value = ann.post(bare.to_string()).send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["result"]["name"], "iac-code");
}

#[tokio::test]
async fn without_credentials_there_is_no_extended_card() {
    let world = world_with("", &[]).await;
    let public = public_card(&world).await;
    assert_eq!(public["capabilities"]["extendedAgentCard"], false);
    for binding in ALL {
        let caller = Caller::new(binding, &world.gateway);
        let refusal = caller.call("GetExtendedAgentCard", json!({})).await.unwrap_err();
        assert_eq!(refusal.reason, "UNSUPPORTED_OPERATION", "{binding:?}");
    }
}

#[tokio::test]
async fn a_card_that_is_not_public_is_cached_by_nobody_else() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[("auth.token", "t"), ("auth.card", "true")]).await;
    assert_eq!(gateway.client().get(CARD).send().await.unwrap().status(), 401);
    let caller = gateway.client_with(&[("authorization", "Bearer t")]);
    let card = caller.get(CARD).send().await.unwrap();
    assert_eq!(card.headers()["cache-control"], "private, max-age=60");
    assert_eq!(card.headers()["vary"], "a2a-version, authorization, x-api-key");
    let changed = card.headers()["last-modified"].clone();
    let again = caller
        .get(CARD)
        .header("if-modified-since", changed)
        .send()
        .await
        .unwrap();
    assert_eq!(again.status(), 304);
}

#[tokio::test]
async fn the_card_is_the_same_on_every_gateway_and_after_a_restart() {
    let redis = RedisServer::start();
    let file = "[agents.a]\nkind = \"demo\"\nprofile = \"iac-code\"\n";
    let settings = [
        ("gateway.public_url", "https://a.example"),
        ("gateway.grpc_public", "a.example:1"),
        ("auth.token", "t"),
    ];
    let mut cards = Vec::new();
    for _ in 0..3 {
        let gateway = Gateway::start_with(&redis.url(), file, &settings).await;
        let card = gateway.client().get(CARD).send().await.unwrap();
        let marks = ["etag", "last-modified", "cache-control"].map(|name| card.headers()[name].clone());
        cards.push((marks, card.bytes().await.unwrap()));
    }
    assert_eq!(cards[0], cards[1]);
    assert_eq!(cards[1], cards[2]);
}

#[tokio::test]
async fn a_short_key_is_good_enough_for_a_caller_with_a_name() {
    let world = world_with(PRINCIPALS, &[]).await;
    let ann = world.gateway.client_with(&[("authorization", "Bearer ann-1")]);
    let mut params = message("hi");
    params["configuration"] = json!({ "returnImmediately": true });
    let first = ann.keyed("k", &params).await.unwrap();
    let again = ann.keyed("k", &params).await.unwrap();
    assert_eq!(first["task"]["id"], again["task"]["id"]);
    // The same key of another caller is another key.
    let bob = world.gateway.client_with(&[("authorization", "Basic Ym9iOmJvYnM=")]);
    assert_ne!(
        bob.keyed("k", &params).await.unwrap()["task"]["id"],
        first["task"]["id"]
    );
}

#[tokio::test]
async fn health_of_grpc_needs_no_credential_and_streams_do() {
    let world = world_with(PRINCIPALS, &[]).await;
    let mut raw = Caller::new(Binding::Grpc, &world.gateway).grpc().raw();
    let sent = encode::<protojson::SendMessageRequest, _>(message("hi"));
    let status = raw.send_streaming_message(request(sent, None)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    let channel = Endpoint::from_shared(format!("http://{}", world.gateway.grpc))
        .unwrap()
        .connect_lazy();
    let asked = HealthCheckRequest {
        service: "lf.a2a.v1.A2AService".to_owned(),
    };
    let health = HealthClient::new(channel).check(asked).await.unwrap().into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);
}
