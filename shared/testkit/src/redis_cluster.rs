//! A private Redis Cluster: primaries without replicas on free loopback ports, the slots spread evenly over them, with or without
//! a proxy before each.
//!
//! A node that is killed takes its slots with it until it is started again; the others go on (`cluster-require-full-coverage no`).
//! Slots move between nodes as `redis-cli --cluster reshard` moves them, one step at a time. Called by tests that need several
//! nodes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::fault_proxy::{FaultProxy, Upstream};
use crate::poll;
use crate::redis_server::{MEMBERS, RedisBuilder, RedisServer};

const SLOTS: usize = 16_384;

/// Keys that one MIGRATE takes when a slot moves as a whole.
const KEYS: usize = 100;

/// A running cluster.
#[derive(Debug, Clone)]
pub struct RedisCluster {
    nodes: Vec<Arc<RedisServer>>,
    /// Where clients reach them, if not directly.
    ways: Vec<Arc<FaultProxy>>,
}

impl RedisCluster {
    /// A cluster of so many nodes that keep an append-only file.
    #[track_caller]
    pub fn start(nodes: usize) -> Self {
        Self::start_with(nodes, &RedisServer::builder().append_only())
    }

    /// The same with other settings.
    #[track_caller]
    pub fn start_with(nodes: usize, settings: &RedisBuilder) -> Self {
        let cluster = Self {
            nodes: (0..nodes).map(|_| member(settings)).collect(),
            ways: Vec::new(),
        };
        cluster.form();
        cluster
    }

    /// The same, but each node announces the address of a proxy before it; the nodes themselves meet without.
    #[track_caller]
    pub fn start_behind_proxies(nodes: usize, settings: &RedisBuilder) -> Self {
        let nodes = (0..nodes).map(|_| {
            let way = FaultProxy::start_on(MEMBERS, Upstream::Unix(PathBuf::new()));
            let port = way.addr().port().to_string();
            let node = member(&settings.clone().setting("cluster-announce-port", &port));
            way.retarget(node.upstream());
            (node, Arc::new(way))
        });
        let (nodes, ways) = nodes.unzip();
        let cluster = Self { nodes, ways };
        cluster.form();
        cluster
    }

    /// The proxy before a node.
    ///
    /// # Panics
    /// When there is none.
    pub fn way(&self, place: usize) -> &FaultProxy {
        self.ways.get(place).expect("there is a proxy before the node")
    }

    /// Its nodes; the first is the one that [`RedisCluster::url`] names.
    pub fn nodes(&self) -> &[Arc<RedisServer>] {
        &self.nodes
    }

    /// What to give to `--redis`.
    pub fn url(&self) -> String {
        self.ways.first().map_or_else(|| self.node(0).url(), |way| way.url())
    }

    /// Starts a replica of a node, which takes over when that dies. Returns when it has everything.
    pub fn replica_of(&self, place: usize) -> Arc<RedisServer> {
        let replica = member(&RedisServer::builder().append_only());
        let primary = self.node(place);
        self.meet(&replica, replica.addr().expect("it listens"));
        let id = primary.cli(&["CLUSTER", "MYID"]);
        poll::until_sync("the replica to know its primary", || {
            replica.try_cli(&["CLUSTER", "REPLICATE", &id]).map(drop)
        });
        poll::until_sync("the replica to have everything", || {
            let info = replica.info("replication");
            let is = |name, value| info.get(name).is_some_and(|found| found == value);
            if is("master_link_status", "up") && is("master_sync_in_progress", "0") {
                Ok(())
            } else {
                Err(format!("{info:?}"))
            }
        });
        replica
    }

    /// Makes a node known, under the address that clients shall hear of.
    fn meet(&self, node: &RedisServer, addr: SocketAddr) {
        let bus = node.bus().expect("it has a bus");
        let (ip, port) = (addr.ip().to_string(), addr.port().to_string());
        self.node(0).cli(&["CLUSTER", "MEET", &ip, &port, &bus.to_string()]);
    }

