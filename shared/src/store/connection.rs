//! Which Redis node a command goes to: the only one, or in a Redis Cluster the one that serves its partition.

mod cluster;
mod map;
mod node;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ConnectionInfo, IntoConnectionInfo, Pipeline, RedisError, Value};

pub(super) use cluster::Cluster;
pub(super) use map::Map;
pub(super) use node::Node;
pub(super) use slots::unserved;

use super::keys::Keys;
use super::{Store, StoreError};
use crate::ids::Partition;
use map::Slots;
use node::NodeOptions;

/// How to reach Redis.
#[derive(Clone)]
pub struct ConnectOptions {
    /// `redis://`, `rediss://` or `unix://`; of a cluster, any node.
    pub url: String,
    /// ACL user.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// First part of every key.
    pub prefix: String,
    /// P; fixed for ever.
    pub partitions: u32,
    /// How long a reply may take.
    pub timeout: Duration,
    /// Most exclusive connections per node.
    pub pool_size: usize,
}

impl std::fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// What a command is about, and so where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Partition(Partition),
    /// Bells and the registry of workers, which live in one slot of their own.
    Bell,
    /// The key of the layout.
    Layout,
    /// No key: any node knows.
    Any,
}

impl At {
    /// Which multiplexed connection of its node carries it. All bells go over one.
    pub(super) fn lane(self) -> usize {
        match self {
            Self::Partition(partition) => usize::from(partition.0),
            Self::Bell => 1,
            Self::Layout | Self::Any => 0,
        }
    }
}

/// What several commands go over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    /// The connection of the scripts.
    Lane,
    /// One of their own: big reads must not hold up the scripts.
    Exclusive,
}

impl Via {
    async fn send(self, node: &Node, commands: &Pipeline, count: usize) -> Result<Vec<Value>, RedisError> {
        match self {
            Self::Lane => node.pipeline(0, commands, count).await,
            Self::Exclusive => node.exclusively(commands, count).await,
        }
    }
}

/// The connections of a process.
pub(super) enum Link {
    /// A Redis that is no cluster.
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Link {
    /// Asks whether it is a cluster, and if so of which nodes.
    pub(super) async fn open(options: &ConnectOptions, keys: &Keys) -> Result<Self, StoreError> {
        let info = connection_info(options)?;
        let mut node_options = NodeOptions {
            timeout: options.timeout,
            pool_size: options.pool_size,
            clustered: false,
        };
        let seed = Arc::new(Node::open(&info, node_options)?);
        let about = seed.info("cluster").await.map_err(|error| error.at(&options.url))?;
        if info_field(&about, "cluster_enabled").as_deref() != Some("1") {
            return Ok(Self::One(seed));
        }
        node_options.clustered = true;
        let seed = Arc::new(Node::open(&info, node_options)?);
        let layout = keys.layout();
        let tags = layout.all().filter_map(|partition| layout.tag(partition));
        let slots = Slots::of(tags, &keys.layout_key());
        let cluster = Cluster::open(info, seed, node_options, slots).await?;
        Ok(Self::Cluster(Arc::new(cluster)))
    }

    pub(super) fn cluster(&self) -> Option<&Cluster> {
        match self {
            Self::One(_) => None,
            Self::Cluster(cluster) => Some(cluster),
        }
    }

    /// The node of a place.
    pub(super) fn node(&self, at: At) -> Result<Arc<Node>, RedisError> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.map().node(at).map(Arc::clone),
        }
    }

    /// Every node that holds data.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => cluster.map().nodes().to_vec(),
        }
    }

    /// Sends one command.
    pub(super) async fn query(&self, at: At, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::One(node) => node.query(at.lane(), command).await,
            Self::Cluster(cluster) => cluster.query(at, command).await,
        }
    }

    /// What was not sent through here met an error: the map of a cluster is read anew if it may be out of date.
    pub(super) async fn doubt(&self, at: At, error: &RedisError) {
        let Self::Cluster(cluster) = self else { return };
        let map = cluster.map();
        if let Ok(node) = map.node(at) {
            cluster.doubt(&map, node, error).await;
        }
    }

    /// Sends several commands in one write per node; each has its own answer.
    pub(super) async fn many(
        &self,
        via: Via,
        commands: Vec<(At, Cmd)>,
    ) -> Result<Vec<Result<Value, RedisError>>, RedisError> {
        match self {
            Self::One(node) => {
                let count = commands.len();
                let mut pipeline = Pipeline::with_capacity(count);
                for (_, command) in commands {
                    pipeline.add_command(command);
                }
                let answers = via.send(node, &pipeline, count).await?;
                Ok(answers.into_iter().map(Value::extract_error).collect())
            }
            Self::Cluster(cluster) => cluster.many(via, commands).await,
        }
    }
}

