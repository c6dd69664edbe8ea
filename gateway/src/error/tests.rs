//! Tests of the catalogue and of its bodies.

use std::fmt::Write as _;

use axum::http::header::RETRY_AFTER;
use relevo_shared::platform::config::Statuses;
use tonic_types::StatusExt as _;

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

/// An error of a row, as it happens.
enum Sample {
    Of(ApiError),
    Below(Plain),
}

/// A row: its reason, what it is on JSON-RPC, HTTP and gRPC, and on the last two in A2A 1.0.0 where that was something else.
type Told = (&'static str, Option<i32>, u16, Grpc, Option<(u16, Grpc)>, Sample);

/// Every row of the document, by hand and in its order.
#[expect(clippy::too_many_lines, reason = "it is one table")]
fn table() -> Vec<Told> {
    use Grpc::{
        DataLoss, DeadlineExceeded, FailedPrecondition, Internal, InvalidArgument, NotFound, OutOfRange,
        ResourceExhausted, Unauthenticated, Unavailable, Unimplemented,
    };
    let of = Sample::Of;
    let below = Sample::Below;
    let task = TaskId::parse("01a22c0a-cb27-7fff-b5e2-511366f7343c").unwrap();
    let broken = serde_json::from_str::<()>("x").unwrap_err();
    let conflict = Some((409, FailedPrecondition));
    let unimplemented = Some((400, Unimplemented));
    let labelled = Some((415, InvalidArgument));
    vec![
        (
            "PARSE_ERROR",
            Some(-32700),
            400,
            InvalidArgument,
            None,
            of(ApiError::Parse("x".into())),
        ),
        (
            "INVALID_REQUEST",
            Some(-32600),
            400,
            InvalidArgument,
            None,
            of(ApiError::InvalidRequest("x")),
        ),
        (
            "METHOD_NOT_FOUND",
            Some(-32601),
            404,
            Unimplemented,
            None,
            of(ApiError::MethodNotFound("m".into())),
        ),
        (
            "INVALID_PARAMS",
            Some(-32602),
            400,
            InvalidArgument,
            None,
            of(ApiError::invalid("f", "is missing")),
        ),
        (
            "TASK_NOT_FOUND",
            Some(-32001),
            404,
            NotFound,
            None,
            of(ApiError::TaskNotFound("t".into())),
        ),
        (
            "TASK_NOT_CANCELABLE",
            Some(-32002),
            400,
            FailedPrecondition,
            conflict,
            of(ApiError::TaskNotCancelable("t".into())),
        ),
        (
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
            Some(-32003),
            400,
            FailedPrecondition,
            unimplemented,
            of(ApiError::PushNotSupported),
        ),
        (
            "UNSUPPORTED_OPERATION",
            Some(-32004),
            400,
            FailedPrecondition,
            unimplemented,
            of(ApiError::Unsupported("no")),
        ),
        (
            "VERSION_NOT_SUPPORTED",
            Some(-32009),
            400,
            FailedPrecondition,
            unimplemented,
            of(ApiError::VersionNotSupported("9".into())),
        ),
        (
            "EXTENSION_SUPPORT_REQUIRED",
            Some(-32008),
            400,
            FailedPrecondition,
            None,
            of(ApiError::ExtensionRequired("urn:x".into())),
        ),
        (
            "CONTENT_TYPE_NOT_SUPPORTED",
            Some(-32005),
            400,
            InvalidArgument,
            labelled,
            of(ApiError::ContentType("f".into(), "x/y".into())),
        ),
        (
            "UNAUTHENTICATED",
            None,
            401,
            Unauthenticated,
            None,
            of(ApiError::Unauthenticated),
        ),
        (
            "RATE_LIMITED",
            Some(-32603),
            429,
            ResourceExhausted,
            None,
            of(overload(Overload::Scope)),
        ),
        (
            "UNAVAILABLE",
            Some(-32603),
            503,
            Unavailable,
            None,
            of(overload(Overload::Backlog)),
        ),
        (
            "STATE_LOST",
            Some(-32603),
            500,
            DataLoss,
            None,
            of(ApiError::StateLost(task)),
        ),
        ("STREAM_MOVED", None, 503, Unavailable, None, of(ApiError::Moved)),
        (
            "INTERNAL_ERROR",
            Some(-32603),
            500,
            Internal,
            None,
            of(ApiError::Unreadable(broken)),
        ),
        ("NOT_FOUND", None, 404, NotFound, None, below(Plain::NotFound)),
        (
            "METHOD_NOT_ALLOWED",
            None,
            405,
            Unimplemented,
            None,
            below(Plain::MethodNotAllowed("GET")),
        ),
        (
            "REQUEST_TIMEOUT",
            None,
            408,
            DeadlineExceeded,
            None,
            below(Plain::Timeout),
        ),
        ("REQUEST_TOO_LARGE", None, 413, OutOfRange, None, below(Plain::TooLarge)),
        (
            "CONTENT_TYPE_NOT_SUPPORTED",
            None,
            415,
            InvalidArgument,
            None,
            below(Plain::UnsupportedMediaType),
        ),
        ("BAD_BODY", None, 400, InvalidArgument, None, below(Plain::BadBody)),
    ]
}

/// What A2A 1.0.1 fixes, what 1.0.0 had, and what is ours: on each binding what the table says.
#[test]
fn every_row_of_the_catalogue_has_its_statuses_on_every_binding() {
    let label = HeaderValue::from_static("x/y");
    let table = table();
    assert_eq!(table.len(), CATALOGUE.len());
    for ((reason, code, http, grpc, older, sample), row) in table.into_iter().zip(CATALOGUE) {
        let tables = [
            (Statuses::Current, (http, grpc)),
            (Statuses::Older, older.unwrap_or((http, grpc))),
        ];
        let error = match sample {
            Sample::Of(error) => error,
            Sample::Below(plain) => {
                assert_eq!(plain.row().label, row.label);
                assert_eq!((row.reason, row.code, row.grpc), (reason, code, grpc));
                for answer in [plain.respond(), plain.respond_rest(&label), plain.respond_old()] {
                    assert_eq!(answer.status(), http, "{reason}");
                }
                let status = plain.to_grpc();
                assert_eq!(i32::from(status.code()), grpc.number(), "{reason}");
                assert_eq!(status.get_error_details().error_info().unwrap().reason, reason);
                assert_eq!(older, None, "{reason}: below the protocol nothing has changed");
                continue;
            }
        };
        assert_eq!(error.row().label, row.label);
        let of_protocol = row.domain == a2a::PROTOCOL_DOMAIN;
        assert!(!of_protocol || code.map(a2a::error_reason) == Some(reason), "{reason}");
        let object = error.to_json();
        assert_eq!(
            object["code"],
            code.map_or(serde_json::Value::Null, Into::into),
            "{reason}"
        );
        assert_eq!(object["data"][0]["reason"], reason);
        // Load balancers see what they act on, whatever the envelope says.
        let seen = if matches!(http, 429 | 503) && code.is_some() {
            http
        } else {
            200
        };
        assert_eq!(error.respond(Vec::new()).status(), seen, "{reason}");
        for (statuses, (http, grpc)) in tables {
            let body = error.to_status(statuses);
            assert_eq!(body["error"]["code"], http, "{reason} {statuses:?}");
            assert_eq!(body["error"]["status"], grpc.name(), "{reason} {statuses:?}");
            assert_eq!(body["error"]["details"], object["data"], "{reason} {statuses:?}");
            assert_eq!(
                error.respond_rest(&label, statuses).status(),
                http,
                "{reason} {statuses:?}"
            );
            let status = error.to_grpc(statuses);
            assert_eq!(i32::from(status.code()), grpc.number(), "{reason} {statuses:?}");
            let details = status.get_error_details();
            let info = details.error_info().unwrap();
            assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason, row.domain));
        }
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
