//! The operations of A2A, one file each, named like them. They take typed requests with the proof that the caller may
//! make them, and give typed results or streams of events; no transport, no status code, no JSON-RPC is known here.

pub(crate) mod agent_card;
mod answer;
mod busy;
mod cancel_task;
mod cursor;
mod extended_card;
pub(crate) mod extensions;
mod follow;
mod get_artifact;
mod get_task;
mod held;
mod keyed;
mod list_tasks;
mod opening;
mod push_config;
mod route;
mod send_message;
mod stream_message;
mod submit;
mod subscribe_to_task;
mod takes;
mod wait;

pub(crate) use cancel_task::cancel_task;
pub(crate) use cursor::add_cursor;
pub(crate) use extended_card::extended_card;
pub(crate) use follow::{EventStream, StreamEvent, StreamItem};
pub(crate) use get_artifact::{StoredPart, find_artifact, open_artifact};
pub(crate) use get_task::get_task;
pub(crate) use keyed::from_metadata as key_in_metadata;
pub(crate) use list_tasks::{Page, list_tasks};
pub(crate) use push_config::push_config;
pub(crate) use send_message::send_message;
pub(crate) use stream_message::stream_message;
pub(crate) use subscribe_to_task::subscribe_to_task;

use std::time::Duration;

use relevo_shared::domain::retry::jitter;
use relevo_shared::ids::TaskId;
use relevo_shared::platform::entropy;
use relevo_shared::store::{HistoryLength, Retry, Shown, StoreError, StoredTask};
use tokio::time::{Instant, timeout_at};

use crate::auth::Principal;
use crate::error::ApiError;
use crate::services::Inner;

/// Waits between repeats while Redis is away.
const FIRST_PAUSE_MS: u64 = 20;
const LONGEST_PAUSE_MS: u64 = 500;

/// Redis did not answer in time.
#[derive(Debug)]
struct Unanswered {
    /// What it said last; `None`: nothing.
    error: Option<StoreError>,
    /// Whether the call may have had its effect all the same, at the last try or before.
    unknown: bool,
}

impl From<Unanswered> for ApiError {
    fn from(unanswered: Unanswered) -> Self {
        unanswered.error.map_or_else(Self::redis_silent, Into::into)
    }
}

/// Repeats a call, which must be safe to repeat, until Redis answers or `deadline` has come.
async fn until_answered<T, F>(deadline: Instant, mut call: impl FnMut() -> F) -> Result<T, Unanswered>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pause = FIRST_PAUSE_MS;
    let mut unknown = false;
    loop {
        let error = match timeout_at(deadline, call()).await {
            Ok(Ok(answer)) => return Ok(answer),
            // A refusal says nothing about a try whose answer was lost.
            Ok(Err(error)) if error.retry() == Retry::Never || error.is_full() => {
                let error = Some(error);
                return Err(Unanswered { error, unknown });
            }
            Ok(Err(error)) => error,
            Err(_elapsed) => {
                let (error, unknown) = (None, true);
                return Err(Unanswered { error, unknown });
            }
        };
        unknown = true;
        let wait = Duration::from_millis(jitter(pause, entropy::u64()));
        if Instant::now() + wait >= deadline {
            let error = Some(error);
            return Err(Unanswered { error, unknown });
        }
        tokio::time::sleep(wait).await;
        pause = (pause * 2).min(LONGEST_PAUSE_MS);
    }
}

/// Reads a task that `principal` can see. Anything else is not found, whatever the reason: a text that is no id, no task,
/// another's, or one that nobody may see.
async fn read_visible(
    services: &Inner,
    principal: &Principal,
    id: &str,
    history: HistoryLength,
    deadline: Instant,
) -> Result<StoredTask, ApiError> {
    let stored = read_own(services, principal, id, history, deadline).await?;
    if stored.shown == Shown::Yes {
        Ok(stored)
    } else {
        Err(ApiError::TaskNotFound(id.to_owned()))
    }
}

/// The same, also of one that was, or may be, answered without a task.
async fn read_own(
    services: &Inner,
    principal: &Principal,
    id: &str,
    history: HistoryLength,
    deadline: Instant,
) -> Result<StoredTask, ApiError> {
    let not_found = || ApiError::TaskNotFound(id.to_owned());
    let task = TaskId::parse(id).ok_or_else(not_found)?;
    let stored = until_answered(deadline, || services.store.read_task(task, history)).await?;
    let stored = stored
        .filter(|stored| stored.scope == *principal.scope())
        .ok_or_else(not_found)?;
    services.clock.learn(stored.now);
    Ok(stored)
}

/// Resolves at `deadline` or when `other` does, whichever is first; `None` at the deadline.
async fn before<T>(deadline: Instant, other: impl Future<Output = T>) -> Option<T> {
    timeout_at(deadline, other).await.ok()
}
