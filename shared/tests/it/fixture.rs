//! A private Redis, a store on it, and turns to play with.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use a2a::{Message, Part, Role, StreamResponse, TaskState};
use prometheus::Registry;
use relevo_shared::domain::class::Class;
use relevo_shared::domain::event::{self, Event};
use relevo_shared::domain::fold::{Entry, Fold, Folded};
use relevo_shared::domain::record::{BusyPolicy, CrashPolicy, Sender, TurnRecord, VERSION};
use relevo_shared::domain::retry::is_last;
use relevo_shared::domain::state::End;
use relevo_shared::domain::suspension::{Answer, Place};
use relevo_shared::ids::{
    ContextKey, EntryId, LeaseToken, Nonce, Partition, StorageId, TaskId, TurnId, WorkerId, takers,
};
use relevo_shared::janitor::{Conclusion, Janitor, JanitorMetrics, JanitorSettings, conclude, interrupt};
use relevo_shared::platform::entropy;
use relevo_shared::store::{
    Answering, Batch, Bound, ConnectOptions, ContextView, EmitReply, Finish, HistoryLength, Interrupt, JournalRead,
    Keep, LiveTurn, NewEvent, Open, Serves, Settled, Store, StoreError, StoreMetrics, StoredTask, Submit, Submitted,
    Subscriber, SubscriberHandle, Suspend, Swept, Take, Taken, Took,
};
use relevo_testkit::{RedisCluster, RedisServer};

use crate::probe::Probe;

pub const TTL: u64 = 60_000;
/// How long a turn waits for a worker of its storage.
pub const STORAGE_WAIT: u64 = 60_000;
/// How long a turn may be suspended.
pub const LONGEST: u64 = 600_000;

pub struct World {
    // ORDER: connections are closed before the server is killed.
    pub store: Store,
    pub probe: Probe,
    pub worker: WorkerId,
    /// The first, of several nodes.
    pub redis: Arc<RedisServer>,
    registry: Registry,
    /// What hears of tasks, as long as the world is there.
    ears: Mutex<Vec<(Subscriber, SubscriberHandle)>>,
}

pub fn options(url: &str) -> ConnectOptions {
    ConnectOptions {
        url: url.to_owned(),
        username: None,
        password: None,
        prefix: "relevo".to_owned(),
        partitions: 64,
        timeout: Duration::from_secs(5),
        pool_size: 4,
    }
}

/// Agrees on the layout of this world once more.
pub async fn layout(world: &World) {
    let options = ConnectOptions {
        partitions: u32::from(world.store.partitions()),
        ..options(&world.redis.url())
    };
    let metrics = StoreMetrics::register(&Registry::new()).unwrap();
    Store::connect(&options, metrics).await.unwrap();
}

pub async fn connect(url: &str) -> Store {
    Store::connect(&options(url), StoreMetrics::register(&Registry::new()).unwrap())
        .await
        .unwrap()
}

impl World {
    pub async fn start() -> Self {
        Self::on(RedisServer::start()).await
    }

    pub async fn on(redis: RedisServer) -> Self {
        let options = options(&redis.url());
        Self::with(redis, &options).await
    }

    /// A Redis that finds everything again after it was killed. Not `everysec`: with a slow disk Redis puts even the write
    /// off while it flushes.
    pub async fn lasting() -> Self {
        Self::on(
            RedisServer::builder()
                .append_only()
                .setting("appendfsync", "always")
                .start(),
        )
        .await
    }

    /// One partition, so that contexts share queues and indexes.
    pub async fn small() -> Self {
        let redis = RedisServer::start();
        let options = ConnectOptions {
            partitions: 1,
            ..options(&redis.url())
        };
        Self::with(redis, &options).await
    }

    pub async fn with(redis: RedisServer, options: &ConnectOptions) -> Self {
        let registry = Registry::new();
        let metrics = StoreMetrics::register(&registry).unwrap();
        Self {
            store: Store::connect(options, metrics).await.unwrap(),
            probe: Probe::new(&redis),
            worker: worker("w-1"),
            redis: Arc::new(redis),
            registry,
            ears: Mutex::default(),
        }
    }

