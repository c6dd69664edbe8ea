//! A Redis Cluster of several nodes: which node serves which partition, and every command to the node of its key.
//!
//! The map is read at the start and again whenever an answer says that it may be out of date: once for all who notice, and not more
//! often than four times a second. A call that met such an answer fails, and its caller repeats it; only after MOVED, which says
//! that nothing was executed, it is sent to the new node at once.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_ok};
use redis::{Cmd, ConnectionAddr, ConnectionInfo, Pipeline, RedisError, Value};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::super::StoreError;
use super::map::{Map, Slots};
use super::node::{Node, NodeOptions};
use super::slots::{Range, is_stale, moved_to, parse, unserved};
use super::{At, Via, command};

/// The map is not read more often than this.
const PACE: Duration = Duration::from_millis(250);
/// How long reading it may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// The nodes of a cluster.
pub(in super::super) struct Cluster {
    info: ConnectionInfo,
    seed: Arc<Node>,
    options: NodeOptions,
    slots: Slots,
    map: watch::Sender<Arc<Map>>,
    /// When the map was last read because it seemed to be out of date.
    asked: Mutex<Option<Instant>>,
}

impl Cluster {
    /// Reads the map of the cluster that `seed` belongs to.
    pub(super) async fn open(
        info: ConnectionInfo,
        seed: Arc<Node>,
        options: NodeOptions,
        slots: Slots,
    ) -> Result<Self, StoreError> {
        let cluster = Self {
            info,
            seed,
            options,
            slots,
            map: watch::Sender::new(Arc::new(Map::default())),
            asked: Mutex::default(),
        };
        let read = cluster
            .read(&cluster.seed)
            .await
            .and_then(|ranges| cluster.chart(&ranges));
        let map = read.map_err(|source| StoreError::from_redis("CLUSTER SLOTS", source))?;
        cluster.map.send_replace(Arc::new(map));
        Ok(cluster)
    }

