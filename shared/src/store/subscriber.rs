//! One subscription: channels are followed and left over it; what it hears is handed on in order. One connection, or in a cluster
//! one per node.
//!
//! It does not reconnect by itself: whoever reads it must know that something may have been missed, read the journals, and
//! open another.

mod sharded;

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use redis::RedisError;
use redis::aio::{PubSubSink, PubSubStream};

use super::connection::{At, Link};
use super::{Store, StoreError};
use crate::ids::TaskId;

/// How long an acknowledgement or a pong may take before the connection counts as dead.
const PATIENCE: Duration = Duration::from_secs(5);

/// Channels followed or left in one request.
const CHUNK: usize = 512;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Which channel.
    pub channel: String,
    /// What.
    pub payload: Bytes,
}

/// The hearing half.
pub struct Subscriber(Ear);

enum Ear {
    Plain(PubSubStream),
    Sharded(Box<sharded::Ear>),
}

/// The asking half. Cheap to clone; calls are pipelined.
#[derive(Clone)]
pub struct SubscriberHandle {
    mouth: Mouth,
    store: Store,
}

#[derive(Clone)]
enum Mouth {
    Plain(PubSubSink),
    Sharded(sharded::Mouth),
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
    /// Opens a subscription.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn subscriber(&self) -> Result<(Subscriber, SubscriberHandle), StoreError> {
        let (ear, mouth) = match self.link() {
            Link::One(node) => {
                let pubsub = within(node.client().get_async_pubsub()).await?;
                let (sink, stream) = pubsub.split();
                (Ear::Plain(stream), Mouth::Plain(sink))
            }
            Link::Cluster(cluster) => {
                let (ear, mouth) = within(sharded::open(cluster)).await?;
                (Ear::Sharded(Box::new(ear)), Mouth::Sharded(mouth))
            }
        };
        let store = self.clone();
        Ok((Subscriber(ear), SubscriberHandle { mouth, store }))
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
    /// The next message; `None` when something may have been missed, after which there is none. Cancel-safe.
    pub async fn next(&mut self) -> Option<Heard> {
        match &mut self.0 {
            Ear::Plain(stream) => {
                let message = stream.next().await?;
                let payload = Bytes::copy_from_slice(message.get_payload_bytes());
                Some(Heard {
                    channel: message.get_channel_name().to_owned(),
                    payload,
                })
            }
            Ear::Sharded(ear) => ear.next().await,
        }
    }
}

impl SubscriberHandle {
    /// Follows a task; returns when Redis has acknowledged it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn follow(&self, task: TaskId) -> Result<(), StoreError> {
        self.follow_all(&[task]).await
    }

    /// Follows many tasks at once.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn follow_all(&self, tasks: &[TaskId]) -> Result<(), StoreError> {
        for chunk in tasks.chunks(CHUNK) {
            self.listen(self.channels(chunk)).await?;
        }
        Ok(())
    }

    /// Leaves tasks.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn leave_all(&self, tasks: &[TaskId]) -> Result<(), StoreError> {
        for chunk in tasks.chunks(CHUNK) {
            let channels = self.channels(chunk);
            match &self.mouth {
                Mouth::Plain(sink) => within(sink.clone().unsubscribe(names(channels))).await?,
                Mouth::Sharded(mouth) => within(mouth.leave(channels)).await?,
            }
        }
        Ok(())
    }

    /// Follows the control channels of all partitions.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn follow_control(&self) -> Result<(), StoreError> {
        let keys = self.store.keys();
        let all = keys.layout().all().map(|p| (At::Partition(p), keys.control(p)));
        self.listen(all.collect()).await
    }

    fn channels(&self, tasks: &[TaskId]) -> Vec<(At, String)> {
        let channel = |task: &TaskId| (At::Partition(task.partition()), self.store.keys().channel(*task));
        tasks.iter().map(channel).collect()
    }

    async fn listen(&self, channels: Vec<(At, String)>) -> Result<(), StoreError> {
        match &self.mouth {
            Mouth::Plain(sink) => within(sink.clone().subscribe(names(channels))).await,
            Mouth::Sharded(mouth) => within(mouth.follow(channels)).await,
        }
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// [`StoreError`] when none comes in time.
    pub async fn ping(&self) -> Result<(), StoreError> {
        match &self.mouth {
            Mouth::Plain(sink) => within(sink.clone().ping::<redis::Value>()).await.map(drop),
            Mouth::Sharded(mouth) => within(mouth.ping()).await,
        }
    }
}

fn names(channels: Vec<(At, String)>) -> Vec<String> {
    channels.into_iter().map(|(_, channel)| channel).collect()
}
