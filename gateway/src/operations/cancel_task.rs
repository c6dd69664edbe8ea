//! CancelTask: asks for the end of the task's live turn and answers when it has stopped.
//!
//! CANCELED means stopped: a leased turn is ended by its worker (or when its lease has run out); one that nobody holds, or
//! that waits behind another, is ended here. The order of the scripts decides between a cancel and an answer that is just
//! being finished; both are right.

use a2a::{Task, TaskState};
use relevo_shared::domain::event::with_turn_facts;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{Nonce, TurnId};
use relevo_shared::janitor::{Conclusion, cancel_idle, conclude, withdraw};
use relevo_shared::platform::entropy;
use relevo_shared::store::{Asked, HistoryLength, Settled, StoredTask};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::wait::{self, Awaited, Over};
use super::{read_visible, until_answered};
use crate::auth::Permit;
use crate::error::ApiError;
use crate::hub::{Listener, Want};
use crate::request::CancelTask;
use crate::services::{Call, Inner, Services};

/// How often a cancel is judged anew because the task changed under it.
const ROUNDS: usize = 16;

/// What one look at the turn led to.
enum Step {
    /// The worker was told.
    Told,
    /// It is ended.
    Ended,
    /// The turn is not what it was: look again.
    Changed,
}

impl From<Settled> for Step {
    fn from(settled: Settled) -> Self {
        match settled {
            Settled::Done => Self::Ended,
            Settled::Changed => Self::Changed,
        }
    }
}

/// Cancels a task.
pub(crate) async fn cancel_task(
    services: &Services,
    permit: &Permit<CancelTask>,
    call: &Call,
    request: &CancelTask,
) -> Result<Task, ApiError> {
    let principal = permit.principal();
    // One nonce for the whole call: the request may reach Redis more than once.
    let nonce = Nonce(entropy::u64());
    // Whether a turn was asked to stop by this call: then its end CANCELED is this call's own doing.
    let mut asked = false;
    for _ in 0..ROUNDS {
        let stored = read_visible(services, principal, &request.id, HistoryLength::All, call.deadline).await?;
        if stored.terminal {
            let ours = asked && stored.state == TaskState::Canceled;
            return if ours {
                Ok(stored.into_task(HistoryLength::All))
            } else {
                Err(ended(request))
            };
        }
        let Some(turn) = stored.live else {
            if services.settings.compat.seed && !asked {
                return Err(ended(request));
            }
            // It waits for its user: nothing runs, nothing has to stop.
            asked = true;
            until_answered(call.deadline, || cancel_idle(&services.store, &stored, &services.keep)).await?;
            continue;
        };
        let mut listener = services.hub.join(stored.task, stored.last, Want::Kinds).await;
        listener.look();
        asked = true;
        match stop(services, call, &stored, turn, nonce).await? {
            // Answered since it was read: what runs has another number.
            Step::Told if stored.suspended => {}
            Step::Told => return await_end(services, call, &mut listener, &stored).await,
            Step::Ended | Step::Changed => {}
        }
    }
    Err(ApiError::Unsupported(
        "The task changes too quickly to be canceled; try again",
    ))
}

fn ended(request: &CancelTask) -> ApiError {
    ApiError::TaskNotCancelable(request.id.clone())
}

/// Asks for the end of a live turn; ends it when nobody holds it.
async fn stop(
    services: &Inner,
    call: &Call,
    stored: &StoredTask,
    turn: TurnId,
    nonce: Nonce,
) -> Result<Step, ApiError> {
    let store = &services.store;
    let partition = stored.task.partition();
    let ask = || store.request_cancel(partition, &stored.context, turn, nonce);
    match until_answered(call.deadline, ask).await? {
        Asked::Told => Ok(Step::Told),
        Asked::Gone => Ok(Step::Changed),
        Asked::Waiting => {
            let withdraw = || withdraw(store, &stored.context, turn, &services.keep);
            Ok(until_answered(call.deadline, withdraw).await?.into())
        }
        Asked::Unheld => {
            let view = until_answered(call.deadline, || store.read_context(partition, &stored.context)).await?;
            let unheld = |live: &relevo_shared::store::LiveTurn| live.record.turn == turn && live.token.is_none();
            if !view.live.as_ref().is_some_and(unheld) {
                return Ok(Step::Changed);
            }
            let end = Conclusion {
                end: End::Canceled,
                reason: None,
                dead: false,
                only_expired: false,
            };
            let settle = || conclude(store, &view, end, &services.keep);
            Ok(until_answered(call.deadline, settle).await?.into())
        }
    }
}

/// Waits until a turn whose worker was told has ended, and answers the task, whatever it is by then.
async fn await_end(
    services: &Services,
    call: &Call,
    listener: &mut Listener,
    stored: &StoredTask,
) -> Result<Task, ApiError> {
    let seat = services.drain.seat();
    let limit = Instant::now() + services.settings.cancel.wait;
    let mut awaited = Awaited {
        number: stored.number,
        interrupted: false,
        task: None,
    };
    let over = wait::turn(services, listener, &mut awaited, limit, &seat).await?;
    let deadline = call.deadline.max(Instant::now() + services.settings.redis.timeout);
    let after = wait::read(services, stored.task, HistoryLength::All, deadline).await?;
    let running = over == Over::Time && after.live == stored.live;
    let task = after.into_task(HistoryLength::All);
    let facts = Map::from_iter([("cancelRequested".to_owned(), Value::Bool(true))]);
    Ok(if running { with_turn_facts(task, &facts) } else { task })
}