    pub(in super::super) fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.borrow())
    }

    /// Hears of every new map.
    pub(in super::super) fn maps(&self) -> watch::Receiver<Arc<Map>> {
        self.map.subscribe()
    }

    /// A node by its address; the known one if there is one.
    fn node_at(&self, host: &str, port: u16) -> Result<Arc<Node>, StoreError> {
        let host = host.to_owned();
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls {
                insecure, tls_params, ..
            } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        let name = addr.to_string();
        let map = self.map();
        if let Some(known) = map.nodes().iter().chain([&self.seed]).find(|node| node.name() == name) {
            return Ok(Arc::clone(known));
        }
        Ok(Arc::new(Node::open(&self.info.clone().set_addr(addr), self.options)?))
    }

    /// Where a MOVED points to.
    pub(in super::super) fn redirected(&self, error: &RedisError, from: &Node) -> Option<Arc<Node>> {
        let (host, port) = moved_to(error)?;
        let host = if host.is_empty() {
            host_of(from)
        } else {
            host.to_owned()
        };
        self.node_at(&host, port).ok()
    }

    async fn read(&self, node: &Arc<Node>) -> Result<Vec<Range>, RedisError> {
        let mut slots = command("CLUSTER");
        slots.arg("SLOTS");
        let answer = node.if_there(node.query(0, &slots)).await?;
        let ranges = parse(&answer, &host_of(node))?;
        // A node that knows of no slots was reset, or is only joining.
        if ranges.is_empty() { Err(unserved()) } else { Ok(ranges) }
    }

    /// Makes a map of what a node said.
    fn chart(&self, ranges: &[Range]) -> Result<Map, RedisError> {
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        let mut owners = Vec::with_capacity(ranges.len());
        for range in ranges {
            let node = self.node_at(&range.host, range.port).map_err(|_wrong| unserved())?;
            let known = nodes.iter().position(|known| known.name() == node.name());
            owners.push((
                range,
                known.unwrap_or_else(|| {
                    nodes.push(node);
                    nodes.len() - 1
                }),
            ));
        }
        Ok(Map::of(nodes, &owners, &self.slots))
    }

    /// Reads the map anew because `seen` seems to be out of date, unless another caller has done so meanwhile.
    pub(in super::super) async fn learn(&self, seen: &Arc<Map>, better: Option<Arc<Node>>) {
        let mut asked = self.asked.lock().await;
        if !Arc::ptr_eq(seen, &self.map()) || asked.is_some_and(|at| at.elapsed() < PACE) {
            return;
        }
        // Boxed: rare, and large for what every call of a script would hold.
        let read = tokio::time::timeout(PATIENCE, Box::pin(self.ask_around(seen, better))).await;
        *asked = Some(Instant::now());
        let Ok(Ok(ranges)) = read else { return };
        match self.chart(&ranges) {
            Ok(map) if !map.is_like(seen) => {
                let nodes: Vec<&str> = map.nodes().iter().map(|node| node.name()).collect();
                tracing::info!(?nodes, "the slots of redis lie elsewhere than before");
                self.map.send_replace(Arc::new(map));
            }
            _ => {}
        }
    }

    /// What a MOVED names knows best; otherwise the first of all known nodes that answers.
    async fn ask_around(&self, seen: &Map, better: Option<Arc<Node>>) -> Result<Vec<Range>, RedisError> {
        if let Some(node) = better
            && let Ok(ranges) = self.read(&node).await
        {
            return Ok(ranges);
        }
        let all = seen.nodes().iter().chain([&self.seed]);
        select_ok(all.map(|node| Box::pin(self.read(node))))
            .await
            .map(|(ranges, _)| ranges)
    }

    /// Reads the map anew if an error says that it may be out of date.
    pub(in super::super) async fn doubt(&self, seen: &Arc<Map>, from: &Node, error: &RedisError) {
        if is_stale(error) {
            self.learn(seen, self.redirected(error, from)).await;
        }
    }

    pub(super) async fn query(&self, at: At, command: &Cmd) -> Result<Value, RedisError> {
        let map = self.map();
        let node = match map.node(at) {
            Ok(node) => node,
            Err(error) => {
                self.learn(&map, None).await;
                return Err(error);
            }
        };
        let answer = node.if_there(node.query(at.lane(), command)).await;
        let Err(error) = &answer else { return answer };
        self.doubt(&map, node, error).await;
        // MOVED is said before anything is executed, so this is no repetition.
        let Some(other) = self.redirected(error, node).filter(|other| self.map().has(other)) else {
            return answer;
        };
        other.if_there(other.query(at.lane(), command)).await
    }

    /// Each command to its node, all nodes at once, the answers in the order of the commands. An error in place of all is one that
    /// every node gave.
    pub(super) async fn many(
        &self,
        via: Via,
        commands: Vec<(At, Cmd)>,
    ) -> Result<Vec<Result<Value, RedisError>>, RedisError> {
        let map = self.map();
        let mut answers: Vec<Result<Value, RedisError>> = commands.iter().map(|_| Err(unserved())).collect();
        let mut parts: Vec<(Vec<usize>, Pipeline)> = map.nodes().iter().map(|_| Default::default()).collect();
        for (place, (at, command)) in commands.into_iter().enumerate() {
            if let Some((places, pipeline)) = map.index(at).and_then(|n| parts.get_mut(n)) {
                places.push(place);
                pipeline.add_command(command);
            }
        }
        let asked = map
            .nodes()
            .iter()
            .zip(&parts)
            .filter(|(_, (places, _))| !places.is_empty());
        let answered = join_all(asked.map(async |(node, (places, pipeline))| {
            let answer = node.if_there(via.send(node, pipeline, places.len())).await;
            (node, places, answer)
        }))
        .await;
        let mut failures = Vec::new();
        let nodes = answered.len();
        for (node, places, answer) in answered {
            match answer {
                Ok(values) => {
                    for (place, value) in places.iter().zip(values) {
                        if let Some(answer) = answers.get_mut(*place) {
                            *answer = value.extract_error();
                        }
                    }
                }
                Err(error) => {
                    for place in places {
                        if let Some(answer) = answers.get_mut(*place) {
                            *answer = Err(error.clone());
                        }
                    }
                    failures.push(error);
                }
            }
            let mut errors = places.iter().filter_map(|place| answers.get(*place)?.as_ref().err());
            if let Some(error) = errors.find(|error| is_stale(error)) {
                self.doubt(&map, node, error).await;
            }
        }
        match failures.pop() {
            Some(error) if failures.len() + 1 == nodes => Err(error),
            _ => Ok(answers),
        }
    }
}

fn host_of(node: &Node) -> String {
    match node.client().get_connection_info().addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => "127.0.0.1".to_owned(),
    }
}
