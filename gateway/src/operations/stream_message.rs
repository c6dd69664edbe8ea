//! SendStreamingMessage: submits a turn and streams it to its end. With `Last-Event-ID` it is the re-sent request of a
//! client that was cut off: it resumes, and never starts a second turn.

use super::follow::{EventStream, Follow, Until, single};
use super::held;
use super::submit::{Sent, submit};
use super::subscribe_to_task::{Idle, cursor, resume};
use crate::auth::Permit;
use crate::error::ApiError;
use crate::hub::Want;
use crate::request::SendMessage;
use crate::services::{Call, Services};

/// Streams the turn that a message begins.
pub(crate) async fn stream_message(
    services: &Services,
    permit: &Permit<SendMessage>,
    call: &Call,
    request: SendMessage,
) -> Result<EventStream, ApiError> {
    let history = request.history;
    if let Some(cursor) = cursor(call)? {
        return resume(services, permit.principal(), call, cursor, Idle::Over, history).await;
    }
    match submit(services, permit.principal(), call, request, Some(Want::Events)).await? {
        Sent::Answered(opening) => {
            let cursor = opening.cursor;
            Ok(single(services, cursor, opening.into_bytes(history)))
        }
        Sent::Direct(message, cursor) => Ok(single(services, cursor, held::bytes(*message))),
        Sent::Accepted(mut accepted) => {
            if let Some(waiting) = accepted.held.take() {
                return held::stream(services, call, *accepted, waiting, history).await;
            }
            let Some(listener) = accepted.listener else {
                return Err(ApiError::StateLost(accepted.opening.cursor.task));
            };
            let cursor = accepted.opening.cursor;
            let follow = Follow::new(services, listener, Until::Turn(accepted.number)).limited(history);
            Ok(follow
                .opened(cursor, accepted.opening.into_bytes(history))
                .into_stream())
        }
    }
}
