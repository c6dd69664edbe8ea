//! A message to a task whose agent has suspended its turn: the answer with which that turn goes on, on whichever worker.
//!
//! ORDER: as for every message, choose the ids, listen, then send. Of several answers the first that Redis sees is the one; an
//! unknown outcome is resolved by sending the same again.

use relevo_shared::domain::event;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::domain::retry::is_last;
use relevo_shared::domain::suspension::{Answer, Place};
use relevo_shared::ids::{Nonce, TurnId};
use relevo_shared::platform::entropy;
use relevo_shared::store::{Answering, LiveTurn, Reservation, StoredTask, Submitted};

use super::submit::{Accepted, New, Sent, TERMINAL, WORKING, accepted, admit, continued, listen};
use super::{keyed, until_answered};
use crate::auth::Principal;
use crate::error::ApiError;
use crate::hub::Want;
use crate::request::SendMessage;
use crate::services::{Call, Services};

/// Answers the suspended turn of a task; `None` when the task is not as it was read.
pub(super) async fn answer(
    services: &Services,
    principal: &Principal,
    call: &Call,
    request: &SendMessage,
    stored: &StoredTask,
    want: Option<Want>,
) -> Result<Option<Sent>, ApiError> {
    if call.idempotency_key.is_none() {
        admit(services, principal, New::Answer).await?;
    }
    let (task, partition) = (stored.task, stored.task.partition());
    let now = services.clock.now().max(stored.updated);
    let wanted = Reservation {
        task,
        turn: TurnId::new(now, partition, entropy::u64()),
        context_id: stored.context_id.clone(),
    };
    let ids = keyed::reserve(services, principal, call, request, wanted, New::Answer).await?;
    let read = || services.store.read_context(partition, &stored.context);
    let live = until_answered(call.deadline, read).await?.live;
    let Some(live) = live.filter(|live| is_as_read(live, stored)) else {
        return Ok(None);
    };
    let nonce = Nonce(entropy::u64());
    let place = Place {
        entry: stored.last.after(1, nonce),
        number: stored.number.saturating_add(1),
    };
    let record = answered(&live.record, call, request, place, now);
    let listener = listen(services, task, place.entry, want).await;
    let (opening, history) = continued(stored.clone(), &record, place.entry, request.history);
    let answering = Answering {
        record: &record,
        id: ids.turn,
        first: &event::submitted(&record, now),
        nonce,
        follows: stored.last,
        history: &history,
        last_attempt: is_last(&record, live.tries),
        remember_ms: keyed::remember(services, call),
    };
    let sent = accepted(services, call, &record, || services.store.answer(&answering)).await?;
    match sent {
        Submitted::Accepted { first, number, .. } if first != place.entry => {
            keyed::attach(services, call, task, number, first, want).await.map(Some)
        }
        Submitted::Accepted { number, .. } => Ok(Some(Sent::Accepted(Box::new(Accepted::of_a_known_task(
            number, listener, opening,
        ))))),
        Submitted::Working | Submitted::Busy | Submitted::Limited => Err(ApiError::Unsupported(WORKING)),
        Submitted::Terminal => Err(ApiError::Unsupported(TERMINAL)),
        Submitted::NotFound => Err(ApiError::TaskNotFound(task.to_string())),
        Submitted::Changed => Ok(None),
    }
}

fn is_as_read(live: &LiveTurn, stored: &StoredTask) -> bool {
    live.suspended.is_some() && Some(live.record.turn) == stored.live && live.last == stored.last
}

/// The turn as it goes on with this message.
fn answered(turn: &TurnRecord, call: &Call, request: &SendMessage, place: Place, now: u64) -> TurnRecord {
    let mut message = request.message.clone();
    message.context_id = Some(turn.context_id.clone());
    message.task_id = Some(turn.task.to_string());
    turn.answered(Answer {
        message,
        at: now,
        from: place,
        accepted_output_modes: request.accepted_output_modes.clone(),
        extensions: call.extensions.uris(),
        traceparent: call.traceparent.clone(),
        metadata: request.metadata.clone(),
    })
}
