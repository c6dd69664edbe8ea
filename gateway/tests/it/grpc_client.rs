//! A gRPC client that takes parameters and gives results in the form that the JSON bindings have.

use std::net::SocketAddr;

use a2a::StreamResponse;
use a2a_pb::pbconv::{
    from_proto_agent_card, from_proto_list_tasks_response, from_proto_send_message_response,
    from_proto_stream_response, from_proto_task,
};
use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::protojson_conv::{ProtoJsonPayload, to_value};
use a2a_pb::{proto, protojson};
use prost::Message;
use relevo_shared::domain::event::RESUME;
use relevo_shared::domain::wire::{self, Wire};
use relevo_testkit::schema::{Shape, judge};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_types::StatusExt as _;

use crate::binding::{Outcome, Refusal};

#[derive(Clone)]
pub struct Client {
    raw: A2aServiceClient<Channel>,
    headers: Vec<(&'static str, String)>,
}

/// The message that canonical JSON means.
pub fn encode<J: DeserializeOwned + Message, P: Message + Default>(params: Value) -> P {
    let json: J = serde_json::from_value(params).unwrap();
    P::decode(json.encode_to_vec().as_slice()).unwrap()
}

fn decode<T>(value: &T) -> Value
where
    for<'a> Wire<'a, T>: Serialize,
{
    serde_json::from_slice(&wire::to_vec(value)).unwrap()
}

/// What came is judged like an answer of the other bindings, as the crate's own ProtoJSON has it.
fn judged<T: ProtoJsonPayload>(shape: Shape, value: T) -> T {
    let mut json = to_value(&value).unwrap();
    with_milliseconds(&mut json);
    if let (Shape::Page, Value::Object(members)) = (shape, &mut json) {
        // ProtoJSON leaves out what finds nothing.
        members.entry("tasks").or_insert_with(|| json!([]));
        members.entry("totalSize").or_insert_with(|| json!(0));
    }
    judge(shape, &json);
    value
}

/// That leaves the fraction of whole seconds out.
fn with_milliseconds(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(with_milliseconds),
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(time) if name == "timestamp" && !time.contains('.') => {
                        *time = time.replace('Z', ".000Z");
                    }
                    other => with_milliseconds(other),
                }
            }
        }
        _ => {}
    }
}