    fn form(&self) {
        let count = self.nodes.len();
        for (place, node) in self.nodes.iter().enumerate() {
            let (from, to) = (SLOTS * place / count, SLOTS * (place + 1) / count - 1);
            node.cli(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]);
            // Nodes that begin with the same epoch settle that among themselves, which takes its time.
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]);
        }
        for (place, node) in self.nodes.iter().enumerate().skip(1) {
            let way = self.ways.get(place).map(|way| way.addr());
            self.meet(node, way.or(node.addr()).expect("it listens"));
        }
        self.until_whole();
    }

    /// Waits until every node finds every other and all slots served.
    pub fn until_whole(&self) {
        let wanted = [
            "cluster_state:ok".to_owned(),
            format!("cluster_slots_ok:{SLOTS}"),
            format!("cluster_known_nodes:{}", self.nodes.len()),
        ];
        for node in &self.nodes {
            poll::until_sync("the cluster to be whole", || {
                let info = node.cli(&["CLUSTER", "INFO"]);
                let has = |wanted: &String| info.lines().any(|line| line.trim_end() == wanted);
                // What it does not know yet of another node that announces a name.
                let slots = node.cli(&["CLUSTER", "SLOTS"]);
                let named = slots.lines().all(|line| line != "?");
                if wanted.iter().all(has) && named {
                    Ok(())
                } else {
                    Err(info + &slots)
                }
            });
        }
    }

    /// Which node serves the slot of a key, as the nodes see it.
    ///
    /// # Panics
    /// When none does.
    pub fn owner(&self, key: &str) -> usize {
        let serves = |node: &Arc<RedisServer>| {
            !node
                .try_cli(&["EXISTS", key])
                .is_err_and(|error| error.contains("MOVED"))
        };
        self.nodes.iter().position(serves).expect("a node serves it")
    }

    /// Begins to move the slot of a key to another node: from now on the old one serves only what it still holds.
    pub fn begin_move(&self, key: &str, to: usize) {
        let (from, slot) = (self.owner(key), self.slot(key));
        let (from, to) = (self.node(from), self.node(to));
        to.cli(&[
            "CLUSTER",
            "SETSLOT",
            &slot,
            "IMPORTING",
            &from.cli(&["CLUSTER", "MYID"]),
        ]);
        from.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to.cli(&["CLUSTER", "MYID"])]);
    }

    /// How many keys of the slot a node holds.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    pub fn count(&self, key: &str, at: usize) -> usize {
        let count = self.node(at).cli(&["CLUSTER", "COUNTKEYSINSLOT", &self.slot(key)]);
        count.parse().expect("a number")
    }

    /// Moves up to `most` keys of the slot; `false` when none was left.
    pub fn move_some(&self, key: &str, from: usize, to: usize, most: usize) -> bool {
        let (slot, addr) = (self.slot(key), self.node(to).addr().expect("it listens"));
        let keys = self
            .node(from)
            .cli(&["CLUSTER", "GETKEYSINSLOT", &slot, &most.to_string()]);
        let keys: Vec<&str> = keys.lines().filter(|key| !key.is_empty()).collect();
        if keys.is_empty() {
            return false;
        }
        let (ip, port) = (addr.ip().to_string(), addr.port().to_string());
        let mut migrate = vec!["MIGRATE", &ip, &port, "", "0", "60000", "KEYS"];
        migrate.extend(keys);
        self.node(from).cli(&migrate);
        true
    }

    /// Ends the move: the new node serves the slot.
    pub fn end_move(&self, key: &str, from: usize, to: usize) {
        let (slot, id) = (self.slot(key), self.node(to).cli(&["CLUSTER", "MYID"]));
        // The new owner first: until it knows, the old one would send clients there in vain.
        for place in [to, from] {
            self.node(place).cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
    }

    /// The whole move.
    pub fn move_slot(&self, key: &str, to: usize) {
        let from = self.owner(key);
        self.begin_move(key, to);
        while self.move_some(key, from, to, KEYS) {}
        self.end_move(key, from, to);
    }

    fn slot(&self, key: &str) -> String {
        self.node(0).cli(&["CLUSTER", "KEYSLOT", key])
    }

    fn node(&self, place: usize) -> &RedisServer {
        self.nodes.get(place).expect("the cluster has so many nodes")
    }
}

fn member(settings: &RedisBuilder) -> Arc<RedisServer> {
    let node = settings.clone().cluster_member();
    let node = node
        .setting("cluster-require-full-coverage", "no")
        .setting("cluster-node-timeout", "2000");
    Arc::new(node.start())
}
