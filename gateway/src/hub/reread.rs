//! Looking at positions without a doorbell: the last one of a turn has no successor that would show its loss.

use std::sync::Arc;
use std::time::Duration;

use relevo_shared::ids::{EntryId, TaskId};
use relevo_shared::store::JournalRead;
use tokio::time::Instant;

use super::Inner;
use super::feed::{Feed, Reason};

/// How often a position is looked at while nobody can ring.
const DEAF: Duration = Duration::from_secs(1);
/// Looks per write: enough to be cheap, few enough not to hold up scripts behind them.
const CHUNK: usize = 128;
/// The pause between such writes.
const PAUSE: Duration = Duration::from_millis(2);
/// Parts of the interval in which due positions are collected, so that they are spread over it.
const STEPS: u32 = 8;

pub(super) async fn drive(hub: Arc<Inner>) {
    loop {
        let connected = *hub.connected.borrow();
        let age = if connected {
            hub.settings.reread
        } else {
            hub.settings.reread.min(DEAF)
        };
        let step = age / STEPS;
        // Cancel-safe: a notification that comes during a sleep ends it, and is kept when it comes before.
        let _woken = tokio::time::timeout(step, hub.due.notified()).await;
        // What becomes due before the next step is looked at now, so that the promised age is kept.
        let due = due(&hub, age.saturating_sub(step));
        for chunk in due.chunks(CHUNK) {
            look(&hub, chunk).await;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn due(hub: &Inner, age: Duration) -> Vec<(Arc<Feed>, EntryId)> {
    let now = Instant::now();
    let table = hub.table();
    table
        .feeds()
        .filter_map(|feed| Some((Arc::clone(feed), feed.due(now, age)?)))
        .collect()
}

async fn look(hub: &Inner, chunk: &[(Arc<Feed>, EntryId)]) {
    let positions: Vec<(TaskId, EntryId)> = chunk.iter().map(|(feed, at)| (feed.task(), *at)).collect();
    // One entry says enough: whether anything follows.
    let looked = match hub.store.read_journals(&positions, 1).await {
        Ok(looked) => looked,
        Err(error) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "positions cannot be looked at"
            );
            return;
        }
    };
    for ((feed, at), read) in chunk.iter().zip(looked) {
        match read {
            Ok(JournalRead::Entries(entries)) if entries.is_empty() => feed.confirm(*at),
            Ok(JournalRead::Entries(_) | JournalRead::Gap) => feed.fall_behind(Reason::Reread),
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "a position cannot be looked at"
                );
                feed.confirm(*at);
            }
        }
    }
}