    /// On several nodes.
    pub async fn spread(cluster: &RedisCluster) -> Self {
        let registry = Registry::new();
        let metrics = StoreMetrics::register(&registry).unwrap();
        Self {
            store: Store::connect(&options(&cluster.url()), metrics).await.unwrap(),
            probe: Probe::of_cluster(cluster),
            worker: worker("w-1"),
            redis: Arc::clone(&cluster.nodes()[0]),
            registry,
            ears: Mutex::default(),
        }
    }

    /// Asserts that this test got this reply of this script. `replies.rs` collects the calls of this function from the
    /// sources and compares them with the headers of the scripts.
    #[track_caller]
    pub fn reached(&self, script: &str, tag: &str) {
        let outcome = tag.to_ascii_lowercase();
        let families = self.registry.gather();
        let samples = families.iter().flat_map(prometheus::proto::MetricFamily::get_metric);
        let count: u64 = samples
            .filter(|sample| {
                let has = |name: &str, value: &str| {
                    let mut labels = sample.get_label().iter();
                    labels.any(|label| label.name() == name && label.value() == value)
                };
                has("script", script) && has("outcome", &outcome)
            })
            .map(|sample| sample.get_histogram().get_sample_count())
            .sum();
        assert!(count > 0, "{script} never answered {tag}");
    }

