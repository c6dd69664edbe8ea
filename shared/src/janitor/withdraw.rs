//! Ending turns that have not begun: one that waits behind another and is cancelled, and everything that a message interrupts.

use super::conclude::{Conclusion, conclude};
use crate::domain::event;
use crate::domain::fold::Fold;
use crate::domain::record::TurnRecord;
use crate::domain::state::End;
use crate::ids::{ContextKey, Nonce, Partition, TurnId};
use crate::platform::entropy;
use crate::store::{HistoryLength, Interrupt, Keep, NewEvent, Settled, Store, StoreError, Withdrawal};

/// Ends a task whose turn waits behind another of its context, if it still does.
///
/// # Errors
/// [`StoreError`].
pub async fn withdraw(store: &Store, context: &ContextKey, turn: TurnId, keep: &Keep) -> Result<Settled, StoreError> {
    let Some(record) = store.accepted_turn(turn).await? else {
        return Ok(Settled::Changed);
    };
    match withdrawal(store, &record).await? {
        Some(end) => store.withdraw(context, &end, keep).await,
        None => Ok(Settled::Changed),
    }
}

/// What must end before a turn may interrupt a context, as it is now; `None` when nothing is live there, or it changes.
///
/// # Errors
/// [`StoreError`].
pub async fn interrupt(
    store: &Store,
    partition: Partition,
    context: &ContextKey,
    keep: &Keep,
) -> Result<Option<Interrupt>, StoreError> {
    let Some(live) = store.read_context(partition, context).await?.live else {
        return Ok(None);
    };
    let mut waiting = Vec::new();
    for record in store.waiting_turns(partition, context).await? {
        match withdrawal(store, &record).await? {
            Some(end) => waiting.push(end),
            None => return Ok(None),
        }
    }
    Ok(Some(Interrupt {
        live: live.record.turn,
        waiting,
        keep: *keep,
    }))
}

/// Ends the live turn that was interrupted when nobody holds it. Whoever holds it was told; if nobody comes here, a janitor
/// does it, or the worker that takes it.
///
/// # Errors
/// [`StoreError`].
pub async fn end_interrupted(
    store: &Store,
    partition: Partition,
    context: &ContextKey,
    turn: TurnId,
    keep: &Keep,
) -> Result<(), StoreError> {
    let view = store.read_context(partition, context).await?;
    let unheld = view
        .live
        .as_ref()
        .is_some_and(|live| live.record.turn == turn && live.canceled && live.token.is_none());
    if unheld {
        let end = Conclusion {
            end: End::Canceled,
            reason: None,
            dead: false,
            only_expired: false,
        };
        conclude(store, &view, end, keep).await?;
    }
    Ok(())
}

/// The end of a turn that waits, as its task is now.
async fn withdrawal(store: &Store, record: &TurnRecord) -> Result<Option<Withdrawal>, StoreError> {
    let stored = store.read_task(record.task, HistoryLength::Latest(0)).await?;
    let Some(stored) = stored.filter(|stored| stored.live == Some(record.turn)) else {
        return Ok(None);
    };
    let stamp = stored.now.max(stored.updated);
    let nonce = Nonce(entropy::u64());
    let ended = event::ended(record, End::Canceled, None, None, stamp);
    let event = NewEvent::new(stored.number, &ended);
    let mut fold = Fold::resume(stored.last, stored.number, stored.folded, None);
    fold.apply_event(stored.last.after(1, nonce), event.kind, ended.body)
        .map_err(|e| StoreError::Refused { rule: e.to_string() })?;
    let mut snapshot = fold.into_state();
    let history = snapshot.take_messages();
    Ok(Some(Withdrawal {
        turn: record.turn,
        task: record.task,
        follows: stored.last,
        nonce,
        stamp,
        event,
        snapshot,
        history,
        remember_ms: record.remember_ms,
    }))
}
