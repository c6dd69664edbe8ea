//! The cluster under fire: seats for gateways and workers, each with proxies around it, so that whoever sits there can be
//! killed, replaced, cut off and slowed down while the seat keeps its addresses.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use relevo_loadtest::chaos::history::{Breach, Promise};
use relevo_testkit::fault_proxy::{FaultProxy, Upstream};
use relevo_testkit::haproxy::Backend;
use relevo_testkit::{HaProxy, Process, Ready, Scratch, binary, poll};

use crate::agent;
use crate::nodes::Redis;

/// How long a process may take to stop.
const STOP: Duration = Duration::from_mins(1);
/// How often a process that is starting is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How soon a process that could not start is started again.
const AGAIN: Duration = Duration::from_millis(200);

/// How long half of the gateways wait for a canceled turn to stop, and the others: what a client is told then is what no writer may
/// add to.
const PATIENT: &str = "5s";
const HASTY: &str = "1ms";

/// Short leases, so that recoveries are seen; generous tries, so that no turn runs out of them by many faults.
const SETTINGS: [(&str, &str); 8] = [
    ("RELEVO_LEASE_TTL", "4s"),
    ("RELEVO_DRAIN_DELAY", "1s"),
    ("RELEVO_DRAIN_DEADLINE", "15s"),
    ("RELEVO_TURN_ATTEMPTS", "20"),
    ("RELEVO_TURN_HANDBACKS", "1000"),
    ("RELEVO_GATEWAY_LISTEN", "127.0.0.1:0"),
    ("RELEVO_ADMIN_LISTEN", "127.0.0.1:0"),
    ("RELEVO_LOG_LEVEL", "info"),
];

/// Which agent a gateway gives its messages to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// `demo`, which may run again.
    Demo,
    /// A program that is never run twice.
    Once,
}

impl Group {
    /// Gateways take turns.
    pub fn of(gateway: usize) -> Self {
        if gateway.is_multiple_of(2) {
            Self::Demo
        } else {
            Self::Once
        }
    }
}

/// One life of a process.
pub struct Life {
    pub name: String,
    pub process: Process,
    /// Whether it may have ended: it was killed, or asked to.
    over: AtomicBool,
}

/// Where a process of the cluster sits.
pub struct Seat {
    pub name: String,
    program: &'static str,
    config: PathBuf,
    /// How long a gateway waits for a turn to stop before it acknowledges a cancel.
    cancel_wait: &'static str,
    /// The node that it is told of.
    redis_url: String,
    /// The way to a Redis of one node.
    pub redis: Option<FaultProxy>,
    /// The way from clients, and from the load balancer's checks; workers have none.
    pub front: Option<FaultProxy>,
    admin: Option<FaultProxy>,
    sitting: Mutex<Option<Arc<Life>>>,
    /// One fault at a time.
    pub busy: tokio::sync::Mutex<()>,
}

pub struct Cluster {
    // ORDER: fields drop in this order; Redis goes after those who use it.
    pub balancer: Option<HaProxy>,
    pub gateways: Vec<Seat>,
    pub workers: Vec<Seat>,
    lives: Mutex<Vec<Arc<Life>>>,
    pub redis: Redis,
    pub entry_busy: tokio::sync::Mutex<()>,
    files: Scratch,
    started: AtomicU64,
    /// Starts that failed because Redis was away, and were tried again.
    pub failed_starts: AtomicU64,
    breaches: Mutex<Vec<Breach>>,
}

impl Seat {
    fn new(name: String, program: &'static str, config: PathBuf, redis: &Redis, nowhere: Option<&Path>) -> Self {
        let own = (!redis.is_cluster()).then(|| FaultProxy::start(redis.node(0).upstream()));
        let front = || nowhere.map(|path| FaultProxy::start(Upstream::Unix(path.to_owned())));
        Self {
            name,
            program,
            config,
            cancel_wait: PATIENT,
            redis_url: own.as_ref().unwrap_or_else(|| redis.way(0)).url(),
            redis: own,
            front: front(),
            admin: front(),
            sitting: Mutex::new(None),
            busy: tokio::sync::Mutex::new(()),
        }
    }