fn connection_info(options: &ConnectOptions) -> Result<ConnectionInfo, StoreError> {
    let info = options
        .url
        .as_str()
        .into_connection_info()
        .map_err(|source| StoreError::Command {
            what: "the redis url",
            source,
        })?;
    let mut settings = info.redis_settings().clone();
    if let Some(username) = &options.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = &options.password {
        settings = settings.set_password(password);
    }
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
}

impl Node {
    /// A section of INFO.
    pub(super) async fn info(&self, section: &str) -> Result<String, StoreError> {
        let mut command = command("INFO");
        command.arg(section);
        let answer = self.if_there(self.query(0, &command)).await;
        let value = answer.map_err(|source| StoreError::from_redis("INFO", source))?;
        redis::from_redis_value(value).map_err(|e| StoreError::corrupt("INFO", e.to_string()))
    }
}

impl Store {
    /// One answer to one command outside scripts.
    pub(super) async fn one(&self, what: &'static str, at: At, command: &Cmd) -> Result<Value, StoreError> {
        self.link()
            .query(at, command)
            .await
            .map_err(|source| StoreError::from_redis(what, source))
    }

    /// Many commands over exclusive connections, all of which must be answered.
    pub(super) async fn pipelined(
        &self,
        what: &'static str,
        commands: Vec<(At, Cmd)>,
    ) -> Result<Vec<Value>, StoreError> {
        let answers = self.link().many(Via::Exclusive, commands).await;
        answers
            .and_then(|answers| answers.into_iter().collect())
            .map_err(|source| StoreError::from_redis(what, source))
    }

    /// Many commands of which some may go unanswered while a node of a cluster is away. An error when no key could be asked for.
    pub(super) async fn answered(
        &self,
        what: &'static str,
        via: Via,
        commands: Vec<(At, Cmd)>,
    ) -> Result<Vec<Option<Value>>, StoreError> {
        let keyed: Vec<bool> = commands.iter().map(|(at, _)| *at != At::Any).collect();
        let failed = |source| StoreError::from_redis(what, source);
        let answers = self.link().many(via, commands).await.map_err(failed)?;
        let (mut some, mut found, mut first) = (Vec::with_capacity(answers.len()), false, None);
        for (answer, keyed) in answers.into_iter().zip(keyed) {
            match answer.map_err(failed) {
                Ok(value) => {
                    some.push(Some(value));
                    found |= keyed;
                }
                Err(error @ StoreError::Unavailable(_)) if self.is_clustered() => {
                    some.push(None);
                    first.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        match first {
            Some(error) if !found => Err(error),
            _ => Ok(some),
        }
    }

    /// Whether Redis is a cluster, some of whose nodes may be away while others serve.
    pub fn is_clustered(&self) -> bool {
        self.link().cluster().is_some()
    }

    /// Whether the node of a partition was away when it was last asked. What is not a cluster is never away in part.
    pub fn is_away(&self, partition: Partition) -> bool {
        let cluster = self.link().cluster();
        cluster.is_some_and(|cluster| {
            let map = cluster.map();
            map.node(At::Partition(partition)).map_or(true, |node| node.is_away())
        })
    }
}

/// Reads a field of an INFO text.
pub(super) fn info_field(info: &str, name: &str) -> Option<String> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(|v| v.trim().to_owned())
}

/// Begins a plain command.
#[expect(clippy::disallowed_methods, reason = "only the store speaks Redis")]
pub(super) fn command(verb: &str) -> Cmd {
    redis::cmd(verb)
}
