//! JSON-RPC 2.0: the envelope, the version, the name of the operation, the answer.

mod envelope;

use envelope::Envelope;
pub(crate) use envelope::RpcId;

use a2a::methods;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{Request, Response};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{body, call, sse};
use crate::auth::{Permit, Principal, authorise};
use crate::error::{ApiError, Plain, json_response};
use crate::observe::Observed;
use crate::operations::{self, EventStream};
use crate::request::{CancelTask, ExtendedCard, GetTask, ListTasks, PushConfig, SendMessage, SubscribeToTask};
use crate::services::{Call, Services};

/// What an operation answers with.
enum Answer {
    Result(Vec<u8>),
    Stream(EventStream),
}

/// Serves `POST /`.
pub(crate) async fn serve(State(services): State<Services>, request: Request<Body>) -> Response<Body> {
    let received = Instant::now();
    let (parts, body) = request.into_parts();
    let call = call(&services, &parts.headers, received);
    let limit = services.settings.gateway.body_limit.as_len();
    let read = if body::is_json(&parts.headers) {
        body::read(&parts.headers, body, limit, call.deadline).await
    } else {
        Err(Plain::UnsupportedMediaType)
    };
    match read {
        Ok(bytes) => answer(&services, &parts, &call, &bytes).await,
        Err(plain) => {
            Observed::new(&services.metrics, "none", received).finish(plain.label());
            plain.respond()
        }
    }
}

async fn answer(services: &Services, parts: &Parts, call: &Call, bytes: &Bytes) -> Response<Body> {
    let envelope = match Envelope::parse(bytes) {
        Ok(envelope) => envelope,
        Err(refused) => {
            let (id, error) = *refused;
            return refuse(Observed::new(&services.metrics, "none", call.received), &id, &error);
        }
    };
    let method = known(&envelope.method);
    let mut observed = Observed::new(&services.metrics, method.unwrap_or("unknown"), call.received);
    let answered = match (check_version(parts), method) {
        (Err(error), _) => Err(error),
        (Ok(()), None) => Err(ApiError::MethodNotFound(envelope.method)),
        // Boxed: the futures of all operations together are large.
        (Ok(()), Some(method)) => Box::pin(dispatch(services, call, method, envelope.params)).await,
    };
    match answered {
        Ok(Answer::Result(result)) => {
            observed.finish("ok");
            json_response(success(&envelope.id, &result))
        }
        Ok(Answer::Stream(events)) => sse::respond(events, envelope.id, services.settings.stream.keep_alive, observed),
        Err(error) => refuse(observed, &envelope.id, &error),
    }
}

fn refuse(mut observed: Observed, id: &RpcId, error: &ApiError) -> Response<Body> {
    error.log();
    observed.finish(error.label());
    error.respond(error_body(id, error))
}

/// The operations by their exact names; the label of metrics, too.
fn known(method: &str) -> Option<&'static str> {
    [
        methods::SEND_MESSAGE,
        methods::SEND_STREAMING_MESSAGE,
        methods::GET_TASK,
        methods::LIST_TASKS,
        methods::CANCEL_TASK,
        methods::SUBSCRIBE_TO_TASK,
        methods::CREATE_PUSH_CONFIG,
        methods::GET_PUSH_CONFIG,
        methods::LIST_PUSH_CONFIGS,
        methods::DELETE_PUSH_CONFIG,
        methods::GET_EXTENDED_AGENT_CARD,
    ]
    .into_iter()
    .find(|known| *known == method)
}

