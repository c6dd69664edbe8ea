//! A cluster of workers on one Redis, and turns sent to it as a gateway would.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use a2a::{Message, Part, Role};
use relevo_shared::agents::Agents;
use relevo_shared::domain::event;
use relevo_shared::domain::fold::Entry;
use relevo_shared::domain::record::{BusyPolicy, CrashPolicy, Sender, TurnRecord, VERSION};
use relevo_shared::domain::retry::is_last;
use relevo_shared::domain::suspension::{Answer, Place};
use relevo_shared::ids::{EntryId, Nonce, TaskId, TurnId, takers};
use relevo_shared::platform::config::Loader;
use relevo_shared::platform::entropy;
use relevo_shared::platform::metrics::Registry;
use relevo_shared::platform::shutdown::Shutdown;
use relevo_shared::store::{
    Answering, ConnectOptions, HistoryLength, JournalRead, Store, StoreMetrics, StoredTask, Submit, Submitted,
};
use relevo_testkit::{RedisServer, poll};
use relevo_worker::{App, Config};
use tokio::task::JoinHandle;

/// The settings of a worker with a user that [`World::permit`] has made.
pub const AS_USER: [(&str, &str); 3] = [
    ("redis.username", "relevo"),
    ("redis.password", "secret"),
    ("lease.ttl", "60s"),
];

pub struct RunningWorker {
    pub shutdown: Shutdown,
    pub registry: Registry,
    pub ended: JoinHandle<bool>,
}

impl RunningWorker {
    pub async fn start(url: &str, settings: &[(&str, &str)]) -> Self {
        Self::start_with(url, settings, "").await
    }

    /// With the tables of `[agents]`.
    pub async fn start_with(url: &str, settings: &[(&str, &str)], agents: &str) -> Self {
        let tables: toml::Table = toml::from_str(agents).unwrap();
        let file = if tables.is_empty() {
            String::new()
        } else {
            toml::to_string(&toml::Table::from_iter([("agents".to_owned(), tables.into())])).unwrap()
        };
        Self::start_file(url, settings, &file).await
    }

    /// With a file of settings.
    pub async fn start_file(url: &str, settings: &[(&str, &str)], file: &str) -> Self {
        // What the worker logs is shown when a test fails.
        let log = relevo_shared::platform::config::LogSettings {
            level: "debug".to_owned(),
            ..Default::default()
        };
        relevo_shared::platform::logging::init(&log);
        let loader = settings
            .iter()
            .fold(Loader::new().text("file", file).set("redis.url", url), |l, (k, v)| {
                l.set(*k, *v)
            });
        let (settings, agents) = loader.load_with(Agents::read).unwrap();
        let config = Config {
            objects: None,
            settings,
            agents,
            // This process is no supervisor.
            supervisor: Some(PathBuf::from(env!("CARGO_BIN_EXE_relevo-worker"))),
        };
        let (shutdown, registry) = (Shutdown::new(), Registry::new());
        let app = App::build_without_admin(config, registry.clone(), shutdown.clone())
            .await
            .unwrap();
        #[expect(clippy::disallowed_methods, reason = "tests join it themselves")]
        let ended = tokio::spawn(async move { app.run().await.unwrap() });
        Self {
            shutdown,
            registry,
            ended,
        }
    }

    pub async fn stop(self) -> bool {
        self.shutdown.trigger();
        self.ended.await.unwrap()
    }

    pub fn metric(&self, name: &str, label: Option<&str>) -> f64 {
        let labels = label.as_slice();
        self.metrics(name, labels)
            .iter()
            .map(|m| m.get_counter().get_value())
            .fold(0.0, |sum, value| sum + value)
    }

    /// How often a histogram was told something under these labels.
    pub fn observed(&self, name: &str, labels: &[&str]) -> u64 {
        self.metrics(name, labels)
            .iter()
            .map(|m| m.get_histogram().get_sample_count())
            .sum()
    }

    /// Waits until Redis has refused this script.
    pub async fn until_refused(&self, script: &str) {
        poll::until("a script is refused", || async {
            match self.observed("relevo_store_script_seconds", &[script, "command"]) {
                0 => Err(script),
                _ => Ok(()),
            }
        })
        .await;
    }

    fn metrics(&self, name: &str, labels: &[&str]) -> Vec<prometheus::proto::Metric> {
        let families = self.registry.gather();
        let family = families.iter().find(|f| f.name() == name);
        let mut metrics = family.map(|f| f.get_metric().to_vec()).unwrap_or_default();
        metrics.retain(|m| {
            let has = |label: &&str| m.get_label().iter().any(|l| l.value() == *label);
            labels.iter().all(has)
        });
        metrics
    }
}

pub struct World {
    pub redis: RedisServer,
    pub store: Store,
}

pub async fn connect(url: &str) -> Store {
    let options = ConnectOptions {
        url: url.to_owned(),
        username: None,
        password: None,
        prefix: "relevo".to_owned(),
        partitions: 64,
        timeout: Duration::from_secs(5),
        pool_size: 4,
    };
    Store::connect(&options, StoreMetrics::register(&Registry::new()).unwrap())
        .await
        .unwrap()
}

impl World {
    pub async fn start() -> Self {
        Self::on(RedisServer::start()).await
    }

    pub async fn on(redis: RedisServer) -> Self {
        let store = connect(&redis.url()).await;
        Self { redis, store }
    }

    /// Gives a Redis user of its own to workers, or takes rights from it: `+lrange`, `-lrange`.
    pub fn permit(&self, rights: &str) {
        let user = ["ACL", "SETUSER", "relevo", "on", ">secret", "~*", "&*", "+@all", rights];
        assert!(self.redis.cli(&user).contains("OK"));
    }

