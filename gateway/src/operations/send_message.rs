//! SendMessage: submits a turn and answers when it has ended, or at once when the client wants that.

use a2a::{SendMessageResponse, Task};
use relevo_shared::domain::event::with_turn_facts;
use serde_json::{Map, Value};

use super::held;
use super::submit::{Accepted, Sent, submit};
use super::wait::{self, Awaited, Over};
use crate::auth::Permit;
use crate::error::ApiError;
use crate::hub::Want;
use crate::request::SendMessage;
use crate::services::{Call, Services};

/// Answers with the task: after the end of the turn that the message began, or, unasked, as it stands.
pub(crate) async fn send_message(
    services: &Services,
    permit: &Permit<SendMessage>,
    call: &Call,
    request: SendMessage,
) -> Result<SendMessageResponse, ApiError> {
    let history = request.history;
    let want = (!request.return_immediately).then_some(Want::Few);
    let accepted = match submit(services, permit.principal(), call, request, want).await? {
        Sent::Answered(opening) => return Ok(SendMessageResponse::Task(history.limit(opening.task))),
        Sent::Direct(message, _) => return Ok(SendMessageResponse::Message(*message)),
        Sent::Accepted(accepted) => *accepted,
    };
    let mut awaited = Awaited {
        number: accepted.number,
        interrupted: true,
        task: accepted.fold(),
    };
    let Accepted {
        number,
        listener,
        opening,
        place,
        held,
        ..
    } = accepted;
    let Some(mut listener) = listener else {
        let task = history.limit(opening.task);
        let facts = Map::from_iter([("queuePosition".to_owned(), place.into())]);
        return Ok(SendMessageResponse::Task(if place > 0 {
            with_turn_facts(task, &facts)
        } else {
            task
        }));
    };
    let seat = services.drain.seat();
    let limit = call.received + services.settings.send.max_wait;
    // The turn was taken: an error from here on must not read as if it was not.
    let taken = |error: ApiError| error.may_have_submitted(opening.cursor.task);
    let over = wait::turn(services, &mut listener, &mut awaited, limit, &seat)
        .await
        .map_err(taken)?;
    // The wait may have used the call's own time up; reading the answer has as much again, unless the gateway stops: then it is better
    // to say that Redis gives no answer than to be cut off.
    let deadline = || {
        let usual = tokio::time::Instant::now() + services.settings.gateway.request_timeout;
        seat.last_moment().map_or(usual, |last| last.min(usual))
    };
    if let Some(waiting) = held {
        if over == Over::Time {
            // What comes back in a moment is a task.
            held::show(services, deadline(), opening.cursor.task)
                .await
                .map_err(taken)?;
        }
        let answer = held::answer(services, call, opening.cursor.task).await.map_err(taken)?;
        waiting.over();
        if let Some((message, _)) = answer {
            return Ok(SendMessageResponse::Message(message));
        }
    }
    if let (Over::Turn, Some(fold)) = (over, awaited.task) {
        let Task { id, context_id, .. } = opening.task;
        let task = fold.into_state().into_task(id, context_id, Vec::new());
        return Ok(SendMessageResponse::Task(history.limit(task)));
    }
    let stored = wait::read(services, opening.cursor.task, history, deadline())
        .await
        .map_err(taken)?;
    let running = over == Over::Time && stored.running().is_some() && stored.number == number;
    let task = stored.into_task(history);
    let facts = Map::from_iter([("stillRunning".to_owned(), Value::Bool(true))]);
    Ok(SendMessageResponse::Task(if running {
        with_turn_facts(task, &facts)
    } else {
        task
    }))
}
