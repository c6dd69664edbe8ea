//! Sending batches until their outcome is known: the same batch under the same nonce, as often as it takes.

use std::time::Duration;

use relevo_shared::domain::fold::Folded;
use relevo_shared::domain::position::trim_below;
use relevo_shared::domain::retry::jitter;
use relevo_shared::domain::state::End;
use relevo_shared::platform::entropy;
use relevo_shared::store::{Batch, EmitReply, Finish, Keep, Retry, Store, StoreError, Suspend, Taken, millis};

use super::draft::Ready;

/// The first wait after Redis did not answer, and the longest.
const WAIT_MS: u64 = 50;
const MAX_WAIT_MS: u64 = 1_000;

/// Waits before the `n`-th repeat.
pub(crate) async fn back_off(n: u32) {
    let wait = WAIT_MS.saturating_mul(1 << n.min(6)).min(MAX_WAIT_MS);
    tokio::time::sleep(Duration::from_millis(jitter(wait, entropy::u64()))).await;
}

fn batch<'a>(taken: &'a Taken, ready: &'a Ready, prev: relevo_shared::ids::EntryId) -> Batch<'a> {
    Batch {
        partition: taken.partition,
        context: &taken.context,
        epoch: taken.epoch,
        token: &taken.token,
        turn: taken.record.turn,
        task: taken.record.task,
        prev,
        nonce: ready.nonce,
        stamp: ready.stamp,
        state: ready.state.clone(),
        open: ready.open,
        snapshot: None,
        events: &ready.events,
        agent: &taken.record.agent,
        session: ready.session.as_ref(),
    }
}

/// Appends a batch; returns when its outcome is known, or with an error that no repeat can mend.
pub(crate) async fn emit(
    store: &Store,
    taken: &Taken,
    ready: &Ready,
    prev: relevo_shared::ids::EntryId,
) -> Result<EmitReply, StoreError> {
    let mut batch = batch(taken, ready, prev);
    batch.snapshot = ready.snapshot.as_deref();
    let mut tries = 0;
    loop {
        match store.emit(&batch).await {
            Err(error) if error.retry() == Retry::Later => back_off(tries).await,
            answer => return answer,
        }
        tries += 1;
    }
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) end: End,
    /// Whether it is an answer without a task.
    pub(crate) direct: bool,
}

/// Shows a task that nobody saw; returns when it may be seen, or with an error that no repeat can mend.
pub(crate) async fn show(store: &Store, taken: &Taken) -> Result<bool, StoreError> {
    let mut tries = 0;
    loop {
        match store.show_task(taken.record.task, false).await {
            Err(error) if error.retry() == Retry::Later => back_off(tries).await,
            answer => return answer,
        }
        tries += 1;
    }
}

/// Appends the last batch of an attempt; returns when its outcome is known.
pub(crate) async fn finish(
    store: &Store,
    taken: &Taken,
    (ready, mut after): (&Ready, Folded),
    prev: relevo_shared::ids::EntryId,
    Ending { end, direct }: Ending,
    keep: &Keep,
) -> Result<EmitReply, StoreError> {
    let history = after.take_messages_at(end);
    let finish = Finish {
        end,
        snapshot: &after,
        history: &history,
        trim_below: trim_below(taken.first),
        keep,
        remember_ms: taken.record.remember_ms,
        direct,
        queued: &taken.queued,
    };
    let batch = batch(taken, ready, prev);
    let mut tries = 0;
    loop {
        match store.finish(&batch, &finish).await {
            Err(error) if error.retry() == Retry::Later => back_off(tries).await,
            answer => return answer,
        }
        tries += 1;
    }
}

/// Leaves a turn to wait for its user; returns when the outcome is known.
pub(crate) async fn suspend(
    store: &Store,
    taken: &Taken,
    (ready, mut after): (Ready, Folded),
    prev: relevo_shared::ids::EntryId,
    longest: Duration,
) -> Result<EmitReply, StoreError> {
    let history = after.take_messages();
    let suspend = Suspend {
        record: &taken.record.suspended(taken.record.attempt(taken.tries)),
        snapshot: &after,
        history: &history,
        trim_below: trim_below(taken.first),
        longest_ms: millis(longest),
    };
    let batch = batch(taken, &ready, prev);
    let mut tries = 0;
    loop {
        match store.suspend(&batch, &suspend).await {
            Err(error) if error.retry() == Retry::Later => back_off(tries).await,
            answer => return answer,
        }
        tries += 1;
    }
}