async fn dispatch(services: &Services, call: &Call, method: &str, params: Value) -> Result<Answer, ApiError> {
    match method {
        methods::SEND_MESSAGE => {
            let request = SendMessage::parse(params, &services.secrets)?;
            let permit = permit(&request.tenant);
            Ok(result(
                &operations::send_message(services, &permit, call, request).await?,
            ))
        }
        methods::SEND_STREAMING_MESSAGE => {
            let request = SendMessage::parse(params, &services.secrets)?;
            let permit = permit(&request.tenant);
            Ok(Answer::Stream(
                operations::stream_message(services, &permit, call, request).await?,
            ))
        }
        methods::GET_TASK => {
            let request = GetTask::parse(params)?;
            Ok(result(
                &operations::get_task(services, &permit(&request.tenant), call, &request).await?,
            ))
        }
        methods::LIST_TASKS => {
            let request = ListTasks::parse(params)?;
            Ok(result(
                &operations::list_tasks(services, &permit(&request.tenant), call, &request).await?,
            ))
        }
        methods::CANCEL_TASK => {
            let request = CancelTask::parse(params)?;
            Ok(result(
                &operations::cancel_task(services, &permit(&request.tenant), call, &request).await?,
            ))
        }
        methods::SUBSCRIBE_TO_TASK => {
            let request = SubscribeToTask::parse(params)?;
            let permit = permit(&request.tenant);
            Ok(Answer::Stream(
                operations::subscribe_to_task(services, &permit, call, &request).await?,
            ))
        }
        methods::GET_EXTENDED_AGENT_CARD => {
            let request = ExtendedCard::parse(params)?;
            Err(operations::extended_card(&permit(&request.tenant), &request))
        }
        // The four operations on push configs.
        _ => {
            let request = PushConfig::parse(params)?;
            Err(operations::push_config(&permit(&request.tenant), &request))
        }
    }
}

/// Everyone is anonymous, in the tenant it names.
fn permit<R>(tenant: &str) -> Permit<R> {
    authorise(Principal::anonymous(tenant))
}

fn result(value: &impl Serialize) -> Answer {
    // Maps with string keys and numbers are all there is: this cannot fail.
    Answer::Result(serde_json::to_vec(value).unwrap_or_default())
}

/// Only 1.x is served; nothing means 0.3. The query may say it where headers cannot be set.
fn check_version(parts: &Parts) -> Result<(), ApiError> {
    let header = parts
        .headers
        .get(a2a::SVC_PARAM_VERSION)
        .map(|value| value.to_str().unwrap_or("\u{fffd}"));
    let query = parts.uri.query().and_then(|query| {
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(name, _)| *name == a2a::SVC_PARAM_VERSION)
    });
    let found = header.or(query.map(|(_, value)| value)).unwrap_or_default().trim();
    if is_served(found) {
        Ok(())
    } else {
        Err(ApiError::VersionNotSupported(found.to_owned()))
    }
}

/// `1.<minor>`, and a patch number that says nothing.
fn is_served(version: &str) -> bool {
    let numbers: Vec<&str> = version.split('.').collect();
    let digits = |part: &&str| (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    matches!(numbers.as_slice(), ["1", _] | ["1", _, _]) && numbers.iter().all(digits)
}

fn success(id: &RpcId, result: &[u8]) -> Vec<u8> {
    [
        br#"{"jsonrpc":"2.0","id":"#.as_slice(),
        id.raw().as_bytes(),
        br#","result":"#,
        result,
        b"}",
    ]
    .concat()
}

/// The whole answer of a request that failed.
pub(crate) fn error_body(id: &RpcId, error: &ApiError) -> Vec<u8> {
    let error = error.to_json().to_string();
    [
        br#"{"jsonrpc":"2.0","id":"#.as_slice(),
        id.raw().as_bytes(),
        br#","error":"#,
        error.as_bytes(),
        b"}",
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_1_are_served_and_no_others() {
        for right in ["1.0", "1.0.1", "1.2"] {
            assert!(is_served(right), "{right}");
        }
        for wrong in [
            "", "0.3", "1", "2.0", "10.0", "1.", "1.x", "1.0.0.0", "01.0", "1.0-beta",
        ] {
            assert!(!is_served(wrong), "{wrong}");
        }
    }

    #[test]
    fn every_operation_of_the_protocol_is_known_by_its_exact_name() {
        assert_eq!(known("SendMessage"), Some("SendMessage"));
        assert_eq!(
            known("ListTaskPushNotificationConfigs"),
            Some("ListTaskPushNotificationConfigs")
        );
        for unknown in ["sendMessage", "message/send", "", "ListTaskPushNotificationConfig"] {
            assert_eq!(known(unknown), None, "{unknown}");
        }
    }
}