    /// A counter of the store.
    pub fn counter(&self, name: &str) -> u64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let value = family.get_metric()[0].get_counter().get_value();
        format!("{value:.0}").parse().unwrap()
    }

    /// A turn that creates its task in a context of its own.
    pub async fn record(&self, context_id: &str) -> TurnRecord {
        let sender = Sender::default();
        let (_, partition) = self.store.place(&sender.scope(), context_id);
        let now = self.store.now().await.unwrap();
        let task = TaskId::new(now, partition, entropy::u64());
        let mut message = Message::new(Role::User, vec![Part::text("hello")]);
        message.context_id = Some(context_id.to_owned());
        message.task_id = Some(task.to_string());
        TurnRecord {
            v: VERSION,
            turn: TurnId::new(now, partition, entropy::u64()),
            task,
            context_id: context_id.to_owned(),
            sender,
            message,
            agent: "demo".into(),
            pool: "default".into(),
            policy: CrashPolicy::Restart,
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

    pub async fn submit(&self, record: &TurnRecord) -> Submitted {
        self.submit_with(record, Nonce(entropy::u64()), None, &[]).await
    }

    pub async fn submit_with(
        &self,
        record: &TurnRecord,
        nonce: Nonce,
        follows: Option<EntryId>,
        history: &[Message],
    ) -> Submitted {
        self.submit_limited(record, nonce, follows, history, None).await
    }

    pub async fn submit_limited(
        &self,
        record: &TurnRecord,
        nonce: Nonce,
        follows: Option<EntryId>,
        history: &[Message],
        scope_limit: Option<u64>,
    ) -> Submitted {
        let first = event::submitted(record, record.submitted);
        self.store
            .submit(&Submit {
                record,
                first: &first,
                nonce,
                scope_limit,
                follows,
                history,
                interrupt: None,
            })
            .await
            .unwrap()
    }

    /// A turn for a task that exists, as a gateway makes it.
    pub async fn next_record(&self, task: TaskId, context_id: &str) -> TurnRecord {
        let mut record = self.record(context_id).await;
        record.task = task;
        record.message.task_id = Some(task.to_string());
        record.new_task = false;
        record
    }

    /// Sends a message to a task that exists.
    pub async fn follow_up(&self, task: TaskId, context_id: &str) -> (TurnRecord, Submitted) {
        let before = self.stored(task).await;
        let record = self.next_record(task, context_id).await;
        let history: Vec<Message> = before
            .folded
            .status
            .message
            .into_iter()
            .chain([record.message.clone()])
            .collect();
        let nonce = Nonce(entropy::u64());
        let submitted = self.submit_with(&record, nonce, Some(before.last), &history).await;
        (record, submitted)
    }

    pub async fn stored(&self, task: TaskId) -> StoredTask {
        self.store.read_task(task, HistoryLength::All).await.unwrap().unwrap()
    }

    /// The whole journal.
    pub async fn journal(&self, task: TaskId) -> Vec<Entry> {
        match self.store.read_journal(task, EntryId::START, 1_000).await.unwrap() {
            JournalRead::Entries(entries) => entries,
            JournalRead::Gap => panic!("the journal does not begin with its first entry"),
        }
    }

    pub async fn kinds(&self, task: TaskId) -> Vec<String> {
        self.journal(task).await.iter().map(|e| e.kind.to_string()).collect()
    }

    pub fn partition(&self, record: &TurnRecord) -> Partition {
        assert!(self.store.may_hold(record.task));
        record.task.partition()
    }

    pub fn context(&self, record: &TurnRecord) -> ContextKey {
        record.context_key(self.store.partitions())
    }

    pub async fn view(&self, record: &TurnRecord) -> ContextView {
        let context = self.context(record);
        self.store.read_context(self.partition(record), &context).await.unwrap()
    }

    /// Cancels a turn that no worker holds.
    pub async fn cancel_unheld(&self, record: &TurnRecord) -> Settled {
        let end = Conclusion {
            end: End::Canceled,
            reason: None,
            dead: false,
            only_expired: false,
        };
        let view = self.view(record).await;
        conclude(&self.store, &view, end, &Keep::default()).await.unwrap()
    }

    pub async fn live(&self, record: &TurnRecord) -> LiveTurn {
        self.view(record).await.live.unwrap()
    }

    /// The key of a turn's context.
    pub fn context_key(&self, record: &TurnRecord) -> String {
        self.store.keys().context(self.partition(record), &self.context(record))
    }

    /// When the context is looked at.
    pub fn due(&self, record: &TurnRecord) -> Option<u64> {
        let due = self.store.keys().due(self.partition(record));
        self.probe.score(&due, self.context(record).as_str())
    }

    fn make_due(&self, record: &TurnRecord, field: &str) {
        self.probe.set(&self.context_key(record), field, 1);
        let due = self.store.keys().due(self.partition(record));
        self.probe.set_score(&due, self.context(record).as_str(), 1);
    }

    /// Lets a lease run out.
    pub fn expire(&self, record: &TurnRecord) {
        self.make_due(record, "until");
    }

    /// Lets the wait of a delayed turn be over.
    pub fn wake(&self, record: &TurnRecord) {
        self.make_due(record, "at");
    }

    /// Lets a suspended turn's user take too long.
    pub fn outwait(&self, record: &TurnRecord) {
        self.make_due(record, "at");
        self.probe.set(&self.context_key(record), "at", "s1");
    }

    pub fn janitor(&self) -> Janitor {
        self.janitor_with(Keep::default())
    }

    pub fn janitor_with(&self, keep: Keep) -> Janitor {
        Self::janitor_of(self.store.clone(), keep)
    }

    /// A janitor on another connection than the world's own.
    pub fn janitor_of(store: Store, keep: Keep) -> Janitor {
        let settings = JanitorSettings {
            lease_ttl_ms: TTL,
            keep,
            pools: vec!["default".to_owned()],
            storage_wait_ms: STORAGE_WAIT,
        };
        let metrics = JanitorMetrics::register(&Registry::new()).unwrap();
        Janitor::new(store, settings, metrics)
    }

    /// A janitor's look at a partition, however recent the last one was.
    pub async fn sweep(&self, partition: Partition) -> Swept {
        self.probe.ask(&["HDEL", &self.store.keys().meta(partition), "swept"]);
        let pools = ["default".to_owned()];
        self.store
            .sweep(partition, TTL, 100, false, &pools)
            .await
            .unwrap()
            .unwrap()
    }

    /// A pass over all partitions, however recent the last one was.
    pub async fn pass(&self, janitor: &Janitor) {
        for partition in self.store.keys().layout().all() {
            self.probe.ask(&["HDEL", &self.store.keys().meta(partition), "swept"]);
        }
        janitor.pass().await.unwrap();
    }

    pub async fn take(&self, partition: Partition) -> Vec<Taken> {
        self.take_as(&self.worker, partition, TTL, 1).await
    }

    pub async fn take_as(&self, worker: &WorkerId, partition: Partition, ttl_ms: u64, n: usize) -> Vec<Taken> {
        let tokens: Vec<LeaseToken> = (0..n).map(|_| LeaseToken::new(entropy::u128())).collect();
        self.take_with(worker, partition, ttl_ms, &tokens, false).await
    }

    pub async fn take_with(
        &self,
        worker: &WorkerId,
        partition: Partition,
        ttl_ms: u64,
        tokens: &[LeaseToken],
        repeat: bool,
    ) -> Vec<Taken> {
        let take = Take {
            ttl_ms,
            repeat,
            ..take(partition, worker, tokens)
        };
        self.store.take(&take).await.unwrap().turns
    }

    pub async fn try_take(&self, partition: Partition) -> Result<Took, StoreError> {
        let tokens = [LeaseToken::new(entropy::u128())];
        self.store.take(&take(partition, &self.worker, &tokens)).await
    }

    /// Submits a turn and leaves it in its queue.
    pub async fn queued(&self, context_id: &str) -> TurnRecord {
        let record = self.record(context_id).await;
        self.queue(&record).await;
        record
    }

    pub async fn queue(&self, record: &TurnRecord) {
        let submitted = self.submit(record).await;
        assert!(matches!(submitted, Submitted::Accepted { .. }), "{submitted:?}");
    }

    /// A turn whose agent may answer without a task.
    pub async fn unseen(&self, context_id: &str) -> TurnRecord {
        TurnRecord {
            direct: true,
            ..self.record(context_id).await
        }
    }

    /// Hears of a task from now on, as a gateway does that waits for its answer.
    pub async fn hear(&self, task: TaskId) {
        let (ear, handle) = self.store.subscriber().await.unwrap();
        handle.follow(task).await.unwrap();
        self.ears.lock().unwrap().push((ear, handle));
    }

    /// A turn that waits when its context is busy.
    pub async fn patient(&self, context_id: &str) -> TurnRecord {
        TurnRecord {
            busy: BusyPolicy::Queue,
            ..self.record(context_id).await
        }
    }

    /// Submits a turn behind the live one of its context.
    pub async fn waiting(&self, context_id: &str) -> TurnRecord {
        self.waiting_limited(context_id, None).await
    }

    pub async fn waiting_limited(&self, context_id: &str, scope_limit: Option<u64>) -> TurnRecord {
        let record = self.patient(context_id).await;
        let nonce = Nonce(entropy::u64());
        let submitted = self.submit_limited(&record, nonce, None, &[], scope_limit).await;
        assert!(
            matches!(
                submitted,
                Submitted::Accepted {
                    repeat: false,
                    place: 1..,
                    ..
                }
            ),
            "{submitted:?}"
        );
        record
    }

    /// What a turn that interrupts the context of this one would end, as it is now.
    pub async fn found(&self, record: &TurnRecord) -> Interrupt {
        let context = self.context(record);
        let found = interrupt(&self.store, self.partition(record), &context, &Keep::default()).await;
        found.unwrap().unwrap()
    }

    /// Submits a turn that interrupts its context as it was found.
    pub async fn submit_instead(&self, record: &TurnRecord, nonce: Nonce, found: &Interrupt) -> Submitted {
        self.submit_instead_limited(record, nonce, found, None).await
    }

    pub async fn submit_instead_limited(
        &self,
        record: &TurnRecord,
        nonce: Nonce,
        found: &Interrupt,
        scope_limit: Option<u64>,
    ) -> Submitted {
        let first = event::submitted(record, record.submitted);
        let submit = Submit {
            record,
            first: &first,
            nonce,
            scope_limit,
            follows: None,
            history: &[],
            interrupt: Some(found),
        };
        self.store.submit(&submit).await.unwrap()
    }

    /// The turns that wait in the context of this one.
    pub async fn line(&self, record: &TurnRecord) -> Vec<TurnId> {
        let context = self.context(record);
        let waiting = self
            .store
            .waiting_turns(self.partition(record), &context)
            .await
            .unwrap();
        waiting.into_iter().map(|record| record.turn).collect()
    }

    /// A turn that waits for its user, after it has said something.
    pub async fn suspended(&self, context_id: &str) -> TurnRecord {
        let mut turn = self.running(context_id).await;
        turn.emit(&self.store, &["asked "]).await;
        assert!(is_done(&turn.suspend(&self.store).await));
        turn.taken.record
    }

    /// An answer to a suspended turn, made as a gateway does that has read it.
    pub async fn answer_to(&self, turn: &TurnRecord) -> Answered {
        let stored = self.stored(turn.task).await;
        let live = self.live(turn).await;
        Answered::new(stored, &live, self.store.now().await.unwrap(), Nonce(entropy::u64()))
    }

    /// Answers a suspended turn.
    pub async fn answer(&self, turn: &TurnRecord) -> Submitted {
        let answer = self.answer_to(turn).await;
        self.store.answer(&answer.answering()).await.unwrap()
    }

    /// Submits and takes a turn of its own.
    pub async fn running(&self, context_id: &str) -> Running {
        let record = self.record(context_id).await;
        self.run(&record).await
    }

    /// Submits and takes this turn.
    pub async fn run(&self, record: &TurnRecord) -> Running {
        self.queue(record).await;
        self.again(record).await
    }

    /// Takes turns as these takers.
    pub async fn take_for(&self, takers: &str, partition: Partition, n: usize) -> Vec<Taken> {
        let tokens: Vec<LeaseToken> = (0..n).map(|_| token()).collect();
        let take = Take {
            takers,
            ..take(partition, &self.worker, &tokens)
        };
        self.store.take(&take).await.unwrap().turns
    }

    /// Ties the context of a running turn to a workspace on this storage.
    pub async fn bind(&self, turn: &Running, storage: &str) {
        let storage = disk(storage);
        let bound = self.store.bind_workspace(&turn.taken, b"/a", Some(&storage)).await;
        assert_eq!(bound.unwrap(), Bound::Here);
    }

    /// A task whose first turn worked on this storage.
    pub async fn bound(&self, context_id: &str, storage: &str) -> TurnRecord {
        let mut turn = self.running(context_id).await;
        self.bind(&turn, storage).await;
        turn.emit(&self.store, &["answer"]).await;
        assert!(is_done(&turn.finish(&self.store, End::InputRequired).await));
        turn.taken.record
    }

    /// Takes a turn that waits for a worker with a storage.
    pub async fn again_on(&self, record: &TurnRecord, storage: &str) -> Running {
        let takers = takers("default", Some(&disk(storage)));
        let taken = self.take_for(&takers, self.partition(record), 1).await.pop().unwrap();
        assert_eq!(taken.record.turn, record.turn);
        Running::new(taken)
    }

    /// Takes a turn that waits.
    pub async fn again(&self, record: &TurnRecord) -> Running {
        let taken = self.take(self.partition(record)).await.pop().unwrap();
        assert_eq!(taken.record.turn, record.turn);
        Running::new(taken)
    }

    /// A task whose first turn is over.
    pub async fn ended(&self, context_id: &str, end: End) -> Running {
        let mut turn = self.running(context_id).await;
        turn.emit(&self.store, &["answer"]).await;
        assert!(is_done(&turn.finish(&self.store, end).await));
        turn
    }
}

pub fn disk(name: &str) -> StorageId {
    StorageId::parse(name).unwrap()
}

pub fn serves(pools: &[&str], storage: Option<&str>) -> Serves {
    Serves {
        pools: pools.iter().map(|pool| (*pool).to_owned()).collect(),
        storage: storage.map(disk),
    }
}

pub fn worker(name: &str) -> WorkerId {
    WorkerId::parse(name).unwrap()
}

pub fn token() -> LeaseToken {
    LeaseToken::new(entropy::u128())
}

/// A take of everything that these tokens allow.
pub fn take<'a>(partition: Partition, worker: &'a WorkerId, tokens: &'a [LeaseToken]) -> Take<'a> {
    Take {
        partition,
        takers: "default",
        worker,
        tokens,
        ttl_ms: TTL,
        repeat: false,
        last: true,
        slots: 64,
    }
}

/// Written now.
pub fn is_done(reply: &EmitReply) -> bool {
    matches!(reply, EmitReply::Done { repeat: false, .. })
}

/// Written before.
pub fn is_repeat(reply: &EmitReply) -> bool {
    matches!(reply, EmitReply::Done { repeat: true, .. })
}

/// An answer that is ready to be sent.
#[derive(Clone)]
pub struct Answered {
    pub record: TurnRecord,
    pub id: TurnId,
    nonce: Nonce,
    follows: EntryId,
    first: Event,
    history: Vec<Message>,
    last_attempt: bool,
}

impl Answered {
    pub fn new(mut stored: StoredTask, live: &LiveTurn, now: u64, nonce: Nonce) -> Self {
        let mut message = Message::new(Role::User, vec![Part::text("yes")]);
        message.context_id = Some(live.record.context_id.clone());
        message.task_id = Some(live.record.task.to_string());
        let mut history: Vec<Message> = stored.folded.begin_turn().into_iter().collect();
        history.push(message.clone());
        let record = live.record.answered(Answer {
            message,
            at: now.max(stored.updated),
            from: Place {
                entry: stored.last.after(1, nonce),
                number: stored.number + 1,
            },
            accepted_output_modes: Vec::new(),
            extensions: Vec::new(),
            traceparent: None,
            metadata: BTreeMap::new(),
        });
        Self {
            first: event::submitted(&record, record.submitted),
            id: TurnId::new(now, stored.task.partition(), entropy::u64()),
            nonce,
            follows: stored.last,
            history,
            last_attempt: is_last(&record, live.tries),
            record,
        }
    }

    pub fn answering(&self) -> Answering<'_> {
        Answering {
            record: &self.record,
            id: self.id,
            first: &self.first,
            nonce: self.nonce,
            follows: self.follows,
            history: &self.history,
            last_attempt: self.last_attempt,
            remember_ms: 0,
        }
    }
}

