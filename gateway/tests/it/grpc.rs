//! gRPC alone: metadata, statuses, draining, and what is hostile.

use a2a_pb::proto;
use a2a_pb::proto::part::Content;
use a2a_pb::proto::{GetTaskRequest, ListTasksRequest, Message, Part, SendMessageRequest, SubscribeToTaskRequest};
use futures_util::stream;
use relevo_shared::domain::state::End;
use relevo_testkit::RedisServer;
use serde_json::{Value, json};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::client::message;
use crate::gateway::{Gateway, client_keys, world};
use crate::grpc_client::{Client, event, refusal, request};

fn send(parts: Vec<Part>) -> SendMessageRequest {
    SendMessageRequest {
        message: Some(Message {
            message_id: "m".to_owned(),
            role: 1,
            parts,
            ..Message::default()
        }),
        ..SendMessageRequest::default()
    }
}

fn text(text: &str) -> Part {
    Part {
        content: Some(Content::Text(text.to_owned())),
        ..Part::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_hostile_gets_past_the_messages() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[("gateway.body_limit", "2KiB")]).await;
    let mut client = Client::new(gateway.grpc).raw();
    let context = |id: &str| {
        let mut request = send(vec![text("hi")]);
        request.message.as_mut().unwrap().context_id = id.to_owned();
        request
    };
    let role = |role| {
        let mut request = send(vec![text("hi")]);
        request.message.as_mut().unwrap().role = role;
        request
    };
    for (message, reason, field) in [
        (SendMessageRequest::default(), "INVALID_PARAMS", "message"),
        (send(Vec::new()), "INVALID_PARAMS", "message.parts"),
        (
            send(vec![text("a"), Part::default()]),
            "INVALID_PARAMS",
            "message.parts[1]",
        ),
        (context("a/b"), "INVALID_PARAMS", "message.contextId"),
        (context("{}"), "INVALID_PARAMS", "message.contextId"),
        (role(0), "INVALID_PARAMS", "message.role"),
        (role(2), "INVALID_PARAMS", "message.role"),
        (role(77), "INVALID_PARAMS", "message.role"),
    ] {
        let status = client.send_message(request(message, None)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        let refusal = refusal(&status);
        assert_eq!(refusal.reason, reason);
        assert_eq!(refusal.details[1]["fieldViolations"][0]["field"], field);
    }
    let large = send(vec![text(&"x".repeat(5_000))]);
    let status = client.send_message(request(large, None)).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    for id in ["", "x", "a:b", "{}", "\u{0}", "../.."] {
        let wanted = GetTaskRequest {
            id: id.to_owned(),
            ..GetTaskRequest::default()
        };
        let status = client.get_task(request(wanted, None)).await.unwrap_err();
        let code = if id.is_empty() {
            Code::InvalidArgument
        } else {
            Code::NotFound
        };
        assert_eq!(status.code(), code, "{id} {status:?}");
    }
    for wrong in [
        ListTasksRequest {
            page_size: Some(0),
            ..ListTasksRequest::default()
        },
        ListTasksRequest {
            status: 99,
            ..ListTasksRequest::default()
        },
        ListTasksRequest {
            page_token: "x".to_owned(),
            ..ListTasksRequest::default()
        },
        ListTasksRequest {
            history_length: Some(-1),
            ..ListTasksRequest::default()
        },
        ListTasksRequest {
            status_timestamp_after: Some(prost_types::Timestamp {
                seconds: i64::MAX,
                nanos: -1,
            }),
            ..ListTasksRequest::default()
        },
    ] {
        let status = client.list_tasks(request(wrong.clone(), None)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{wrong:?}");
    }
    assert_eq!(client_keys(&redis), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_travels_in_metadata() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[]).await;
    let mut client = Client::new(gateway.grpc).raw();
    for (version, served) in [
        (Some("1.0"), true),
        (Some("1.7"), true),
        (Some("0.3"), false),
        (None, false),
    ] {
        let mut request = Request::new(ListTasksRequest::default());
        if let Some(version) = version {
            request.metadata_mut().insert("a2a-version", version.parse().unwrap());
        }
        match client.list_tasks(request).await {
            Ok(_) => assert!(served, "{version:?}"),
            Err(status) => {
                assert!(!served, "{version:?}");
                assert_eq!(status.code(), Code::FailedPrecondition);
                assert_eq!(refusal(&status).reason, "VERSION_NOT_SUPPORTED");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_a_repeated_send_one_turn_on_every_binding() {
    let world = world(&[]).await;
    let mut client = Client::new(world.gateway.grpc).raw();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let mut message = send(vec![text("hi")]);
        message.configuration.get_or_insert_default().return_immediately = true;
        let mut request = request(message, None);
        let key = "0123456789abcdef".parse().unwrap();
        request.metadata_mut().insert("idempotency-key", key);
        let answer = client.send_message(request).await.unwrap().into_inner();
        tasks.push(answer);
    }
    assert_eq!(format!("{:?}", tasks[0]), format!("{:?}", tasks[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_are_told_only_to_those_who_ask() {
    let world = world(&[]).await;
    let mut client = Client::new(world.gateway.grpc).raw();
    let mut plain = Request::new(send(vec![text("hi")]));
    plain.metadata_mut().insert("a2a-version", "1.0".parse().unwrap());
    let response = client.send_streaming_message(plain).await.unwrap();
    assert!(response.metadata().get("a2a-extensions").is_none());
    world.hand.take().await.finish(End::Completed, "done").await;
    let mut events = response.into_inner();
    while let Some(event) = events.message().await.unwrap() {
        assert!(!format!("{event:?}").contains("urn:relevo"), "{event:?}");
    }
}

/// A stream that waits for nothing is told to come back; one with a running turn is finished.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_moves_idle_streams_and_finishes_busy_ones() {
    let world = world(&[("drain.delay", "0s")]).await;
    let client = Client::new(world.gateway.grpc);
    let mut params = message("one");
    params["configuration"] = json!({ "returnImmediately": true });
    let sent = client.call("SendMessage", params).await.unwrap();
    world.hand.take().await.finish(End::InputRequired, "?").await;
    let idle = SubscribeToTaskRequest {
        id: sent["task"]["id"].as_str().unwrap().to_owned(),
        ..SubscribeToTaskRequest::default()
    };
    let mut idle = client
        .raw()
        .subscribe_to_task(request(idle, None))
        .await
        .unwrap()
        .into_inner();
    idle.message().await.unwrap().unwrap();
    let mut sender = client.raw();
    let busy = sender.send_streaming_message(request(send(vec![text("two")]), None));
    let mut busy = busy.await.unwrap().into_inner();
    busy.message().await.unwrap().unwrap();
    let mut turn = world.hand.take().await;
    turn.begin().await;
    world.gateway.shutdown.trigger();
    let status = idle.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(refusal(&status).reason, "STREAM_MOVED");
    turn.finish(End::Completed, "done").await;
    let mut last = None;
    while let Some(message) = busy.message().await.unwrap() {
        last = Some(event(&message).0);
    }
    assert_eq!(last.unwrap()["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    drop((idle, busy, client));
    world.gateway.ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_answered_and_its_watchers_do_not_hold_a_drain() {
    let world = world(&[("drain.delay", "0s")]).await;
    let address = format!("http://{}", world.gateway.grpc);
    let channel = Endpoint::from_shared(address).unwrap().connect_lazy();
    let mut health = HealthClient::new(channel);
    for (service, known) in [("", true), ("lf.a2a.v1.A2AService", true), ("other", false)] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = health.check(request).await;
        assert_eq!(answer.is_ok(), known, "{service} {answer:?}");
    }
    let watch = health.watch(HealthCheckRequest::default()).await;
    let mut watch = watch.unwrap().into_inner();
    let serving = watch.message().await.unwrap().unwrap();
    assert_eq!(serving.status(), ServingStatus::Serving);
    world.gateway.shutdown.trigger();
    while let Ok(Some(next)) = watch.message().await {
        assert_eq!(next.status(), ServingStatus::NotServing);
    }
    world.gateway.ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_card_lists_grpc_where_it_is_served() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, &[]).await;
    let path = ".well-known/agent-card.json";
    let card: Value = gateway.client().get(path).send().await.unwrap().json().await.unwrap();
    let listed = &card["supportedInterfaces"][2];
    assert_eq!(listed["protocolBinding"], "GRPC");
    assert_eq!(
        listed["url"],
        gateway.grpc.to_string(),
        "host and port without a scheme"
    );
    let public = [("gateway.grpc_public", "agents.example.com:443")];
    let gateway = Gateway::start(&redis, &public).await;
    let card: Value = gateway.client().get(path).send().await.unwrap().json().await.unwrap();
    assert_eq!(card["supportedInterfaces"][2]["url"], "agents.example.com:443");
}

#[tokio::test]
async fn bytes_that_are_no_message_are_the_clients_mistake() {
    let world = world(&[]).await;
    let channel = Endpoint::from_shared(format!("http://{}", world.gateway.grpc))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut raw = tonic::client::Grpc::new(channel);
    for method in ["GetTask", "SendMessage", "SubscribeToTask"] {
        raw.ready().await.unwrap();
        // Its first field is a number, where all methods have a text or a message.
        let other = prost_types::Timestamp { seconds: 1, nanos: 0 };
        let path = PathAndQuery::try_from(format!("/lf.a2a.v1.A2AService/{method}")).unwrap();
        let codec = tonic_prost::ProstCodec::<_, proto::Task>::default();
        let status = raw.unary(Request::new(other), path, codec).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{method}: {status}");
        let refusal = refusal(&status);
        assert_eq!(
            (
                refusal.reason.as_str(),
                &refusal.details[1]["fieldViolations"][0]["field"]
            ),
            ("INVALID_PARAMS", &"request".into())
        );
    }
}

#[tokio::test]
async fn tools_are_told_which_services_there_are() {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    use tonic_reflection::pb::v1::{ServerReflectionRequest, ServiceResponse};

    let world = world(&[]).await;
    let channel = Endpoint::from_shared(format!("http://{}", world.gateway.grpc))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut client = ServerReflectionClient::new(channel);
    let ask = |request| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(request),
    };
    let asked = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(
            "lf.a2a.v1.A2AService.SendMessage".to_owned(),
        )),
    ];
    let mut answers = client
        .server_reflection_info(stream::iter(asked))
        .await
        .unwrap()
        .into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) = answers.message().await.unwrap().unwrap().message_response
    else {
        panic!("no list");
    };
    let mut names: Vec<String> = list.service.into_iter().map(|ServiceResponse { name }| name).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "lf.a2a.v1.A2AService"
        ]
    );
    let file = answers.message().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::FileDescriptorResponse(file)) = file else {
        panic!("{file:?}");
    };
    assert!(!file.file_descriptor_proto.is_empty());
}
