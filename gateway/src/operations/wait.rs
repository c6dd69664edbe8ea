//! Waiting for the end of one turn, for calls that answer once.

use relevo_shared::domain::class::{Class, Kind};
use relevo_shared::domain::fold::Fold;
use relevo_shared::ids::TaskId;
use relevo_shared::store::{HistoryLength, StoredTask};
use tokio::time::Instant;

use super::{before, until_answered};
use crate::drain::Seat;
use crate::error::ApiError;
use crate::hub::{Event, Listener, News};
use crate::services::Inner;

/// Why the wait was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// The turn has ended, or waits for someone.
    Turn,
    /// The limit has come, or the gateway stops.
    Time,
}

/// A turn that is waited for.
pub(super) struct Awaited {
    /// Which of its task.
    pub(super) number: u32,
    /// Whether it is enough that it waits for someone.
    pub(super) interrupted: bool,
    /// The task as it was when the wait began; as it is when the wait is over, unless more was to be heard than is kept.
    pub(super) task: Option<Fold>,
}

/// Waits until a turn has ended.
pub(super) async fn turn(
    services: &Inner,
    listener: &mut Listener,
    awaited: &mut Awaited,
    limit: Instant,
    seat: &Seat,
) -> Result<Over, ApiError> {
    let (number, interrupted) = (awaited.number, awaited.interrupted);
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
            Some(News::Events(events)) => {
                for event in events {
                    awaited.hear(&event);
                    if enough(event.kind) {
                        return Ok(Over::Turn);
                    }
                }
            }
            Some(News::Broken(error)) => return Err(error.into()),
            Some(News::Gap) => {
                awaited.task = None;
                let stored = read(services, listener.task(), HistoryLength::Latest(0), limit).await?;
                let waits = interrupted && stored.state == a2a::TaskState::AuthRequired;
                if stored.running().is_none() || stored.number > number || waits {
                    return Ok(Over::Turn);
                }
                listener.reset(stored.last);
            }
        }
    }
}

impl Awaited {
    fn hear(&mut self, event: &Event) {
        self.task = self.task.take().and_then(|mut task| {
            let heard = !event.bytes.is_empty() && event.id.seq == task.at().seq + 1;
            let folded = heard && task.apply_bytes(event.id, event.kind, &event.bytes).is_ok();
            folded.then_some(task)
        });
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
