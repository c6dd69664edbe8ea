//! gRPC: `lf.a2a.v1.A2AService` on a listener of its own. Metadata stands for the headers of the other bindings, a status
//! with `google.rpc` details for their errors.

mod health;
mod params;
mod reflection;
mod stream;

use a2a::methods;
use a2a_pb::pbconv::{
    to_proto_agent_card, to_proto_list_tasks_response, to_proto_send_message_response, to_proto_task,
};
use a2a_pb::proto::a2a_service_server::{A2aService, A2aServiceServer};
use a2a_pb::proto::{
    AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, SendMessageRequest,
    SendMessageResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
};
use axum::Router;
use axum::http::HeaderMap;
use axum::middleware::map_response;
use relevo_shared::platform::config::Statuses;
use serde_json::Value;
use tokio::time::Instant;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

use super::body::is_too_heavy;
use super::dispatch::{Answer, dispatch};
use super::{call, version};
use crate::error::{ApiError, Plain};
use crate::observe::Observed;
use crate::operations::extensions::Active;
use crate::request::Violations;
use crate::services::Services;
pub(crate) use health::Health;
use params::{Params, Tenant};
use stream::{Events, RESUME};

/// How what tonic says begins when a body is no message: no bytes of one, no frame, half a frame, nothing at all.
const UNDECODED: [&str; 4] = [
    "failed to decode Protobuf message",
    "protocol error: received message with invalid compression flag",
    "Unexpected EOF decoding stream",
    "Missing request message",
];
const EXTENSIONS: &str = "a2a-extensions";

/// Everything that the listener serves: the operations and the health of the process.
///
/// # Errors
/// When the descriptors of the services cannot be read: they are part of the build.
pub(crate) async fn router(services: &Services) -> Result<(Router, Health), tonic_reflection::server::Error> {
    let limit = services.settings.gateway.body_limit.as_len();
    let service = A2aServiceServer::new(Grpc(Services::clone(services))).max_decoding_message_size(limit);
    let (reporter, checks) = tonic_health::server::health_reporter();
    let health = Health::serving(reporter).await;
    let router = Router::new()
        .route_service("/lf.a2a.v1.A2AService/{method}", service)
        .layer(map_response(blame_the_client))
        .route_service("/grpc.health.v1.Health/{method}", checks)
        .route_service("/grpc.reflection.v1.ServerReflection/{method}", reflection::service()?)
        .route_service(
            "/grpc.reflection.v1alpha.ServerReflection/{method}",
            reflection::old_service()?,
        )
        .fallback(async || {
            let unknown = ApiError::MethodNotFound(String::new());
            unknown.to_grpc(Statuses::Current).into_http::<axum::body::Body>()
        });
    Ok((router, health))
}

/// What tonic refuses by itself it says without details; and a message that cannot be decoded it calls an internal error, which is
/// the client's.
async fn blame_the_client(response: axum::response::Response) -> axum::response::Response {
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let (status, told) = (header("grpc-status"), header("grpc-status-details-bin").is_some());
    if status == Some("11") && !told {
        return Plain::TooLarge.to_grpc().into_http();
    }
    if status == Some("12") && !told && header("grpc-message").is_none() {
        let unknown = ApiError::MethodNotFound(String::new());
        return unknown.to_grpc(Statuses::Current).into_http();
    }
    let internal = status == Some("13");
    // Percent-encoded on the wire.
    let said = header("grpc-message").map(|text| text.replace("%20", " "));
    let undecoded = said.is_some_and(|said| UNDECODED.iter().any(|words| said.starts_with(words)));
    if internal && undecoded {
        return ApiError::invalid("request", "is not a message of this method")
            .to_grpc(Statuses::Current)
            .into_http();
    }
    response
}

/// What a request says, in the form of the other bindings.
fn read(request: impl Params) -> Result<Value, ApiError> {
    let mut violations = Violations::default();
    let params = request.params(&mut violations);
    if is_too_heavy(&params) {
        return Err(ApiError::invalid("request", "holds too many values"));
    }
    violations.into_result(params)
}

struct Grpc(Services);

/// An answer, and what was watched on the way to it.
struct Answered {
    answer: Answer,
    observed: Observed,
    extensions: Active,
}

