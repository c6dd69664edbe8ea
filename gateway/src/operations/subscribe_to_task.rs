//! SubscribeToTask: the task as it is, then what follows; or, with `Last-Event-ID`, exactly what followed that event.

use relevo_shared::ids::Cursor;
use relevo_shared::store::{HistoryLength, Shown, StoredTask};

use super::follow::{EventStream, Follow, Until, snapshot};
use super::{read_own, read_visible, until_answered};
use crate::auth::{Permit, Principal};
use crate::error::ApiError;
use crate::hub::Want;
use crate::request::SubscribeToTask;
use crate::services::{Call, Services};

const ENDED: &str = "Task has ended; there is nothing to subscribe to.";
/// How errors name the header.
const FIELD: &str = "Last-Event-ID";

/// Streams a task.
pub(crate) async fn subscribe_to_task(
    services: &Services,
    permit: &Permit<SubscribeToTask>,
    call: &Call,
    request: &SubscribeToTask,
) -> Result<EventStream, ApiError> {
    let principal = permit.principal();
    if let Some(cursor) = cursor(call)? {
        if cursor.task.to_string() != request.id {
            return Err(ApiError::invalid(FIELD, "is a position in another task"));
        }
        return resume(services, principal, call, cursor, Idle::Waits, HistoryLength::All).await;
    }
    let stored = read_visible(services, principal, &request.id, HistoryLength::All, call.deadline).await?;
    if services.settings.compat.seed && stored.running().is_none() {
        return Err(ApiError::TaskNotFound(request.id.clone()));
    }
    if stored.terminal {
        return Err(ApiError::Unsupported(ENDED));
    }
    let mut listener = services.hub.join(stored.task, stored.last, Want::Events).await;
    // ORDER: after the join: what was written between the read and the subscription is found by this look.
    listener.look();
    let until = if stored.running().is_some() {
        Until::Turn(stored.number)
    } else {
        Until::Task
    };
    let cursor = Cursor {
        task: stored.task,
        entry: stored.last,
    };
    let opening = snapshot(stored.into_task(HistoryLength::All));
    Ok(Follow::new(services, listener, until)
        .opened(cursor, opening)
        .into_stream())
}

/// The position that the client names, if it names one.
pub(super) fn cursor(call: &Call) -> Result<Option<Cursor>, ApiError> {
    let Some(text) = &call.last_event_id else {
        return Ok(None);
    };
    let cursor = text
        .parse()
        .map_err(|_wrong| ApiError::invalid(FIELD, "must be the id of an event of this server"))?;
    Ok(Some(cursor))
}

/// What a resumed stream does when nothing followed its position and no turn is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Idle {
    /// It ends: it was the stream of a turn, which is over.
    Over,
    /// It waits for what the task does next, as a subscription does.
    Waits,
}

/// Streams what followed a position, to the end of the turn it belongs to, whatever has become of the task since.
pub(super) async fn resume(
    services: &Services,
    principal: &Principal,
    call: &Call,
    cursor: Cursor,
    idle: Idle,
    history: HistoryLength,
) -> Result<EventStream, ApiError> {
    let id = cursor.task.to_string();
    let stored = read_own(services, principal, &id, HistoryLength::Latest(0), call.deadline).await?;
    match stored.shown {
        Shown::Yes => {}
        // The message was all there is, for whoever sends it again.
        Shown::Never if idle == Idle::Over => return Ok(Box::pin(futures_util::stream::empty())),
        Shown::NotYet | Shown::Never => return Err(ApiError::TaskNotFound(id)),
    }
    let listener = services.hub.join(cursor.task, cursor.entry, Want::Events).await;
    let read = until_answered(call.deadline, || listener.read()).await?;
    let resumes = &services.metrics.resumes;
    let live = stored.running().map(|_| stored.number);
    let waits = idle == Idle::Waits && !stored.terminal;
    let nothing = |listener| match live {
        Some(number) => Follow::new(services, listener, Until::Turn(number)).limited(history),
        None if waits => Follow::new(services, listener, Until::Task),
        None => Follow::new(services, listener, Until::Turn(stored.number)).ended(),
    };
    match read {
        Some(events) => {
            resumes.with_label_values(&["replayed"]).inc();
            let follow = match events.first().map(|event| event.kind.turn) {
                Some(number) => Follow::new(services, listener, Until::Turn(number))
                    .limited(history)
                    .replayed(events),
                None => nothing(listener),
            };
            Ok(follow.into_stream())
        }
        // The journal of an ended turn is dropped after a while: nothing followed.
        None if cursor.entry == stored.last => {
            resumes.with_label_values(&["replayed"]).inc();
            Ok(nothing(listener).into_stream())
        }
        None => {
            let stored = reread(services, call, cursor).await?;
            let until = Until::Turn(stored.number);
            Ok(Follow::new(services, listener, until)
                .limited(history)
                .reopened(cursor.entry, stored)
                .into_stream())
        }
    }
}

/// The task with its whole history, for a snapshot.
async fn reread(services: &Services, call: &Call, cursor: Cursor) -> Result<StoredTask, ApiError> {
    let read = || services.store.read_task(cursor.task, HistoryLength::All);
    let stored = until_answered(call.deadline, read).await?;
    stored.ok_or_else(|| ApiError::TaskNotFound(cursor.task.to_string()))
}
