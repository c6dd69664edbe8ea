//! From the name of an operation and its parameters as JSON to its answer: the one way that all bindings go.

use std::borrow::Cow;

use a2a::{AgentCard, SendMessageResponse, Task, methods};
use relevo_shared::domain::wire;
use serde_json::Value;

use crate::auth::{Permit, Principal, authorise};
use crate::error::ApiError;
use crate::operations::{self, EventStream, Page};
use crate::request::{CancelTask, ExtendedCard, GetTask, ListTasks, PushConfig, SendMessage, SubscribeToTask};
use crate::services::{Call, Key, Services};

/// What an operation answers with.
pub(crate) enum Answer {
    Sent(SendMessageResponse),
    Task(Task),
    Tasks(Page),
    Card(Box<AgentCard>),
    Stream(EventStream),
}

impl Answer {
    /// The answer as it is printed, or the stream that it is.
    pub(crate) fn printed(self) -> Result<Vec<u8>, EventStream> {
        Ok(match self {
            Self::Sent(sent) => wire::to_vec(&sent),
            Self::Task(task) => wire::to_vec(&task),
            Self::Tasks(page) => page.into_json(),
            // Through a value: the members of its maps are sorted then, on every gateway alike.
            Self::Card(card) => serde_json::to_value(&card).unwrap_or_default().to_string().into_bytes(),
            Self::Stream(events) => return Err(events),
        })
    }
}

/// The operations by their exact names.
pub(crate) const OPERATIONS: [&str; 11] = [
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
];

/// The operation of exactly this name; the label of metrics, too.
pub(crate) fn known(method: &str) -> Option<&'static str> {
    OPERATIONS.into_iter().find(|known| *known == method)
}

/// Carries out an operation that [`known`] knows.
pub(crate) async fn dispatch(
    services: &Services,
    call: &Call,
    method: &str,
    params: Value,
) -> Result<Answer, ApiError> {
    services.extensions.check(&call.extensions)?;
    match method {
        methods::SEND_MESSAGE => {
            let (request, call) = message(services, call, params)?;
            let permit = permit(&call, &request.tenant);
            let sent = operations::send_message(services, &permit, &call, request).await?;
            Ok(Answer::Sent(sent))
        }
        methods::SEND_STREAMING_MESSAGE => {
            let (request, call) = message(services, call, params)?;
            let permit = permit(&call, &request.tenant);
            let events = operations::stream_message(services, &permit, &call, request).await?;
            Ok(Answer::Stream(events))
        }
        methods::GET_TASK => {
            let request = GetTask::parse(params)?;
            let permit = permit(call, &request.tenant);
            let task = operations::get_task(services, &permit, call, &request).await?;
            Ok(Answer::Task(task))
        }
        methods::LIST_TASKS => {
            let request = ListTasks::parse(params)?;
            let permit = permit(call, &request.tenant);
            let tasks = operations::list_tasks(services, &permit, call, &request).await?;
            Ok(Answer::Tasks(tasks))
        }
        methods::CANCEL_TASK => {
            let request = CancelTask::parse(params)?;
            let permit = permit(call, &request.tenant);
            let task = operations::cancel_task(services, &permit, call, &request).await?;
            Ok(Answer::Task(task))
        }
        methods::SUBSCRIBE_TO_TASK => {
            let request = SubscribeToTask::parse(params)?;
            let permit = permit(call, &request.tenant);
            let events = operations::subscribe_to_task(services, &permit, call, &request).await?;
            Ok(Answer::Stream(events))
        }
        methods::GET_EXTENDED_AGENT_CARD => {
            let request = ExtendedCard::parse(params)?;
            let card = operations::extended_card(services, &permit(call, &request.tenant), &request)?;
            Ok(Answer::Card(Box::new(card)))
        }
        // The four operations on push configs.
        _ => {
            let request = PushConfig::parse(params)?;
            Err(operations::push_config(&permit(call, &request.tenant), &request))
        }
    }
}

/// A message, and its call with the key that the message carries.
fn message<'a>(services: &Services, call: &'a Call, params: Value) -> Result<(SendMessage, Cow<'a, Call>), ApiError> {
    let mut request = SendMessage::parse(params, &services.secrets)?;
    let by_id = services.settings.gateway.message_id_key && call.idempotency_key.is_none();
    let key = match operations::key_in_metadata(call, &mut request)? {
        Some(key) => Some(Key::Given(key)),
        None => by_id.then(|| Key::Message(request.message.message_id.clone())),
    };
    let call = match key {
        None => Cow::Borrowed(call),
        key => Cow::Owned(Call {
            idempotency_key: key,
            ..call.clone()
        }),
    };
    Ok((request, call))
}

/// For the caller, in the tenant that the request names.
fn permit<R>(call: &Call, tenant: &str) -> Permit<R> {
    authorise(Principal::new(&call.caller, tenant))
}

#[cfg(test)]
mod tests {
    use super::*;

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