impl Grpc {
    async fn answer<R: Params>(&self, method: &'static str, request: Request<R>) -> Result<Answered, Status> {
        let received = Instant::now();
        let mut observed = Observed::new(&self.0.metrics, method, received);
        let (metadata, _, request) = request.into_parts();
        let headers: &HeaderMap = metadata.as_ref();
        let Ok(call) = call(&self.0, headers, received) else {
            observed.finish(ApiError::Unauthenticated.label());
            return Err(ApiError::Unauthenticated.to_grpc(Statuses::Current));
        };
        let answered = match version::check(headers, None) {
            Ok(()) => match read(request) {
                // Boxed: the futures of all operations together are large.
                Ok(params) => Box::pin(dispatch(&self.0, &call, method, params)).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match answered {
            Ok(answer) => Ok(Answered {
                answer,
                observed,
                extensions: call.extensions,
            }),
            Err(error) => {
                error.log();
                observed.finish(error.label());
                Err(error.to_grpc(self.0.settings.compat.errors))
            }
        }
    }

    /// An answer of one message.
    async fn once<R: Params, T>(
        &self,
        method: &'static str,
        request: Request<R>,
        read: impl FnOnce(Answer) -> Option<T>,
    ) -> Result<Response<T>, Status> {
        let mut answered = self.answer(method, request).await?;
        answered.observed.finish("ok");
        let response = read(answered.answer).map(Response::new).ok_or_else(mismatch)?;
        Ok(told(response, &answered.extensions))
    }

    async fn stream<R: Params>(&self, method: &'static str, request: Request<R>) -> Result<Response<Events>, Status> {
        let Answered {
            answer,
            observed,
            extensions,
        } = self.answer(method, request).await?;
        let Answer::Stream(events) = answer else {
            return Err(mismatch());
        };
        let cursors = extensions.contains(RESUME);
        let response = Response::new(stream::events(events, cursors, self.0.settings.compat.errors, observed));
        Ok(told(response, &extensions))
    }
}

/// An answer that says which extensions are active.
fn told<T>(mut response: Response<T>, active: &Active) -> Response<T> {
    let value = active.listed().and_then(|list| MetadataValue::try_from(list).ok());
    if let Some(value) = value {
        response.metadata_mut().insert(EXTENSIONS, value);
    }
    response
}

/// An operation that answers in another form than its method has: a mistake of ours.
fn mismatch() -> Status {
    ApiError::MethodNotFound(String::new()).to_grpc(Statuses::Current)
}

fn task(answer: Answer) -> Option<Task> {
    match answer {
        Answer::Task(task) => Some(to_proto_task(&task)),
        Answer::Sent(_) | Answer::Tasks(_) | Answer::Card(_) | Answer::Stream(_) => None,
    }
}

/// Of an operation that is always refused.
fn never<T>(_: Answer) -> Option<T> {
    None
}

#[tonic::async_trait]
impl A2aService for Grpc {
    type SendStreamingMessageStream = Events;
    type SubscribeToTaskStream = Events;

    async fn send_message(
        &self,
        request: Request<SendMessageRequest>,
    ) -> Result<Response<SendMessageResponse>, Status> {
        let sent = |answer| match answer {
            Answer::Sent(sent) => Some(to_proto_send_message_response(&sent)),
            Answer::Task(_) | Answer::Tasks(_) | Answer::Card(_) | Answer::Stream(_) => None,
        };
        self.once(methods::SEND_MESSAGE, request, sent).await
    }

    async fn send_streaming_message(&self, request: Request<SendMessageRequest>) -> Result<Response<Events>, Status> {
        self.stream(methods::SEND_STREAMING_MESSAGE, request).await
    }

    async fn get_task(&self, request: Request<GetTaskRequest>) -> Result<Response<Task>, Status> {
        self.once(methods::GET_TASK, request, task).await
    }

    async fn list_tasks(&self, request: Request<ListTasksRequest>) -> Result<Response<ListTasksResponse>, Status> {
        let tasks = |answer| match answer {
            Answer::Tasks(page) => Some(to_proto_list_tasks_response(&page.into_response())),
            Answer::Task(_) | Answer::Sent(_) | Answer::Card(_) | Answer::Stream(_) => None,
        };
        self.once(methods::LIST_TASKS, request, tasks).await
    }

    async fn cancel_task(&self, request: Request<CancelTaskRequest>) -> Result<Response<Task>, Status> {
        self.once(methods::CANCEL_TASK, request, task).await
    }

    async fn subscribe_to_task(&self, request: Request<SubscribeToTaskRequest>) -> Result<Response<Events>, Status> {
        self.stream(methods::SUBSCRIBE_TO_TASK, request).await
    }

    async fn create_task_push_notification_config(
        &self,
        request: Request<TaskPushNotificationConfig>,
    ) -> Result<Response<TaskPushNotificationConfig>, Status> {
        let request = request.map(|request| Tenant(request.tenant));
        self.once(methods::CREATE_PUSH_CONFIG, request, never).await
    }

    async fn get_task_push_notification_config(
        &self,
        request: Request<GetTaskPushNotificationConfigRequest>,
    ) -> Result<Response<TaskPushNotificationConfig>, Status> {
        let request = request.map(|request| Tenant(request.tenant));
        self.once(methods::GET_PUSH_CONFIG, request, never).await
    }

    async fn list_task_push_notification_configs(
        &self,
        request: Request<ListTaskPushNotificationConfigsRequest>,
    ) -> Result<Response<ListTaskPushNotificationConfigsResponse>, Status> {
        let request = request.map(|request| Tenant(request.tenant));
        self.once(methods::LIST_PUSH_CONFIGS, request, never).await
    }

    async fn get_extended_agent_card(
        &self,
        request: Request<GetExtendedAgentCardRequest>,
    ) -> Result<Response<AgentCard>, Status> {
        let request = request.map(|request| Tenant(request.tenant));
        let card = |answer| match answer {
            Answer::Card(card) => Some(to_proto_agent_card(&card)),
            Answer::Task(_) | Answer::Sent(_) | Answer::Tasks(_) | Answer::Stream(_) => None,
        };
        self.once(methods::GET_EXTENDED_AGENT_CARD, request, card).await
    }

    async fn delete_task_push_notification_config(
        &self,
        request: Request<DeleteTaskPushNotificationConfigRequest>,
    ) -> Result<Response<()>, Status> {
        let request = request.map(|request| Tenant(request.tenant));
        self.once(methods::DELETE_PUSH_CONFIG, request, never).await
    }
}
