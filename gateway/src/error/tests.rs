//! Tests of the catalogue and of its bodies.

use std::fmt::Write as _;

use axum::http::header::RETRY_AFTER;
use relevo_shared::platform::config::Statuses;

use super::catalogue::Grpc;
use super::*;

fn overload(why: Overload) -> ApiError {
    ApiError::Unavailable {
        why,
        retry_after: Duration::from_millis(1),
        unknown: None,
        source: None,
    }
}

#[test]
fn every_error_carries_an_error_info() {
    let errors = [
        ApiError::Parse("x".into()),
        ApiError::InvalidRequest("x"),
        ApiError::MethodNotFound("m".into()),
        ApiError::invalid("message.parts", "is missing"),
        ApiError::TaskNotFound("t".into()),
        ApiError::Unsupported("no"),
        ApiError::VersionNotSupported("0.3".into()),
    ];
    for error in errors {
        let json = error.to_json();
        assert_eq!(json["data"][0]["@type"], a2a::ERROR_INFO_TYPE, "{json}");
        assert_eq!(json["data"][0]["domain"], "a2a-protocol.org", "{json}");
        let status = error.to_status(Statuses::Current);
        assert_eq!(status["error"]["details"], json["data"], "{status}");
        assert_eq!(status["error"]["message"], json["message"], "{status}");
        assert_eq!(status["error"]["code"], error.row().status.as_u16(), "{status}");
    }
}

/// The statuses that A2A 1.0.1 fixes.
#[test]
fn the_errors_of_the_protocol_have_its_statuses() {
    for (row, code, http, grpc) in [
        (&TASK_NOT_FOUND, -32001, 404, "NOT_FOUND"),
        (&TASK_NOT_CANCELABLE, -32002, 400, "FAILED_PRECONDITION"),
        (&PUSH_NOT_SUPPORTED, -32003, 400, "FAILED_PRECONDITION"),
        (&UNSUPPORTED, -32004, 400, "FAILED_PRECONDITION"),
        (&VERSION_NOT_SUPPORTED, -32009, 400, "FAILED_PRECONDITION"),
        (&INVALID_PARAMS, -32602, 400, "INVALID_ARGUMENT"),
        (&INTERNAL, -32603, 500, "INTERNAL"),
    ] {
        let found = (row.code, row.status.as_u16(), row.grpc.name());
        assert_eq!(found, (Some(code), http, grpc), "{}", row.reason);
        assert_eq!(row.reason, a2a::error_reason(code));
    }
}

#[test]
fn wrong_fields_are_named() {
    let json = ApiError::invalid("message.parts[0].text", "must be text").to_json();
    assert_eq!(json["code"], -32602);
    assert_eq!(json["data"][1]["fieldViolations"][0]["field"], "message.parts[0].text");
}

#[test]
fn overload_is_a_503_with_a_time_to_come_back() {
    let error = overload(Overload::Backlog);
    for response in [
        error.respond(Vec::new()),
        error.respond_rest(&HeaderValue::from_static("x/y"), Statuses::Current),
    ] {
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
    }
    assert_eq!(error.to_json()["data"][0]["reason"], "UNAVAILABLE");
    assert_eq!(error.to_json()["data"][0]["domain"], "relevo");
    assert_eq!(overload(Overload::Scope).respond(Vec::new()).status(), 429);
}

#[test]
fn an_error_never_repeats_a_long_text() {
    let long = "\u{e9}".repeat(100_000);
    assert!(ApiError::MethodNotFound(long.clone()).to_json().to_string().len() < 1_000);
    assert!(ApiError::TaskNotFound(long).to_json().to_string().len() < 1_000);
}

#[test]
fn the_document_lists_every_error() {
    let mut table = String::from(
        "| reason | domain | JSON-RPC | HTTP | gRPC | when | who acts |\n| --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in CATALOGUE {
        let code = row.code.map_or_else(|| "-".to_owned(), |code| code.to_string());
        writeln!(
            table,
            "| `{}` | `{}` | {code} | {} | `{}` | {} | {} |",
            row.reason,
            row.domain,
            row.status.as_u16(),
            row.grpc.name(),
            row.when,
            row.who,
        )
        .unwrap();
    }
    relevo_testkit::docs::check_block("errors.md", "errors", &table);
}

#[test]
fn clients_of_1_0_0_get_its_statuses_and_the_same_reasons() {
    for (error, http, grpc) in [
        (ApiError::TaskNotCancelable("t".into()), 409, Grpc::FailedPrecondition),
        (ApiError::PushNotSupported, 400, Grpc::Unimplemented),
        (ApiError::Unsupported("no"), 400, Grpc::Unimplemented),
        (ApiError::VersionNotSupported("9".into()), 400, Grpc::Unimplemented),
        (
            ApiError::ContentType("f".into(), "x/y".into()),
            415,
            Grpc::InvalidArgument,
        ),
        (ApiError::TaskNotFound("t".into()), 404, Grpc::NotFound),
    ] {
        let (old, new) = (error.to_status(Statuses::Older), error.to_status(Statuses::Current));
        assert_eq!(
            (&old["error"]["code"], &old["error"]["status"]),
            (&http.into(), &grpc.name().into())
        );
        assert_eq!(old["error"]["details"], new["error"]["details"]);
        let answer = error.respond_rest(&HeaderValue::from_static("x/y"), Statuses::Older);
        assert_eq!(answer.status(), http);
        assert_eq!(i32::from(error.to_grpc(Statuses::Older).code()), grpc.number());
    }
}
