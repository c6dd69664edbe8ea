//! gRPC: what is sent that is no message, or says what JSON cannot.

use a2a_pb::{proto, protojson};
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tonic::codegen::Service as _;
use tonic::codegen::http::Request;
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use crate::client::message;
use crate::gateway::world;
use crate::grpc_client::{Client, encode, refusal, request};

#[tokio::test]
async fn a_body_that_is_no_message_is_the_clients_mistake() {
    let world = world(&[]).await;
    let channel = Endpoint::from_shared(format!("http://{}", world.gateway.grpc)).unwrap();
    let mut channel = channel.connect().await.unwrap();
    // Nothing, a head of a frame without its bytes, half a head, and what is no frame.
    for (label, body) in [
        ("application/grpc", &b""[..]),
        ("application/grpc", b"\0\0\0\0\x09ab"),
        ("application/grpc", b"\0\0"),
        ("application/json", b"{\"id\":\"x\"}"),
    ] {
        let request = Request::post(format!("http://{}/lf.a2a.v1.A2AService/GetTask", world.gateway.grpc))
            .header("content-type", label)
            .header("te", "trailers")
            .header("a2a-version", "1.0")
            .body(tonic::body::Body::new(axum::body::Body::from(body)))
            .unwrap();
        std::future::poll_fn(|context| channel.poll_ready(context))
            .await
            .unwrap();
        let answer = channel.call(request).await.unwrap();
        let status = Status::from_header_map(answer.headers()).unwrap();
        assert_eq!(status.code(), Code::InvalidArgument, "{body:?}: {status}");
        assert_eq!(refusal(&status).details[1]["fieldViolations"][0]["field"], "request");
    }
}

#[tokio::test]
async fn a_method_of_nobodys_is_told_with_its_reason() {
    let world = world(&[]).await;
    let channel = Endpoint::from_shared(format!("http://{}", world.gateway.grpc)).unwrap();
    let mut channel = channel.connect().await.unwrap();
    for path in ["lf.a2a.v1.A2AService/Nothing", "nobody.Service/Nothing"] {
        let request = Request::post(format!("http://{}/{path}", world.gateway.grpc))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(tonic::body::Body::empty())
            .unwrap();
        std::future::poll_fn(|context| channel.poll_ready(context))
            .await
            .unwrap();
        let answer = channel.call(request).await.unwrap();
        let status = Status::from_header_map(answer.headers()).unwrap();
        assert_eq!(status.code(), Code::Unimplemented, "{path}: {status}");
        assert_eq!(refusal(&status).reason, "METHOD_NOT_FOUND", "{path}");
    }
}

#[tokio::test]
async fn numbers_that_json_has_not_are_refused_by_field() {
    let world = world(&[]).await;
    let mut client = Client::new(world.gateway.grpc).raw();
    for kind in [
        Some(Kind::NumberValue(f64::NAN)),
        Some(Kind::NumberValue(f64::INFINITY)),
    ] {
        let mut sent: proto::SendMessageRequest = encode::<protojson::SendMessageRequest, _>(message("hi"));
        let fields = [("n".to_owned(), Value { kind })].into();
        sent.metadata = Some(Struct { fields });
        let status = client.send_message(request(sent, None)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        let violations = &refusal(&status).details[1]["fieldViolations"];
        assert_eq!(violations[0]["field"], "metadata.n", "{violations}");
    }
}