/// A leased turn and what its worker knows.
#[derive(Clone)]
pub struct Running {
    pub taken: Taken,
    pub prev: EntryId,
    pub fold: Fold,
    pub opened: bool,
}

impl Running {
    pub fn new(taken: Taken) -> Self {
        let state = taken.base.clone().map_or_else(
            || Folded::new_task(&taken.record),
            |mut base| {
                base.begin_turn();
                base.status.state = TaskState::Submitted;
                base
            },
        );
        let fold = Fold::resume(taken.last, taken.number, state.clone(), Some((taken.first, state)));
        Self {
            prev: taken.last,
            fold,
            opened: false,
            taken,
        }
    }

    /// When everything here happens.
    fn stamp(&self) -> u64 {
        self.taken.record.submitted + 1
    }

    pub fn event(&self, body: StreamResponse, class: Class) -> NewEvent {
        NewEvent::new(self.taken.number, &Event { body, class })
    }

    pub fn text(&self, text: &str) -> NewEvent {
        let message = event::agent_message(&self.taken.record, "0", text);
        let update = event::status(&self.taken.record, TaskState::Working, Some(message), self.stamp());
        self.event(StreamResponse::StatusUpdate(update), Class::Normal)
    }

    pub fn opening(&self) -> (Open, Option<NewEvent>) {
        let record = &self.taken.record;
        if self.opened {
            return (Open::No, None);
        }
        let (open, event) = if self.taken.tries.opened == 0 {
            (Open::Working, event::working(record, self.stamp()))
        } else {
            let cursor = relevo_shared::ids::Cursor {
                task: record.task,
                entry: self.taken.first,
            };
            (
                Open::Boundary,
                event::boundary(record, record.attempt(self.taken.tries), cursor, self.stamp()),
            )
        };
        (open, Some(self.event(event.body, event.class)))
    }