    pub fn sitting(&self) -> Option<Arc<Life>> {
        self.sitting.lock().unwrap().clone()
    }

    fn lead(&self, to: impl Fn(Option<SocketAddr>) -> Upstream, ready: Option<&Ready>) {
        for (front, addr) in [
            (&self.front, ready.and_then(|ready| ready.listen)),
            (&self.admin, ready.and_then(|ready| ready.admin)),
        ] {
            if let Some(front) = front {
                front.retarget(to(addr));
            }
        }
    }
}

impl Cluster {
    pub async fn start(gateways: usize, workers: usize, redis: Redis) -> Self {
        let files = Scratch::new("chaos");
        let starts = files.path().join("starts");
        fs::write(&starts, "").unwrap();
        let config = |name: &str, default: Group| {
            let path = files.path().join(name);
            fs::write(&path, agents(&starts, default)).unwrap();
            path
        };
        let (demo, once) = (config("demo.toml", Group::Demo), config("once.toml", Group::Once));
        let nowhere = files.path().join("nowhere");
        let gateway = |place| {
            let config = match Group::of(place) {
                Group::Demo => demo.clone(),
                Group::Once => once.clone(),
            };
            let name = format!("gateway-{place}");
            Seat {
                cancel_wait: if place / 2 % 2 == 0 { PATIENT } else { HASTY },
                ..Seat::new(name, "relevo-gateway", config, &redis, Some(&nowhere))
            }
        };
        let worker = |place| Seat::new(format!("worker-{place}"), "relevo-worker", demo.clone(), &redis, None);
        let mut cluster = Self {
            balancer: None,
            gateways: (0..gateways).map(gateway).collect(),
            workers: (0..workers).map(worker).collect(),
            lives: Mutex::default(),
            redis,
            entry_busy: tokio::sync::Mutex::new(()),
            files,
            started: AtomicU64::new(0),
            failed_starts: AtomicU64::new(0),
            breaches: Mutex::default(),
        };
        for seat in cluster.seats() {
            cluster.seat(seat).await;
        }
        // The deployed configuration knows two gateways: those of the demo agent.
        if gateways >= 4 {
            let backend = |place: usize| {
                let seat = &cluster.gateways[place];
                Backend {
                    listen: seat.front.as_ref().unwrap().addr(),
                    admin: seat.admin.as_ref().unwrap().addr(),
                }
            };
            cluster.balancer = Some(HaProxy::start([backend(0), backend(2)]));
        }
        cluster
    }

