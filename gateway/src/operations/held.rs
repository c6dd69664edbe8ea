//! Answers without a task. An agent that may give one (`direct`) is not interrupted by its own stream: the task that its turn has is
//! held back until there is something that needs it, or for [`HOLD`]. Then it is shown, to this client and to the listings, in
//! one step; what the agent answers after that has a task.

use std::time::Duration;

use a2a::{Message, StreamResponse, TaskState};
use bytes::Bytes;
use relevo_shared::domain::class::Class;
use relevo_shared::domain::event;
use relevo_shared::domain::wire;
use relevo_shared::ids::{Cursor, TaskId};
use relevo_shared::platform::tasks::{self, Kind};
use relevo_shared::store::{HistoryLength, Shown};
use tokio::time::Instant;

use super::follow::{EventStream, Follow, Until, single};
use super::submit::Accepted;
use super::{before, until_answered, wait};
use crate::error::ApiError;
use crate::hub::{Event, News};
use crate::services::{Call, Inner, Services};

/// How long a stream says nothing because its answer may need no task.
const HOLD: Duration = Duration::from_millis(300);

/// Shows a task when nobody waits any more for an answer without it: its client went away, and could find it by no other means.
pub(super) struct Waiting {
    services: Services,
    task: TaskId,
    armed: bool,
}

impl Waiting {
    /// Begins before the turn is submitted: a client may go away while that is under way.
    pub(super) fn new(services: &Services, task: TaskId) -> Self {
        Self {
            services: Services::clone(services),
            task,
            armed: true,
        }
    }

    /// There is an answer, or nothing to wait for.
    pub(super) fn over(mut self) {
        self.armed = false;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (services, task) = (Services::clone(&self.services), self.task);
        let deadline = Instant::now() + services.settings.gateway.request_timeout;
        // Even if it has been answered meanwhile: nobody got it. On the connection that the submit went over, after it.
        let shown = async move { drop(until_answered(deadline, || services.store.show_task(task, true)).await) };
        // A gateway that ends before leaves it to the worker, which finds that nobody hears it.
        drop(tasks::spawn(&self.services.tasks, "show", Kind::BestEffort, shown));
    }
}

/// Streams a turn whose agent may answer without a task.
pub(super) async fn stream(
    services: &Services,
    call: &Call,
    accepted: Accepted,
    waiting: Waiting,
    history: HistoryLength,
) -> Result<EventStream, ApiError> {
    let task = accepted.opening.cursor.task;
    // The turn was taken: an error from here on must not read as if it was not.
    let stream = held(services, call, accepted, history)
        .await
        .map_err(|error| error.may_have_submitted(task))?;
    waiting.over();
    Ok(stream)
}

async fn held(
    services: &Services,
    call: &Call,
    accepted: Accepted,
    history: HistoryLength,
) -> Result<EventStream, ApiError> {
    let Accepted {
        number,
        listener,
        opening,
        ..
    } = accepted;
    let task = opening.cursor.task;
    let Some(mut listener) = listener else {
        return Err(ApiError::StateLost(task));
    };
    let mut until = Instant::now() + HOLD;
    let mut heard = Vec::new();
    loop {
        match before(until, listener.next()).await {
            Some(News::Events(events)) => {
                let needs_a_task = events.iter().any(|event| !is_silent(event));
                let over = events.iter().any(|event| event.kind.class.ends_turn());
                heard.extend(events);
                if over && let Some((message, cursor)) = answer(services, call, task).await? {
                    return Ok(single(services, cursor, bytes(message)));
                }
                if over || needs_a_task {
                    break;
                }
            }
            Some(News::Broken(error)) => return Err(error.into()),
            Some(News::Gap) => {
                show(services, call.deadline.max(until), task).await?;
                if let Some((message, cursor)) = answer(services, call, task).await? {
                    return Ok(single(services, cursor, bytes(message)));
                }
                let stored = wait::read(services, task, HistoryLength::All, call.deadline).await?;
                let requested = opening.cursor.entry;
                let follow = Follow::new(services, listener, Until::Turn(number)).limited(history);
                return Ok(follow.reopened(requested, stored).into_stream());
            }
            None if show(services, call.deadline.max(until), task).await? => break,
            // It has been answered: the event is on its way.
            None => until = call.deadline.max(until + HOLD),
        }
    }
    let follow = Follow::new(services, listener, Until::Turn(number))
        .limited(history)
        .opened(opening.cursor, opening.into_bytes(history));
    Ok(follow.replayed(heard).into_stream())
}

/// The message that a turn was answered with, if there is no task for clients, and where its event is.
pub(super) async fn answer(services: &Inner, call: &Call, task: TaskId) -> Result<Option<(Message, Cursor)>, ApiError> {
    let deadline = call.deadline.max(Instant::now() + services.settings.redis.timeout);
    let stored = wait::read(services, task, HistoryLength::Latest(0), deadline).await?;
    if stored.shown != Shown::Never {
        return Ok(None);
    }
    let cursor = Cursor {
        task,
        entry: stored.last,
    };
    Ok(event::direct_message(&stored.folded).map(|message| (message, cursor)))
}

/// Shows a task to everyone who may see it; says whether there is one to show.
pub(super) async fn show(services: &Inner, deadline: Instant, task: TaskId) -> Result<bool, ApiError> {
    Ok(until_answered(deadline, || services.store.show_task(task, false)).await?)
}

/// The event that is an answer without a task.
pub(super) fn bytes(message: Message) -> Bytes {
    Bytes::from(wire::to_vec(&StreamResponse::Message(message)))
}

/// Whether an event says no more than that the turn goes on, or is the answer itself.
fn is_silent(event: &Event) -> bool {
    let Ok(body) = serde_json::from_slice::<StreamResponse>(&event.bytes) else {
        return false;
    };
    if event::direct_answer(&body).is_some() {
        return true;
    }
    let StreamResponse::StatusUpdate(update) = body else {
        return false;
    };
    let goes_on = matches!(event.kind.class, Class::Normal | Class::Boundary);
    goes_on && update.status.state == TaskState::Working && update.status.message.is_none()
}
