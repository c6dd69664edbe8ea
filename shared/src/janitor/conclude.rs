//! Carrying out a verdict: queue the turn again, look later, or end it with the events and the snapshot that belong to it.

use crate::domain::due::{Verdict, crashed, handed_back, only_stops};
use crate::domain::event::{self, Stopped};
use crate::domain::fold::Fold;
use crate::domain::position::trim_below;
use crate::domain::reason::{FailReason, LastAttempt};
use crate::domain::state::End;
use crate::ids::{ContextKey, LeaseToken, Nonce, Partition};
use crate::platform::entropy;
use crate::store::{
    CloseTask, ContextView, HistoryLength, Keep, LiveTurn, NewEvent, Retry, SettleEnd, Settled, Store, StoreError,
    StoredTask,
};

/// An end that somebody decided.
#[derive(Debug, Clone, Copy)]
pub struct Conclusion {
    /// How.
    pub end: End,
    /// Why, when it failed.
    pub reason: Option<FailReason>,
    /// Whether an operator should see it among the dead letters.
    pub dead: bool,
    /// Only when the lease has run out.
    pub only_expired: bool,
}

/// Commits a verdict on a context, exactly as it was read.
///
/// # Errors
/// [`StoreError`].
pub async fn commit(
    store: &Store,
    view: &ContextView,
    verdict: Verdict,
    only_expired: bool,
    keep: &Keep,
) -> Result<Settled, StoreError> {
    match verdict {
        Verdict::Forget => store.settle_due(view, 0).await,
        Verdict::Later { at } => store.settle_due(view, at).await,
        Verdict::Requeue { charge, last, at } => store.settle_requeue(view, only_expired, charge, last, at).await,
        Verdict::End { end, reason, dead } => {
            conclude(
                store,
                view,
                Conclusion {
                    end,
                    reason,
                    dead,
                    only_expired,
                },
                keep,
            )
            .await
        }
    }
}

/// Ends the live turn of a context, exactly as it was read.
///
/// # Errors
/// [`StoreError`].
pub async fn conclude(
    store: &Store,
    view: &ContextView,
    conclusion: Conclusion,
    keep: &Keep,
) -> Result<Settled, StoreError> {
    conclude_with(store, view, conclusion, None, keep).await
}

/// The same, and says what became of the turn's work elsewhere.
async fn conclude_with(
    store: &Store,
    view: &ContextView,
    conclusion: Conclusion,
    stopped: Option<Stopped>,
    keep: &Keep,
) -> Result<Settled, StoreError> {
    let Some(live) = &view.live else {
        return Ok(Settled::Changed);
    };
    let Some(stored) = store.read_task(live.record.task, HistoryLength::Latest(0)).await? else {
        return Ok(Settled::Changed);
    };
    if stored.last != live.last {
        return Ok(Settled::Changed);
    }
    let stamp = view.now.max(stored.updated);
    let nonce = Nonce(entropy::u64());
    let mut event = closing_event(live, conclusion, stamp);
    if let Some(stopped) = stopped {
        event::add_facts(&mut event, stopped.facts());
    }
    let new = NewEvent::new(live.number, &event);
    let mut fold = Fold::resume(live.last, live.number, stored.folded, None);
    fold.apply_event(live.last.after(1, nonce), new.kind, event.body)
        .map_err(|e| StoreError::Refused { rule: e.to_string() })?;
    let mut snapshot = fold.into_state();
    let history = snapshot.take_messages();
    let end = SettleEnd {
        end: conclusion.end,
        dead: conclusion.reason.filter(|_| conclusion.dead),
        only_expired: conclusion.only_expired,
        nonce,
        stamp,
        events: &[new],
        snapshot: &snapshot,
        history: &history,
        trim_below: trim_below(live.first),
    };
    store.settle_end(view, &end, keep).await
}