    pub async fn send(&self, context_id: &str, text: &str) -> TurnRecord {
        self.send_with(context_id, text, CrashPolicy::Restart).await
    }

    pub async fn send_with(&self, context_id: &str, text: &str, policy: CrashPolicy) -> TurnRecord {
        let message = Message::new(Role::User, vec![Part::text(text)]);
        self.submit(self.record(context_id, "demo", policy, message).await)
            .await
    }

    /// A turn as a gateway would make it.
    pub async fn record(&self, context_id: &str, agent: &str, policy: CrashPolicy, message: Message) -> TurnRecord {
        let sender = Sender::default();
        let (_, partition) = self.store.place(&sender.scope(), context_id);
        let now = self.store.now().await.unwrap();
        TurnRecord {
            v: VERSION,
            turn: TurnId::new(now, partition, entropy::u64()),
            task: TaskId::new(now, partition, entropy::u64()),
            context_id: context_id.to_owned(),
            sender,
            message,
            agent: agent.into(),
            pool: "default".into(),
            policy,
            attempts: 3,
            handbacks: 20,
            submitted: now,
            deadline: None,
            queue_age: 3_600_000,
            busy: BusyPolicy::Reject,
            remember_ms: 0,
            new_task: true,
            direct: false,
            workspace: true,
            accepted_output_modes: Vec::new(),
            extensions: Vec::new(),
            traceparent: None,
            metadata: BTreeMap::new(),
            stop_after_crash: false,
            suspension: None,
        }
    }

    pub async fn submit(&self, record: TurnRecord) -> TurnRecord {
        let now = record.submitted;
        let (follows, history) = if record.new_task {
            (None, Vec::new())
        } else {
            let stored = self
                .store
                .read_task(record.task, HistoryLength::All)
                .await
                .unwrap()
                .unwrap();
            let answer = stored.folded.status.message.clone();
            (
                Some(stored.last),
                answer.into_iter().chain([record.message.clone()]).collect(),
            )
        };
        let first = event::submitted(&record, now);
        let nonce = Nonce(entropy::u64());
        let submit = Submit {
            record: &record,
            first: &first,
            nonce,
            scope_limit: None,
            follows,
            history: &history,
            interrupt: None,
        };
        let submitted = self.store.submit(&submit).await.unwrap();
        self.ring(&record, &submitted).await;
        record
    }

    /// Rings for whoever takes the turn.
    async fn ring(&self, record: &TurnRecord, submitted: &Submitted) {
        let Submitted::Accepted { storage, now, .. } = submitted else {
            panic!("{submitted:?}");
        };
        let takers = takers(&record.pool, storage.as_ref());
        self.store.ring(&takers, record.task.partition(), *now).await.unwrap();
    }

    /// Waits until the turn of a task waits for its user.
    pub async fn until_suspended(&self, task: TaskId) -> StoredTask {
        poll::until("the turn is suspended", || async {
            let stored = self.store.read_task(task, HistoryLength::All).await.unwrap().unwrap();
            if stored.suspended {
                Ok(stored)
            } else {
                Err(format!("{:?} at {}", stored.state, stored.last))
            }
        })
        .await
    }

    /// Answers the suspended turn of a task, as a gateway would.
    pub async fn answer(&self, turn: &TurnRecord, message: Message) -> TurnRecord {
        let mut stored = self.until_suspended(turn.task).await;
        let (context, partition) = self.store.place(&turn.scope(), &turn.context_id);
        let live = self
            .store
            .read_context(partition, &context)
            .await
            .unwrap()
            .live
            .unwrap();
        let nonce = Nonce(entropy::u64());
        let mut history: Vec<Message> = stored.folded.begin_turn().into_iter().collect();
        history.push(message.clone());
        let now = stored.now.max(stored.updated);
        let record = live.record.answered(Answer {
            message,
            at: now,
            from: Place {
                entry: stored.last.after(1, nonce),
                number: stored.number + 1,
            },
            accepted_output_modes: Vec::new(),
            extensions: Vec::new(),
            traceparent: None,
            metadata: BTreeMap::new(),
        });
        let answering = Answering {
            record: &record,
            id: TurnId::new(now, partition, entropy::u64()),
            first: &event::submitted(&record, now),
            nonce,
            follows: stored.last,
            history: &history,
            last_attempt: is_last(&record, live.tries),
            remember_ms: 0,
        };
        let answered = self.store.answer(&answering).await.unwrap();
        self.ring(&record, &answered).await;
        record
    }

    /// Sends a small turn in a context of its own.
    pub async fn send_text(&self, n: usize) {
        self.send(&format!("context-{n}"), "chunks=5 nonce=q").await;
    }

    pub async fn journal(&self, task: TaskId) -> Vec<Entry> {
        match self.store.read_journal(task, EntryId::START, 100_000).await.unwrap() {
            JournalRead::Entries(entries) => entries,
            JournalRead::Gap => panic!("the journal does not begin at 1"),
        }
    }

    pub async fn until_over(&self, task: TaskId) -> StoredTask {
        poll::until("the turn is over", || async {
            let stored = self.store.read_task(task, HistoryLength::All).await.unwrap().unwrap();
            if stored.live.is_none() {
                Ok(stored)
            } else {
                Err(format!("{:?} at {}", stored.state, stored.last))
            }
        })
        .await
    }

    pub async fn until_entries(&self, task: TaskId, count: usize) {
        poll::until("entries", || async {
            let n = self.journal(task).await.len();
            if n >= count { Ok(()) } else { Err(n) }
        })
        .await;
    }
}

pub fn answer(stored: &StoredTask) -> String {
    let message = stored.folded.status.message.as_ref();
    message
        .map(|m| m.parts.iter().filter_map(Part::as_text).collect())
        .unwrap_or_default()
}