    pub fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.gateways.iter().chain(&self.workers)
    }

    /// Where clients reach each gateway, and then the load balancer if there is one.
    pub fn urls(&self) -> Vec<String> {
        let gateways = self.gateways.iter().filter_map(|seat| seat.front.as_ref());
        let mut urls: Vec<String> = gateways.map(|front| format!("http://{}", front.addr())).collect();
        urls.extend(self.balancer.as_ref().map(HaProxy::url));
        urls
    }

    /// What the agent wrote down.
    pub fn starts(&self) -> String {
        fs::read_to_string(self.files.path().join("starts")).unwrap()
    }

    /// What all command lines of agents and their keepers hold.
    pub fn mark(&self) -> String {
        self.files.path().display().to_string()
    }

    pub fn breach(&self, promise: Promise, detail: impl Into<String>) {
        self.breaches.lock().unwrap().push(Breach::new(promise, detail));
    }

    pub fn take_breaches(&self) -> Vec<Breach> {
        std::mem::take(&mut *self.breaches.lock().unwrap())
    }

    /// How many processes were started.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    /// A new life, once it serves; it is started again when it ends before, as any supervisor would.
    async fn launch(&self, seat: &Seat) -> (Arc<Life>, Ready) {
        loop {
            let number = self.started.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}.{number}", seat.name);
            let config = seat.config.display().to_string();
            let args = ["--config", config.as_str(), "--redis", &seat.redis_url];
            let mut settings = SETTINGS.to_vec();
            settings.push(("RELEVO_WORKER_ID", &name));
            settings.push(("RELEVO_CANCEL_WAIT", seat.cancel_wait));
            let life = Arc::new(Life {
                process: Process::spawn_with_ready_file(binary(seat.program), &args, &settings),
                name,
                over: AtomicBool::new(false),
            });
            self.lives.lock().unwrap().push(Arc::clone(&life));
            let file = life.process.dir().join("ready.json");
            while life.process.exit_status().is_none() {
                if file.exists() {
                    let ready = life.process.ready().await;
                    return (life, ready);
                }
                tokio::time::sleep(LOOK).await; // pace: of looking
            }
            life.over.store(true, Ordering::Relaxed);
            self.failed_starts.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(AGAIN).await; // pace: of starting again
        }
    }

    /// Starts a process and leads clients there; returns who sat there before.
    pub async fn seat(&self, seat: &Seat) -> Option<Arc<Life>> {
        let (life, ready) = self.launch(seat).await;
        seat.lead(|addr| Upstream::Tcp(addr.unwrap()), Some(&ready));
        seat.sitting.lock().unwrap().replace(life)
    }

    /// SIGKILL.
    pub fn kill(&self, seat: &Seat) {
        let Some(life) = seat.sitting.lock().unwrap().take() else {
            return;
        };
        self.expect_alive(&life);
        life.over.store(true, Ordering::Relaxed);
        life.process.kill();
        // Its port may be given to anyone now.
        seat.lead(|_| Upstream::Unix(self.files.path().join("nowhere")), None);
    }

    /// SIGTERM and the end of a life.
    pub async fn end(&self, life: &Life) {
        self.expect_alive(life);
        life.over.store(true, Ordering::Relaxed);
        life.process.sigterm();
        let what = format!("{} to end", life.name);
        let status = poll::within(STOP, &what, || async {
            life.process.exit_status().ok_or("it still runs")
        });
        match tokio::time::timeout(STOP - Duration::from_secs(1), status).await {
            Ok(status) if status.success() => {}
            Ok(status) => self.breach(Promise::Processes, format!("{} was asked to stop: {status}", life.name)),
            Err(_) => self.breach(Promise::Processes, format!("{} does not stop", life.name)),
        }
    }

    fn expect_alive(&self, life: &Life) {
        let ended: Option<ExitStatus> = life.process.exit_status();
        if let Some(status) = ended {
            self.breach(Promise::Processes, format!("{} ended by itself: {status}", life.name));
        }
    }

    /// No life, however it ended, has met a mistake of its own.
    pub fn expect_no_panics(&self) {
        for life in self.lives.lock().unwrap().iter() {
            let log = life.process.log();
            if let Some(line) = log.lines().find(|line| line.contains("panicked at")) {
                self.breach(Promise::Processes, format!("{}: {line}", life.name));
            }
        }
    }

    /// Copies the logs of every life.
    pub fn keep_logs(&self, to: &Path) {
        fs::remove_dir_all(to).ok();
        fs::create_dir_all(to).unwrap();
        for life in self.lives.lock().unwrap().iter() {
            fs::write(to.join(format!("{}.log", life.name)), life.process.log()).unwrap();
        }
        self.redis.keep_logs(to);
        if let Some(balancer) = &self.balancer {
            fs::write(to.join("haproxy.log"), balancer.log()).unwrap();
        }
        fs::write(to.join("agent-starts.log"), self.starts()).unwrap();
    }
}

/// The agents of every process; gateways differ in which of them gets the messages.
fn agents(starts: &Path, default: Group) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        "[agents.demo]\nkind = \"demo\"\ndefault = {}\n\n[agents.once]\nkind = \"process\"\ncommand = [{:?}, {:?}, {:?}]\n\
         keep = \"3s\"\nkill_grace = \"500ms\"\npolicy = \"fail\"\ndefault = {}\n",
        default == Group::Demo,
        program,
        agent::ASKED,
        starts,
        default == Group::Once,
    )
}