fn closing_event(live: &LiveTurn, conclusion: Conclusion, stamp: u64) -> event::Event {
    match conclusion.reason {
        Some(FailReason::AttemptsExhausted) => {
            let last = match conclusion {
                // Nobody knows any more what the crash was after which it was only stopped.
                _ if only_stops(&live.record, live.tries) => None,
                // Whoever gives a turn back does so while its lease holds.
                Conclusion { only_expired: true, .. } => Some(LastAttempt::WorkerLost),
                Conclusion {
                    only_expired: false, ..
                } => Some(LastAttempt::AgentStopped),
            };
            event::exhausted(&live.record, last, stamp)
        }
        Some(reason) => event::failed(&live.record, reason, stamp),
        None => event::ended(&live.record, conclusion.end, None, None, stamp),
    }
}

/// Cancels a task that waits for a message and has no turn, exactly as it was read.
///
/// # Errors
/// [`StoreError`].
pub async fn cancel_idle(store: &Store, stored: &StoredTask, keep: &Keep) -> Result<Settled, StoreError> {
    let stamp = stored.now.max(stored.updated);
    let nonce = Nonce(entropy::u64());
    let event = event::ended_task(stored.task, &stored.context_id, End::Canceled, stamp);
    let new = NewEvent::new(stored.number, &event);
    let mut fold = Fold::resume(stored.last, stored.number, stored.folded.clone(), None);
    fold.apply_event(stored.last.after(1, nonce), new.kind, event.body)
        .map_err(|e| StoreError::Refused { rule: e.to_string() })?;
    let mut snapshot = fold.into_state();
    let history = snapshot.take_messages();
    let close = CloseTask {
        task: stored.task,
        follows: stored.last,
        end: End::Canceled,
        nonce,
        stamp,
        event: &new,
        snapshot: &snapshot,
        history: &history,
    };
    let mut tries = 0;
    loop {
        match store.close_task(&close, keep).await {
            // The same call again resolves an unknown outcome.
            Err(error) if error.retry() == Retry::Later && tries < 3 => tries += 1,
            answer => return answer,
        }
    }
}

/// Why a worker gives a turn back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It stops, or Redis was away, or acknowledged writes were lost: nothing is charged. A begun at-most-once turn ends with
    /// this reason.
    HandOver(FailReason),
    /// The attempt crashed: it is charged.
    Crash,
    /// The attempt only had to stop what a crashed one has begun elsewhere, and did what it could.
    Stopped(Stopped),
}

/// What became of a turn that was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenBack {
    /// Another worker will run it.
    Queued,
    /// It ended.
    Ended(End),
    /// It was not this worker's any more.
    Gone,
}

/// How often a give-back is judged anew when the context changes under it.
const ROUNDS: usize = 8;

/// Gives a leased turn back. The agent must be gone and its events flushed or given up.
///
/// # Errors
/// [`StoreError`]; repeat it until Redis answers, the token makes that safe.
pub async fn give_back(
    store: &Store,
    partition: Partition,
    context: &ContextKey,
    token: &LeaseToken,
    why: Why,
    keep: &Keep,
) -> Result<GivenBack, StoreError> {
    for _ in 0..ROUNDS {
        let view = store.read_context(partition, context).await?;
        let Some(live) = view.live.as_ref().filter(|live| live.token.as_ref() == Some(token)) else {
            return Ok(GivenBack::Gone);
        };
        let verdict = match why {
            Why::HandOver(reason) => handed_back(&live.record, live.tries, live.canceled, reason, view.now),
            Why::Crash | Why::Stopped(_) if live.canceled => {
                handed_back(&live.record, live.tries, true, FailReason::AgentError, view.now)
            }
            Why::Crash | Why::Stopped(_) => crashed(&live.record, live.tries),
        };
        let settled = match (why, verdict) {
            (Why::Stopped(stopped), Verdict::End { end, reason, dead }) => {
                let conclusion = Conclusion {
                    end,
                    reason,
                    dead,
                    only_expired: false,
                };
                conclude_with(store, &view, conclusion, Some(stopped), keep).await?
            }
            _ => commit(store, &view, verdict, false, keep).await?,
        };
        if settled == Settled::Done {
            return Ok(match verdict {
                Verdict::End { end, .. } => GivenBack::Ended(end),
                Verdict::Forget | Verdict::Later { .. } | Verdict::Requeue { .. } => GivenBack::Queued,
            });
        }
    }
    Ok(GivenBack::Gone)
}
