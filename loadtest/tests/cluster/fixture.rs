//! A cluster of real processes on a Redis of its own.
//!
//! Owns their start, finding out who runs what, and the proof at the end that nothing is left behind. It looks behind the
//! wire only for that: clients' eyes are in `wire.rs`.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use relevo_loadtest::client::Client;
use relevo_shared::ids::{ContextKey, Layout, Partition, ScopeKey, TaskId, TurnId};
use relevo_shared::store::Keys;
use relevo_testkit::{FaultProxy, Process, Ready, RedisBuilder, RedisCluster, RedisServer, Scratch, binary, poll};

use crate::resp::Resp;
use crate::wire::judge;

const PREFIX: &str = "relevo";
const PARTITIONS: u16 = 64;
/// How long a process may take to stop when nothing runs any more.
const STOP: Duration = Duration::from_secs(30);

/// Short leases, and no waiting for load balancers that are not there.
const SETTINGS: [(&str, &str); 5] = [
    ("RELEVO_LEASE_TTL", "4s"),
    ("RELEVO_DRAIN_DELAY", "0s"),
    ("RELEVO_DRAIN_DEADLINE", "30s"),
    ("RELEVO_GATEWAY_LISTEN", "127.0.0.1:0"),
    ("RELEVO_ADMIN_LISTEN", "127.0.0.1:0"),
];