    pub fn fold_in(&mut self, events: &[NewEvent], nonce: Nonce) {
        for (n, event) in (1..).zip(events) {
            let entry = Entry {
                id: self.prev.after(n, nonce),
                kind: event.kind,
                bytes: event.bytes.to_vec(),
            };
            self.fold.apply(&entry).unwrap();
        }
    }

    pub fn batch<'a>(&'a self, nonce: Nonce, open: Open, events: &'a [NewEvent]) -> Batch<'a> {
        Batch {
            partition: self.taken.partition,
            context: &self.taken.context,
            epoch: self.taken.epoch,
            token: &self.taken.token,
            turn: self.taken.record.turn,
            task: self.taken.record.task,
            prev: self.prev,
            nonce,
            stamp: self.stamp(),
            state: TaskState::Working,
            open,
            snapshot: None,
            events,
            agent: &self.taken.record.agent,
            session: None,
        }
    }

    /// The batch that [`Running::emit`] would send, for a test that sends it itself.
    pub fn events(&self, texts: &[&str]) -> (Open, Vec<NewEvent>) {
        let (open, opening) = self.opening();
        let texts = texts.iter().map(|t| self.text(t));
        (open, opening.into_iter().chain(texts).collect())
    }

    /// Emits texts, opening the attempt first when that has not happened.
    pub async fn emit(&mut self, store: &Store, texts: &[&str]) -> EmitReply {
        self.emit_kept(store, texts, false).await
    }

