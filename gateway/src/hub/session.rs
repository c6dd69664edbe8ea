//! The subscription connection: opened, kept alive, replaced. All SUBSCRIBE and UNSUBSCRIBE go through here.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use relevo_shared::domain::retry::jitter;
use relevo_shared::ids::TaskId;
use relevo_shared::platform::entropy;
use relevo_shared::store::{StoreError, Subscriber, SubscriberHandle};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Inner;

/// How often a sign of life is asked for; it must come within 5 s, so silence ends a connection after 10 s.
const PING: Duration = Duration::from_secs(5);
/// How often deserted channels are left.
const TIDY: Duration = Duration::from_millis(500);
/// Wishes taken at once.
const WISHES: usize = 512;
/// Waits between attempts to connect.
const FIRST_PAUSE_MS: u64 = 50;
const LONGEST_PAUSE_MS: u64 = 1_000;

/// What came back from Redis.
enum Done {
    /// Everything that was listened to before this connection is followed again.
    Restored(Vec<TaskId>),
    Followed(Vec<TaskId>),
    Left(Vec<TaskId>),
    Alive,
}

type Call = BoxFuture<'static, Result<Done, StoreError>>;

pub(super) async fn drive(hub: Arc<Inner>, mut wishes: UnboundedReceiver<TaskId>) {
    let mut pause = FIRST_PAUSE_MS;
    loop {
        match hub.store.subscriber().await {
            Ok((subscriber, handle)) => {
                hub.metrics.hub_connections.inc();
                let begun = Instant::now();
                let ended = session(&hub, subscriber, handle, &mut wishes).await;
                hub.table().disconnected();
                hub.connected.send_replace(false);
                hub.due.notify_one();
                let error = ended.as_ref().map(|error| error as &dyn std::error::Error);
                tracing::warn!(
                    error,
                    "the doorbell connection is lost; positions are read every second"
                );
                if begun.elapsed() > PING {
                    pause = FIRST_PAUSE_MS;
                }
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "no doorbell connection");
            }
        }
        tokio::time::sleep(Duration::from_millis(jitter(pause, entropy::u64()))).await;
        pause = (pause * 2).min(LONGEST_PAUSE_MS);
    }
}

/// Serves one connection until it breaks. Says why, if Redis did.
async fn session(
    hub: &Inner,
    mut subscriber: Subscriber,
    handle: SubscriberHandle,
    wishes: &mut UnboundedReceiver<TaskId>,
) -> Option<StoreError> {
    let mut calls: FuturesUnordered<Call> = FuturesUnordered::new();
    // Wishes of before are served by what `connected` returns.
    while wishes.try_recv().is_ok() {}
    let tasks = hub.table().connected();
    calls.push(follow(handle.clone(), tasks, Done::Restored));
    let mut pings = interval(PING);
    let mut tidy = interval(TIDY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tidy.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut batch = Vec::new();
    loop {
        // Every branch is cancel-safe: streams, channel, intervals.
        tokio::select! {
            heard = subscriber.next() => match heard {
                Some(heard) => hub.ring(&heard),
                None => return None,
            },
            _ = wishes.recv_many(&mut batch, WISHES) => {
                calls.push(follow(handle.clone(), std::mem::take(&mut batch), Done::Followed));
            }
            Some(done) = calls.next() => match done {
                Ok(Done::Restored(tasks)) => {
                    acknowledged(hub, &handle, &calls, &tasks);
                    // What rang while nobody listened is found by looking.
                    hub.table().doubt(&tasks);
                    hub.connected.send_replace(true);
                    hub.due.notify_one();
                }
                Ok(Done::Followed(tasks)) => acknowledged(hub, &handle, &calls, &tasks),
                Ok(Done::Left(tasks)) => {
                    let again = hub.table().left(&tasks);
                    if !again.is_empty() {
                        calls.push(follow(handle.clone(), again, Done::Followed));
                    }
                }
                Ok(Done::Alive) => {}
                Err(error) => return Some(error),
            },
            _ = pings.tick() => calls.push(ping(handle.clone())),
            _ = tidy.tick() => {
                let deserted = hub.table().deserted(Instant::now());
                if !deserted.is_empty() {
                    calls.push(leave(handle.clone(), deserted));
                }
                hub.metrics.hub_channels.set(i64::try_from(hub.table().len()).unwrap_or(i64::MAX));
            }
        }
    }
}

/// Tells who waits that the channels are followed, and leaves those that nobody wants any more.
fn acknowledged(hub: &Inner, handle: &SubscriberHandle, calls: &FuturesUnordered<Call>, tasks: &[TaskId]) {
    let unknown = hub.table().acknowledged(tasks);
    if !unknown.is_empty() {
        calls.push(leave(handle.clone(), unknown));
    }
}

fn follow(handle: SubscriberHandle, tasks: Vec<TaskId>, done: fn(Vec<TaskId>) -> Done) -> Call {
    Box::pin(async move {
        handle.follow_all(&tasks).await?;
        Ok(done(tasks))
    })
}

fn leave(handle: SubscriberHandle, tasks: Vec<TaskId>) -> Call {
    Box::pin(async move {
        handle.leave_all(&tasks).await?;
        Ok(Done::Left(tasks))
    })
}

fn ping(handle: SubscriberHandle) -> Call {
    Box::pin(async move {
        handle.ping().await?;
        Ok(Done::Alive)
    })
}