/// Everything that is left in Redis of turns that are not over: of every key that could hold something, what it holds.
const LEFT: &str = "
local left = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  if kind == 'zset' and key:find(':due$') then
    left[#left + 1] = key .. ' ' .. table.concat(redis.call('ZRANGE', key, 0, -1), ' ')
  elseif kind == 'stream' and key:find('}:turns:') and not key:find(':dead$') and redis.call('XLEN', key) > 0 then
    left[#left + 1] = key .. ' holds ' .. redis.call('XLEN', key)
  elseif kind == 'stream' and key:find('}:turns:') and not key:find(':dead$') then
    local pending = redis.call('XPENDING', key, 'workers')
    if pending[1] > 0 then left[#left + 1] = key .. ' pending ' .. pending[1] end
  elseif kind == 'hash' and key:find('}:ctx:') then
    local fields = redis.call('HMGET', key, 'turn', 'tok')
    if (fields[1] or '') ~= '' or (fields[2] or '') ~= '' then
      left[#left + 1] = key .. ' turn ' .. (fields[1] or '')
    end
  end
end
return left";

/// A process of the cluster and where it listens.
pub struct Member {
    pub name: String,
    pub process: Process,
    pub ready: Ready,
}

impl Member {
    pub fn url(&self) -> String {
        format!("http://{}", self.ready.listen.unwrap())
    }

    pub fn admin(&self) -> SocketAddr {
        self.ready.admin.unwrap()
    }

    /// The sum of a metric over its labels.
    pub async fn metric(&self, name: &str) -> f64 {
        let http = reqwest::Client::builder().timeout(STOP).no_proxy().build().unwrap();
        let response = http
            .get(format!("http://{}/metrics", self.admin()))
            .send()
            .await
            .unwrap();
        let text = response.error_for_status().unwrap().text().await.unwrap();
        let values = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let ours = rest.starts_with(['{', ' ']);
            ours.then(|| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
        });
        values.sum()
    }
}

/// What a cluster is made of.
pub struct Setup {
    gateways: usize,
    workers: usize,
    redis: RedisBuilder,
    nodes: Option<usize>,
    settings: Vec<(String, String)>,
    config: String,
    prepare: Vec<Vec<String>>,
}

impl Setup {
    pub fn gateways(mut self, count: usize) -> Self {
        self.gateways = count;
        self
    }

    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count;
        self
    }

    pub fn redis(mut self, redis: RedisBuilder) -> Self {
        self.redis = redis;
        self
    }

    /// On a Redis Cluster of so many nodes.
    pub fn nodes(mut self, count: usize) -> Self {
        self.nodes = Some(count);
        self
    }

    /// A setting as an environment variable of every process.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A command for Redis before any process starts.
    pub fn prepare(mut self, command: &[&str]) -> Self {
        self.prepare
            .push(command.iter().map(|word| (*word).to_owned()).collect());
        self
    }

    /// The configuration file of every process.
    pub fn config(mut self, text: &str) -> Self {
        text.clone_into(&mut self.config);
        self
    }

    pub async fn start(self) -> Cluster {
        let (redis, nodes) = match self.nodes {
            None => (Arc::new(self.redis.start()), None),
            Some(count) => {
                let nodes = RedisCluster::start_with(count, &self.redis);
                (Arc::clone(&nodes.nodes()[0]), Some(nodes))
            }
        };
        let all = nodes.as_ref().map_or(std::slice::from_ref(&redis), RedisCluster::nodes);
        let resp = Resp::new(all.iter().map(|node| node.socket()));
        for command in &self.prepare {
            resp.ask(&command.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let files = Scratch::new("cluster");
        let config = files.path().join("relevo.toml");
        fs::write(&config, &self.config).unwrap();
        let mut cluster = Cluster {
            keys: Keys::new(PREFIX, Layout::new(u32::from(PARTITIONS)).unwrap()).unwrap(),
            gateways: Vec::new(),
            workers: Vec::new(),
            proxies: Vec::new(),
            settings: self.settings,
            config: config.display().to_string(),
            started: 0,
            resp,
            redis,
            nodes,
            _files: files,
        };
        let url = cluster.redis.url();
        let gateways: Vec<_> = (0..self.gateways).map(|_| cluster.launch("gateway", &url)).collect();
        let workers: Vec<_> = (0..self.workers).map(|_| cluster.launch("worker", &url)).collect();
        for launched in gateways {
            let member = launched.ready().await;
            cluster.gateways.push(member);
        }
        for launched in workers {
            let member = launched.ready().await;
            cluster.workers.push(member);
        }
        cluster
    }
}

/// A process on its start.
struct Launched {
    name: String,
    process: Process,
}

impl Launched {
    async fn ready(self) -> Member {
        let ready = self.process.ready().await;
        Member {
            name: self.name,
            process: self.process,
            ready,
        }
    }
}

/// A running cluster. Its drop proves that nothing of its turns is left, unless the test has failed already.
pub struct Cluster {
    keys: Keys,
    // ORDER: fields drop in this order; Redis goes after those who use it.
    pub gateways: Vec<Member>,
    pub workers: Vec<Member>,
    proxies: Vec<Arc<FaultProxy>>,
    settings: Vec<(String, String)>,
    config: String,
    started: usize,
    resp: Resp,
    /// The first, of several nodes.
    pub redis: Arc<RedisServer>,
    nodes: Option<RedisCluster>,
    _files: Scratch,
}

impl Cluster {
    /// Two gateways, three workers, a Redis with an append-only file, leases of four seconds.
    pub fn setup() -> Setup {
        Setup {
            gateways: 2,
            workers: 3,
            redis: RedisServer::builder().append_only(),
            nodes: None,
            settings: SETTINGS
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            config: String::new(),
            prepare: Vec::new(),
        }
    }

    fn launch(&mut self, kind: &str, redis: &str) -> Launched {
        self.started += 1;
        let name = format!("{kind}-{}", self.started);
        let mut settings: Vec<(&str, &str)> = self.settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        settings.push(("RELEVO_WORKER_ID", &name));
        let args = ["--config", self.config.as_str(), "--redis", redis];
        let process = Process::spawn_with_ready_file(binary(&format!("relevo-{kind}")), &args, &settings);
        Launched { name, process }
    }

    /// Starts another worker, which reaches Redis at `redis`.
    pub async fn start_worker_at(&mut self, redis: &str) -> &Member {
        let member = self.launch("worker", redis).ready().await;
        self.workers.push(member);
        self.workers.last().unwrap()
    }

    pub async fn start_worker(&mut self) -> &Member {
        let url = self.redis.url();
        self.start_worker_at(&url).await
    }

    /// Another way to Redis, for processes that are to be hurt. It lives as long as the cluster.
    pub fn proxy(&mut self) -> Arc<FaultProxy> {
        let proxy = Arc::new(FaultProxy::start(self.redis.upstream()));
        self.proxies.push(Arc::clone(&proxy));
        proxy
    }

    /// Starts another gateway, which reaches Redis at `redis`.
    pub async fn start_gateway_at(&mut self, redis: &str) -> &Member {
        let member = self.launch("gateway", redis).ready().await;
        self.gateways.push(member);
        self.gateways.last().unwrap()
    }

    pub async fn start_gateway(&mut self) -> &Member {
        let url = self.redis.url();
        self.start_gateway_at(&url).await
    }

    /// SIGKILL, and forgets it.
    pub fn kill_worker(&mut self, place: usize) {
        self.workers.remove(place).process.kill();
    }

    pub fn kill_gateway(&mut self, place: usize) {
        self.gateways.remove(place).process.kill();
    }

    pub fn urls(&self) -> Vec<String> {
        self.gateways.iter().map(Member::url).collect()
    }

    /// A client of all gateways, in their order.
    pub fn client(&self) -> Client {
        Client::new(self.urls()).unwrap().watched(judge)
    }

    /// The nodes of its Redis Cluster.
    pub fn nodes(&self) -> &RedisCluster {
        self.nodes.as_ref().unwrap()
    }

    /// The node that holds the bells.
    pub fn node_of_bells(&self) -> usize {
        self.nodes().owner(&self.keys.bell("default"))
    }

    /// A name of a context whose partition lies on a node; another for each `n`.
    pub fn context_on(&self, node: usize, n: usize) -> String {
        let names = (0..).map(|n| format!("on-{n}"));
        let mut there = names.filter(|name| {
            let (key, partition) = Self::place(name);
            let slot = self
                .resp
                .text(&["CLUSTER", "KEYSLOT", &self.keys.context(partition, &key)]);
            slot.parse::<usize>().unwrap() * self.nodes().nodes().len() / 16_384 == node
        });
        there.nth(n).unwrap()
    }

    /// The key that a partition has first, for moving its slot.
    pub fn meta(&self, partition: u16) -> String {
        self.keys.meta(Partition(partition))
    }

    fn place(context: &str) -> (ContextKey, Partition) {
        ContextKey::of(&ScopeKey::of("", ""), context, PARTITIONS)
    }

    /// A field of a context; empty when it is not set.
    pub fn context(&self, context: &str, field: &str) -> String {
        let (key, partition) = Self::place(context);
        self.resp.text(&["HGET", &self.keys.context(partition, &key), field])
    }

    /// Where the worker is that holds the lease of a context.
    pub fn holder(&self, context: &str) -> Option<usize> {
        if self.context(context, "tok").is_empty() {
            return None;
        }
        let name = self.context(context, "wk");
        self.workers.iter().position(|worker| worker.name == name)
    }

    /// Waits until a worker holds the lease of a context.
    pub async fn until_held(&self, context: &str) -> usize {
        poll::until("a worker to hold the lease", || async {
            self.holder(context).ok_or("nobody does")
        })
        .await
    }

    /// A field of the live turn of a context; empty when it is not set or no turn lives.
    pub fn turn(&self, context: &str, field: &str) -> String {
        let turn = TurnId::parse(&self.context(context, "turn"));
        turn.map_or_else(String::new, |turn| {
            self.resp.text(&["HGET", &self.keys.turn(turn), field])
        })
    }

    /// The journal of a task as it is stored.
    pub fn journal(&self, task: &str) -> Vec<Entry> {
        let texts = self.resp.ask(&["XRANGE", &self.keys.journal(task_id(task)), "-", "+"]);
        texts
            .chunks_exact(5)
            .map(|texts| {
                let [id, e, event, k, kind] = texts else { unreachable!() };
                assert_eq!((e.as_str(), k.as_str()), ("e", "k"), "{texts:?}");
                Entry {
                    id: id.clone(),
                    kind: kind.clone(),
                    event: serde_json::from_str(event).unwrap(),
                }
            })
            .collect()
    }

    /// Waits until a journal satisfies `enough`.
    pub async fn until_journal(&self, task: &str, enough: impl Fn(&[Entry]) -> bool) -> Vec<Entry> {
        poll::until("the journal", || async {
            let journal = self.journal(task);
            if enough(&journal) {
                Ok(journal)
            } else {
                Err(format!("{} entries", journal.len()))
            }
        })
        .await
    }

    /// Waits until the live turn of a context has begun.
    pub async fn until_begun(&self, context: &str) {
        poll::until("the turn to begin", || async {
            if self.turn(context, "begun") == "1" {
                Ok(())
            } else {
                Err("not begun")
            }
        })
        .await;
    }

    /// Waits until the live turn of a context has said something `events` times; returns its task.
    pub async fn until_said(&self, context: &str, events: usize) -> String {
        self.until_begun(context).await;
        let task = self.turn(context, "k");
        // Beside what it says: its beginning, and that it is at work.
        self.until_journal(&task, |journal| journal.len() >= events + 2).await;
        task
    }

    /// Waits until no turn of a context lives.
    pub async fn until_over(&self, context: &str) {
        poll::until("the turn to end", || async {
            let turn = self.context(context, "turn");
            if turn.is_empty() { Ok(()) } else { Err(turn) }
        })
        .await;
    }

    /// The sum of a metric over every process.
    pub async fn metric(&self, name: &str) -> f64 {
        let mut sum = 0.0;
        for member in self.gateways.iter().chain(&self.workers) {
            sum += member.metric(name).await;
        }
        sum
    }

    /// How many dead letters there are.
    pub fn dead_letters(&self) -> usize {
        let layout = Layout::new(u32::from(PARTITIONS)).unwrap();
        let count = |partition| {
            self.resp
                .text(&["XLEN", &self.keys.dead(partition)])
                .parse::<usize>()
                .unwrap()
        };
        layout.all().map(count).sum()
    }

    /// What turns have left in Redis.
    pub fn left(&self) -> String {
        self.resp.ask_all(&["EVAL", LEFT, "0"]).join("\n")
    }

    fn logs(&self) -> String {
        let mut text = String::new();
        for member in self.gateways.iter().chain(&self.workers) {
            writeln!(text, "--- {}\n{}", member.name, member.process.log()).unwrap();
        }
        text
    }
}

/// An entry of a journal.
pub struct Entry {
    pub id: String,
    pub kind: String,
    pub event: a2a::StreamResponse,
}

pub fn task_id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        poll::until_sync("turns to leave nothing behind", || {
            let left = self.left();
            if left.is_empty() { Ok(()) } else { Err(left) }
        });
        for member in self.gateways.iter().chain(&self.workers) {
            assert!(
                member.process.sigterm(),
                "{} has ended by itself:\n{}",
                member.name,
                member.process.log()
            );
        }
        for member in self.gateways.iter().chain(&self.workers) {
            let status = member.process.wait_exit(STOP);
            assert!(status.success(), "{}: {status}\n{}", member.name, self.logs());
        }
        assert_eq!(self.left(), "", "after the end of every process");
    }
}