/// A request with the metadata that every client sends.
pub fn request<T>(message: T, cursor: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("a2a-version", "1.0".parse().unwrap());
    metadata.insert("a2a-extensions", format!("urn:x, {RESUME}").parse().unwrap());
    if let Some(cursor) = cursor {
        metadata.insert("last-event-id", cursor.parse().unwrap());
    }
    request
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self::with_headers(address, &[])
    }

    /// One whose requests all have these metadata.
    pub fn with_headers(address: SocketAddr, headers: &[(&'static str, &str)]) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Self {
            raw: A2aServiceClient::new(endpoint.connect_lazy()),
            headers: headers
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned()))
                .collect(),
        }
    }

    pub fn raw(&self) -> A2aServiceClient<Channel> {
        self.raw.clone()
    }

    fn request<T>(&self, message: T, cursor: Option<&str>) -> Request<T> {
        let mut request = request(message, cursor);
        for (name, value) in &self.headers {
            request.metadata_mut().insert(*name, value.parse().unwrap());
        }
        request
    }

    pub async fn call(&self, method: &str, params: Value) -> Outcome {
        self.answer(method, params).await.map_err(|status| refusal(&status))
    }

    async fn answer(&self, method: &str, params: Value) -> Result<Value, Status> {
        let mut client = self.raw();
        Ok(match method {
            "SendMessage" => {
                let message = encode::<protojson::SendMessageRequest, _>(params);
                let answer = client.send_message(self.request(message, None)).await?.into_inner();
                decode(&judged(Shape::Sent, from_proto_send_message_response(&answer).unwrap()))
            }
            "GetTask" => {
                let message = encode::<protojson::GetTaskRequest, _>(params);
                let answer = client.get_task(self.request(message, None)).await?.into_inner();
                decode(&judged(Shape::Task, from_proto_task(&answer)))
            }
            "CancelTask" => {
                let message = encode::<protojson::CancelTaskRequest, _>(params);
                let answer = client.cancel_task(self.request(message, None)).await?.into_inner();
                decode(&judged(Shape::Task, from_proto_task(&answer)))
            }
            "ListTasks" => {
                let message = encode::<protojson::ListTasksRequest, _>(params);
                let answer = client.list_tasks(self.request(message, None)).await?.into_inner();
                let page = judged(Shape::Page, from_proto_list_tasks_response(&answer));
                let tasks: Vec<Vec<u8>> = page.tasks.iter().map(wire::to_vec).collect();
                let printed = wire::page(&tasks, &page.next_page_token, page.page_size, page.total_size);
                serde_json::from_slice(&printed).unwrap()
            }
            "GetExtendedAgentCard" => {
                let message = encode::<protojson::GetExtendedAgentCardRequest, _>(params);
                let answer = client
                    .get_extended_agent_card(self.request(message, None))
                    .await?
                    .into_inner();
                serde_json::to_value(from_proto_agent_card(&answer)).unwrap()
            }
            other => return Err(self.refused(other, params).await),
        })
    }

    /// The operations that are always refused.
    async fn refused(&self, method: &str, params: Value) -> Status {
        let mut client = self.raw();
        let status = match method {
            "CreateTaskPushNotificationConfig" => {
                let message = encode::<protojson::TaskPushNotificationConfig, _>(params);
                client
                    .create_task_push_notification_config(self.request(message, None))
                    .await
                    .err()
            }
            "GetTaskPushNotificationConfig" => {
                let message = encode::<protojson::GetTaskPushNotificationConfigRequest, _>(params);
                client
                    .get_task_push_notification_config(self.request(message, None))
                    .await
                    .err()
            }
            "DeleteTaskPushNotificationConfig" => {
                let message = encode::<protojson::DeleteTaskPushNotificationConfigRequest, _>(params);
                client
                    .delete_task_push_notification_config(self.request(message, None))
                    .await
                    .err()
            }
            "ListTaskPushNotificationConfigs" => {
                let message = encode::<protojson::ListTaskPushNotificationConfigsRequest, _>(params);
                client
                    .list_task_push_notification_configs(self.request(message, None))
                    .await
                    .err()
            }
            other => panic!("{other}"),
        };
        status.expect("it is refused")
    }

    pub async fn open(
        &self,
        method: &str,
        params: Value,
        cursor: Option<&str>,
    ) -> Result<Streaming<proto::StreamResponse>, Refusal> {
        let mut client = self.raw();
        let opened = match method {
            "SendStreamingMessage" => {
                let message = encode::<protojson::SendMessageRequest, _>(params);
                client.send_streaming_message(self.request(message, cursor)).await
            }
            "SubscribeToTask" => {
                let message = encode::<protojson::SubscribeToTaskRequest, _>(params);
                client.subscribe_to_task(self.request(message, cursor)).await
            }
            other => panic!("{other}"),
        };
        let response = opened.map_err(|status| refusal(&status))?;
        assert_eq!(response.metadata().get("a2a-extensions").unwrap(), RESUME);
        Ok(response.into_inner())
    }
}

/// An event and its position, which is taken out of it.
pub fn event(message: &proto::StreamResponse) -> (Value, String) {
    let mut event = judged(Shape::Event, from_proto_stream_response(message).unwrap());
    let metadata = match &mut event {
        StreamResponse::Task(task) => &mut task.metadata,
        StreamResponse::Message(message) => &mut message.metadata,
        StreamResponse::StatusUpdate(update) => &mut update.metadata,
        StreamResponse::ArtifactUpdate(update) => &mut update.metadata,
    };
    let members = metadata.as_mut().expect("the extension is active");
    let facts = members.get_mut(RESUME).unwrap().as_object_mut().unwrap();
    let cursor = facts.remove("cursor").unwrap();
    if facts.is_empty() {
        members.remove(RESUME);
    }
    (decode(&event), cursor.as_str().unwrap().to_owned())
}

pub fn refusal(status: &Status) -> Refusal {
    let details = status.get_error_details();
    let info = details.error_info().expect("every status has details");
    let mut first = json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": info.reason, "domain": info.domain,
    });
    if !info.metadata.is_empty() {
        first["metadata"] = json!(info.metadata);
    }
    let mut all = vec![first];
    if let Some(bad) = details.bad_request() {
        let violation = |v: &tonic_types::FieldViolation| json!({ "field": v.field, "description": v.description });
        let violations: Vec<Value> = bad.field_violations.iter().map(violation).collect();
        all.push(json!({ "@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations }));
    }
    Refusal {
        reason: info.reason.clone(),
        message: status.message().to_owned(),
        details: all.into(),
        code: i64::from(i32::from(status.code())),
    }
}