    /// The same with a snapshot after the batch.
    pub async fn emit_with_snapshot(&mut self, store: &Store, texts: &[&str]) -> EmitReply {
        self.emit_kept(store, texts, true).await
    }

    async fn emit_kept(&mut self, store: &Store, texts: &[&str], keep: bool) -> EmitReply {
        let (open, events) = self.events(texts);
        let nonce = Nonce(entropy::u64());
        let mut after = self.clone();
        after.fold_in(&events, nonce);
        let snapshot = keep.then(|| serde_json::to_vec(after.fold.state()).unwrap());
        let batch = Batch {
            snapshot: snapshot.as_deref(),
            ..self.batch(nonce, open, &events)
        };
        let reply = store.emit(&batch).await.unwrap();
        if let EmitReply::Done { last, .. } = reply {
            self.fold = after.fold;
            self.prev = last;
            self.opened = true;
        }
        reply
    }

    pub fn ending(&self, end: End, nonce: Nonce) -> (Vec<NewEvent>, Open, Folded, Vec<Message>) {
        let (open, opening) = self.opening();
        let ended = event::ended(&self.taken.record, end, None, None, self.stamp());
        let ended = self.event(ended.body, ended.class);
        let events: Vec<NewEvent> = opening.into_iter().chain([ended]).collect();
        let mut copy = self.clone();
        copy.fold_in(&events, nonce);
        let mut snapshot = copy.fold.into_state();
        let history = snapshot.take_messages();
        (events, open, snapshot, history)
    }

