//! Sharded subscriptions of a Redis Cluster: a connection to each node, and every channel over the one of its partition's node.
//!
//! Whatever makes it doubtful that everything is heard ends the whole: a connection that breaks, a new map, a slot that left its node
//! (the node takes the subscription back), a node that was away when this began and is there again. The channels of a node that is
//! away count as followed meanwhile: nothing can be published there.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, ProtocolVersion, PushInfo, PushKind, RedisError, Value};
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::super::connection::{At, Cluster, Map, Node, command};
use super::super::script::text;
use super::{Heard, PATIENCE};

/// How long a node may take to be connected before it counts as away.
const CONNECT: Duration = Duration::from_secs(1);
/// How often nodes that were away are thought of. Whether they are back is known from other calls.
const LOOK: Duration = Duration::from_millis(500);

/// The hearing half.
pub(super) struct Ear {
    heard: mpsc::UnboundedReceiver<PushInfo>,
    shared: Arc<Shared>,
    maps: watch::Receiver<Arc<Map>>,
    missing: Vec<Arc<Node>>,
    looks: Interval,
}

/// The asking half.
#[derive(Clone)]
pub(super) struct Mouth(Arc<Shared>);

struct Shared {
    cluster: Arc<Cluster>,
    map: Arc<Map>,
    connections: Vec<(Arc<Node>, MultiplexedConnection)>,
    /// Channels that are being left: these alone may be taken back.
    leaving: Mutex<HashSet<String>>,
}

impl Shared {
    fn leaving(&self) -> MutexGuard<'_, HashSet<String>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects to every node that is there.
pub(super) async fn open(cluster: &Arc<Cluster>) -> Result<(Ear, Mouth), RedisError> {
    let mut maps = cluster.maps();
    let map = Arc::clone(&maps.borrow_and_update());
    let (sender, heard) = mpsc::unbounded_channel();
    let opened = join_all(map.nodes().iter().map(|node| connect(node, sender.clone()))).await;
    let (mut connections, mut missing, mut failure) = (Vec::new(), Vec::new(), None);
    for (node, connection) in map.nodes().iter().zip(opened) {
        node.note(&connection);
        match connection {
            Ok(connection) => connections.push((Arc::clone(node), connection)),
            Err(error) => {
                cluster.doubt(&map, node, &error).await;
                missing.push(Arc::clone(node));
                failure = Some(error);
            }
        }
    }
    if let (Some(error), true) = (failure, connections.is_empty()) {
        return Err(error);
    }
    let shared = Arc::new(Shared {
        cluster: Arc::clone(cluster),
        map,
        connections,
        leaving: Mutex::default(),
    });
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ear = Ear {
        heard,
        shared: Arc::clone(&shared),
        maps,
        missing,
        looks,
    };
    Ok((ear, Mouth(shared)))
}

async fn connect(node: &Node, heard: mpsc::UnboundedSender<PushInfo>) -> Result<MultiplexedConnection, RedisError> {
    let info = node.client().get_connection_info().clone();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let client = Client::open(info.set_redis_settings(settings))?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT))
        .set_response_timeout(Some(PATIENCE))
        .set_push_sender(heard);
    client.get_multiplexed_async_connection_with_config(&config).await
}

impl Ear {
    /// The next message; `None` when something may have been missed. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Heard> {
        loop {
            tokio::select! {
                info = self.heard.recv() => {
                    let PushInfo { kind, data } = info?;
                    let mut data = data.into_iter();
                    match kind {
                        PushKind::SMessage => {
                            if let (Some(channel), Some(Value::BulkString(payload))) = (data.next(), data.next())
                                && let Some(channel) = text(&channel)
                            {
                                return Some(Heard { channel, payload: payload.into() });
                            }
                        }
                        PushKind::SUnsubscribe => {
                            let channel = data.next().as_ref().and_then(text)?;
                            if !self.shared.leaving().remove(&channel) {
                                return None;
                            }
                        }
                        PushKind::Disconnection => return None,
                        _ => {}
                    }
                }
                _ = self.maps.changed() => return None,
                _ = self.looks.tick(), if !self.missing.is_empty() => {
                    if self.missing.iter().any(|node| !node.is_away()) {
                        return None;
                    }
                }
            }
        }
    }
}

impl Mouth {
    pub(super) async fn follow(&self, channels: Vec<(At, String)>) -> Result<(), RedisError> {
        self.ask("SSUBSCRIBE", channels).await
    }

    pub(super) async fn leave(&self, channels: Vec<(At, String)>) -> Result<(), RedisError> {
        let names = channels.iter().filter(|(at, _)| self.place(*at).is_some());
        self.0.leaving().extend(names.map(|(_, channel)| channel.clone()));
        self.ask("SUNSUBSCRIBE", channels).await
    }

    pub(super) async fn ping(&self) -> Result<(), RedisError> {
        let pings = self.0.connections.iter().map(async |(_, connection)| {
            let answer = connection.clone().send_packed_command(&command("PING")).await;
            answer.and_then(Value::extract_error)
        });
        try_join_all(pings).await.map(drop)
    }

    fn place(&self, at: At) -> Option<usize> {
        let node = self.0.map.node(at).ok()?;
        let mut connections = self.0.connections.iter();
        connections.position(|(connected, _)| Arc::ptr_eq(connected, node))
    }

    /// One command per channel: those of one command would have to share a slot.
    async fn ask(&self, verb: &str, channels: Vec<(At, String)>) -> Result<(), RedisError> {
        let mut parts: Vec<(Pipeline, usize)> = self.0.connections.iter().map(|_| Default::default()).collect();
        for (at, channel) in channels {
            if let Some((pipeline, count)) = self.place(at).and_then(|place| parts.get_mut(place)) {
                let mut ask = command(verb);
                ask.arg(channel);
                pipeline.add_command(ask);
                *count += 1;
            }
        }
        let parts = parts
            .iter()
            .zip(&self.0.connections)
            .filter(|((_, count), _)| *count > 0);
        let asked = parts.map(async |((pipeline, count), (node, connection))| {
            let answers = connection.clone().send_packed_commands(pipeline, 0, *count).await;
            let answers =
                answers.and_then(|all| all.into_iter().map(Value::extract_error).collect::<Result<Vec<_>, _>>());
            if let Err(error) = &answers {
                self.0.cluster.doubt(&self.0.map, node, error).await;
            }
            answers
        });
        try_join_all(asked).await.map(drop)
    }
}
