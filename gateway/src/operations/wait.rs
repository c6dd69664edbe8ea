//! Waiting for the end of one turn, for calls that answer once.

use relevo_shared::domain::class::{Class, Kind};
use relevo_shared::ids::TaskId;
use relevo_shared::store::{HistoryLength, StoredTask};
use tokio::time::Instant;

use super::{before, until_answered};
use crate::drain::Seat;
use crate::error::ApiError;
use crate::hub::{Listener, News};
use crate::services::Inner;

/// Why the wait was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// The turn has ended, or waits for someone.
    Turn,
    /// The limit has come, or the gateway stops.
    Time,
}

/// Waits until turn `number` has ended, or waits for someone if `interrupted` counts too.
pub(super) async fn turn(
    services: &Inner,
    listener: &mut Listener,
    number: u32,
    interrupted: bool,
    limit: Instant,
    seat: &Seat,
) -> Result<Over, ApiError> {
    let enough = |kind: Kind| {
        kind.turn > number
            || (kind.turn == number && (kind.class.ends_turn() || (interrupted && kind.class == Class::Waiting)))
    };
    loop {
        let news = tokio::select! {
            news = before(limit, listener.next()) => news,
            () = seat.must_go(false) => None,
        };
        match news {
            None => return Ok(Over::Time),
            Some(News::Events(events)) if events.iter().any(|event| enough(event.kind)) => return Ok(Over::Turn),
            Some(News::Events(_)) => {}
            Some(News::Broken(error)) => return Err(error.into()),
            Some(News::Gap) => {
                let stored = read(services, listener.task(), HistoryLength::Latest(0), limit).await?;
                let waits = interrupted && stored.state == a2a::TaskState::AuthRequired;
                if stored.live.is_none() || stored.number > number || waits {
                    return Ok(Over::Turn);
                }
                listener.reset(stored.last);
            }
        }
    }
}

/// Reads a task that must still be there.
pub(super) async fn read(
    services: &Inner,
    task: TaskId,
    history: HistoryLength,
    deadline: Instant,
) -> Result<StoredTask, ApiError> {
    let stored = until_answered(deadline, || services.store.read_task(task, history)).await?;
    stored.ok_or(ApiError::StateLost(task))
}
