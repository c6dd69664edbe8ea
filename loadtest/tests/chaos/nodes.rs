//! The Redis under fire: one server, or a cluster of several nodes with a proxy before each, and what is done to them.

use std::path::Path;
use std::sync::Arc;

use relevo_loadtest::chaos::schedule::MOVES;
use relevo_shared::ids::{Layout, Partition};
use relevo_shared::store::Keys;
use relevo_testkit::{FaultProxy, RedisCluster, RedisServer};
use tokio::sync::{Mutex, MutexGuard};

use crate::probe::{Dump, Probe};

/// What the processes of the run are configured with: the defaults.
const PREFIX: &str = "relevo";
const PARTITIONS: u16 = 64;

/// Makes all that is kept for a time due at once.
const ALL_DUE: &str = "
for _, key in ipairs(redis.call('KEYS', '*:retain')) do
  for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZADD', key, 'XX', 0, member) end
end
return 0";

pub struct Redis {
    nodes: Vec<Arc<RedisServer>>,
    cluster: Option<RedisCluster>,
    keys: Keys,
    /// One fault of a node at a time.
    busy: Vec<Mutex<()>>,
}

impl Redis {
    pub fn start(nodes: usize, fsync: &str) -> Self {
        let settings = RedisServer::builder().append_only().setting("appendfsync", fsync);
        let cluster = (nodes > 1).then(|| RedisCluster::start_behind_proxies(nodes, &settings));
        let nodes = match &cluster {
            Some(cluster) => cluster.nodes().to_vec(),
            None => vec![Arc::new(settings.start())],
        };
        Self {
            busy: nodes.iter().map(|_| Mutex::default()).collect(),
            nodes,
            cluster,
            keys: Keys::new(PREFIX, Layout::new(u32::from(PARTITIONS)).unwrap()).unwrap(),
        }
    }

    pub fn node(&self, place: usize) -> &RedisServer {
        &self.nodes[place]
    }

    pub fn is_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// The way to a node of a cluster, which all processes share.
    pub fn way(&self, place: usize) -> &FaultProxy {
        self.cluster.as_ref().unwrap().way(place)
    }

    /// Waits until a node is free of other faults.
    pub async fn alone(&self, place: usize) -> MutexGuard<'_, ()> {
        self.busy[place].lock().await
    }

    /// Waits until every node is.
    pub async fn all_alone(&self) -> Vec<MutexGuard<'_, ()>> {
        let mut all = Vec::new();
        for busy in &self.busy {
            all.push(busy.lock().await);
        }
        all
    }

    /// At a node nobody may publish or listen, or only doorbells are told. Who listens to what is forbidden now is disconnected.
    pub fn mute(&self, place: usize, cancels_only: bool) {
        let mut words = vec!["ACL", "SETUSER", "default", "resetchannels"];
        words.extend(cancels_only.then_some("&*:ch:*"));
        self.node(place).cli(&words);
    }

    /// Undoes [`Redis::mute`].
    pub fn unmute(&self, place: usize) {
        self.node(place).cli(&["ACL", "SETUSER", "default", "allchannels"]);
    }

    /// Begins to move the slots of some partitions, each to the next node, and moves about half of their keys; returns what is left.
    pub fn begin_moves(&self, first: u16) -> Vec<Move> {
        let cluster = self.cluster.as_ref().unwrap();
        // A node that was away a moment ago does not say yet what it serves.
        cluster.until_whole();
        let partitions = (0..MOVES).map(|n| Partition((first + n) % PARTITIONS));
        let begin = |partition| {
            let key = self.keys.meta(partition);
            let from = cluster.owner(&key);
            let to = (from + 1) % self.nodes.len();
            cluster.begin_move(&key, to);
            let half = cluster.count(&key, from).div_ceil(2);
            if half > 0 {
                cluster.move_some(&key, from, to, half);
            }
            Move { key, from, to }
        };
        partitions.map(begin).collect()
    }

    /// Moves the rest.
    pub fn end_moves(&self, moves: &[Move]) {
        let cluster = self.cluster.as_ref().unwrap();
        for Move { key, from, to } in moves {
            while cluster.move_some(key, *from, *to, 100) {}
            cluster.end_move(key, *from, *to);
        }
    }

    /// Everything that is kept.
    pub fn dump(&self) -> Dump {
        self.nodes.iter().flat_map(|node| Probe::new(node).dump()).collect()
    }

    /// Makes everything due that is kept for a time.
    pub fn make_all_due(&self) {
        for node in &self.nodes {
            Probe::new(node).ask(&["EVAL", ALL_DUE, "0"]);
        }
    }

    pub fn keep_logs(&self, to: &Path) {
        for (place, node) in self.nodes.iter().enumerate() {
            std::fs::write(to.join(format!("redis-{place}.log")), node.log()).unwrap();
        }
    }
}

/// A slot that is on its way.
pub struct Move {
    key: String,
    from: usize,
    to: usize,
}