    /// Leaves the turn to wait for its user.
    pub async fn suspend(&self, store: &Store) -> EmitReply {
        self.suspend_as(store, End::InputRequired, Nonce(entropy::u64()), None)
            .await
    }

    pub async fn suspend_as(&self, store: &Store, end: End, nonce: Nonce, trim_below: Option<EntryId>) -> EmitReply {
        let suspended = self.try_suspend(store, end, nonce, trim_below).await;
        suspended.unwrap()
    }

    pub async fn try_suspend(
        &self,
        store: &Store,
        end: End,
        nonce: Nonce,
        trim_below: Option<EntryId>,
    ) -> Result<EmitReply, StoreError> {
        let (events, open, snapshot, history) = self.ending(end, nonce);
        let record = &self.taken.record;
        let suspend = Suspend {
            record: &record.suspended(record.attempt(self.taken.tries)),
            snapshot: &snapshot,
            history: &history,
            trim_below,
            longest_ms: LONGEST,
        };
        let batch = Batch {
            state: end.state(),
            ..self.batch(nonce, open, &events)
        };
        store.suspend(&batch, &suspend).await
    }

    pub async fn finish(&self, store: &Store, end: End) -> EmitReply {
        self.finish_as(store, end, Nonce(entropy::u64()), None).await
    }

    /// An answer without a task, if nobody saw the task.
    pub async fn answer(&self, store: &Store) -> EmitReply {
        self.finish_with(store, End::Completed, Nonce(entropy::u64()), None, true)
            .await
    }

    /// The same under a nonce of the test's, so that it can be repeated.
    pub async fn finish_as(&self, store: &Store, end: End, nonce: Nonce, trim_below: Option<EntryId>) -> EmitReply {
        self.finish_with(store, end, nonce, trim_below, false).await
    }

    async fn finish_with(
        &self,
        store: &Store,
        end: End,
        nonce: Nonce,
        trim_below: Option<EntryId>,
        direct: bool,
    ) -> EmitReply {
        let finished = self.try_finish(store, end, nonce, trim_below, direct).await;
        finished.unwrap()
    }

    pub async fn try_finish(
        &self,
        store: &Store,
        end: End,
        nonce: Nonce,
        trim_below: Option<EntryId>,
        direct: bool,
    ) -> Result<EmitReply, StoreError> {
        let (events, open, snapshot, history) = self.ending(end, nonce);
        let keep = Keep::default();
        let finish = Finish {
            end,
            snapshot: &snapshot,
            history: &history,
            trim_below,
            keep: &keep,
            remember_ms: 0,
            direct,
            queued: &self.taken.queued,
        };
        let batch = Batch {
            state: end.state(),
            ..self.batch(nonce, open, &events)
        };
        store.finish(&batch, &finish).await
    }
}
