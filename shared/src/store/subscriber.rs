//! One subscription connection: channels are followed and left over it; what it hears is handed on in order.
//!
//! It does not reconnect by itself: whoever reads it must know that something may have been missed, read the journals, and
//! open another.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use redis::RedisError;
use redis::aio::{PubSubSink, PubSubStream};

use super::{Store, StoreError};
use crate::ids::{Partition, TaskId};

/// How long an acknowledgement or a pong may take before the connection counts as dead.
const PATIENCE: Duration = Duration::from_secs(5);

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Which channel.
    pub channel: String,
    /// What.
    pub payload: Bytes,
}

/// The hearing half.
pub struct Subscriber {
    stream: PubSubStream,
}

/// The asking half. Cheap to clone; calls are pipelined.
#[derive(Clone)]
pub struct SubscriberHandle {
    sink: PubSubSink,
    store: Store,
}

impl std::fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SubscriberHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubscriberHandle").finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a subscription connection.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn subscriber(&self) -> Result<(Subscriber, SubscriberHandle), StoreError> {
        let pubsub = within(self.link().client().get_async_pubsub()).await?;
        let (sink, stream) = pubsub.split();
        Ok((
            Subscriber { stream },
            SubscriberHandle {
                sink,
                store: self.clone(),
            },
        ))
    }
}

async fn within<T>(call: impl Future<Output = Result<T, RedisError>>) -> Result<T, StoreError> {
    let late = || {
        RedisError::from(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            "no answer on the subscription",
        ))
    };
    let answer = tokio::time::timeout(PATIENCE, call)
        .await
        .map_err(|_wrong| StoreError::Unavailable(late()))?;
    answer.map_err(|source| StoreError::from_redis("SUBSCRIBE", source))
}

impl Subscriber {
    /// The next message; `None` when the connection has ended.
    pub async fn next(&mut self) -> Option<Heard> {
        let message = self.stream.next().await?;
        let payload = Bytes::copy_from_slice(message.get_payload_bytes());
        Some(Heard {
            channel: message.get_channel_name().to_owned(),
            payload,
        })
    }
}

impl SubscriberHandle {
    /// Follows a task; returns when Redis has acknowledged it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn follow(&self, task: TaskId) -> Result<(), StoreError> {
        let mut sink = self.sink.clone();
        within(sink.subscribe(self.store.keys().channel(task))).await
    }

    /// Follows many tasks at once.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn follow_all(&self, tasks: &[TaskId]) -> Result<(), StoreError> {
        for chunk in tasks.chunks(512) {
            let channels: Vec<String> = chunk.iter().map(|task| self.store.keys().channel(*task)).collect();
            let mut sink = self.sink.clone();
            within(sink.subscribe(&channels)).await?;
        }
        Ok(())
    }

    /// Leaves tasks.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn leave_all(&self, tasks: &[TaskId]) -> Result<(), StoreError> {
        for chunk in tasks.chunks(512) {
            let channels: Vec<String> = chunk.iter().map(|task| self.store.keys().channel(*task)).collect();
            let mut sink = self.sink.clone();
            within(sink.unsubscribe(&channels)).await?;
        }
        Ok(())
    }

    /// Follows the control channels of all partitions.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn follow_control(&self) -> Result<(), StoreError> {
        let channels: Vec<String> = self
            .store
            .keys()
            .layout()
            .all()
            .map(|p: Partition| self.store.keys().control(p))
            .collect();
        let mut sink = self.sink.clone();
        within(sink.subscribe(&channels)).await
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// [`StoreError`] when none comes in time.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let mut sink = self.sink.clone();
        within(sink.ping::<redis::Value>()).await.map(drop)
    }
}
