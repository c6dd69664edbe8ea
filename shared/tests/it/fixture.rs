//! A private Redis, a store on it, and turns to play with.

use std::collections::BTreeMap;
use std::time::Duration;

use a2a::{Message, Part, Role, StreamResponse, TaskState};
use prometheus::Registry;
use relevo_shared::domain::class::{Class, Kind};
use relevo_shared::domain::event;
use relevo_shared::domain::fold::{Entry, Fold, Folded};
use relevo_shared::domain::record::{CrashPolicy, Sender, TurnRecord, VERSION};
use relevo_shared::domain::state::End;
use relevo_shared::ids::{EntryId, LeaseToken, Nonce, Partition, TaskId, TurnId, WorkerId};
use relevo_shared::platform::entropy;
use relevo_shared::store::{
    Batch, ConnectOptions, EmitReply, Finish, Keep, NewEvent, Open, Store, StoreMetrics, Submit, Submitted, Take, Taken,
};
use relevo_testkit::RedisServer;

pub const TTL: u64 = 60_000;

pub struct World {
    pub redis: RedisServer,
    pub store: Store,
    pub worker: WorkerId,
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
        let store = connect(&redis.url()).await;
        Self {
            redis,
            store,
            worker: WorkerId::parse("w-1").unwrap(),
        }
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
            new_task: true,
            accepted_output_modes: Vec::new(),
            traceparent: None,
            metadata: BTreeMap::new(),
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
        let first = event::submitted(record, record.submitted);
        self.store
            .submit(&Submit {
                record,
                first: &first,
                nonce,
                follows,
                history,
            })
            .await
            .unwrap()
    }

    pub fn partition(&self, record: &TurnRecord) -> Partition {
        record.task.partition()
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
            partition,
            pool: "default",
            worker,
            tokens,
            ttl_ms,
            repeat,
            last: true,
            slots: 64,
        };
        self.store.take(&take).await.unwrap().turns
    }

    /// Submits and takes a turn of its own.
    pub async fn running(&self, context_id: &str) -> Running {
        let record = self.record(context_id).await;
        assert!(matches!(self.submit(&record).await, Submitted::Accepted { .. }));
        let taken = self.take(self.partition(&record)).await.pop().unwrap();
        Running::new(taken)
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

    pub fn event(&self, body: StreamResponse, class: Class) -> NewEvent {
        NewEvent {
            kind: Kind {
                turn: self.taken.number,
                class,
            },
            bytes: event::Event { body, class }.bytes(),
        }
    }

    pub fn text(&self, text: &str) -> NewEvent {
        let message = event::agent_message(&self.taken.record, "0", text);
        let update = event::status(&self.taken.record, TaskState::Working, Some(message), 1);
        self.event(StreamResponse::StatusUpdate(update), Class::Normal)
    }

    pub fn opening(&self) -> (Open, Option<NewEvent>) {
        let record = &self.taken.record;
        if self.opened {
            return (Open::No, None);
        }
        let (open, event) = if self.taken.tries.opened == 0 {
            (Open::Working, event::working(record, 1))
        } else {
            let cursor = relevo_shared::ids::Cursor {
                task: record.task,
                entry: self.taken.first,
            };
            (
                Open::Boundary,
                event::boundary(record, self.taken.tries.opened + 1, cursor, 1),
            )
        };
        (open, Some(self.event(event.body, event.class)))
    }

    pub fn fold_in(&mut self, events: &[NewEvent], nonce: Nonce) {
        for (n, event) in (1..).zip(events) {
            let entry = Entry {
                id: self.prev.after(n, nonce),
                kind: event.kind,
                bytes: event.bytes.clone(),
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
            stamp: self.taken.record.submitted + 1,
            state: TaskState::Working,
            open,
            snapshot: None,
            events,
        }
    }

    /// Emits texts, opening the attempt first when that has not happened.
    pub async fn emit(&mut self, store: &Store, texts: &[&str]) -> EmitReply {
        let (open, opening) = self.opening();
        let events: Vec<NewEvent> = opening.into_iter().chain(texts.iter().map(|t| self.text(t))).collect();
        let nonce = Nonce(entropy::u64());
        let reply = store.emit(&self.batch(nonce, open, &events)).await.unwrap();
        if let EmitReply::Done { last, .. } = reply {
            self.fold_in(&events, nonce);
            self.prev = last;
            self.opened = true;
        }
        reply
    }

    pub fn ending(&mut self, end: End, nonce: Nonce) -> (Vec<NewEvent>, Open, Folded, Vec<Message>) {
        let (open, opening) = self.opening();
        let ended = event::ended(&self.taken.record, end, None, None, 2);
        let ended = self.event(ended.body, ended.class);
        let events: Vec<NewEvent> = opening.into_iter().chain([ended]).collect();
        let mut copy = self.clone();
        copy.fold_in(&events, nonce);
        let mut snapshot = copy.fold.into_state();
        let history = snapshot.take_messages();
        (events, open, snapshot, history)
    }

    pub async fn finish(&mut self, store: &Store, end: End) -> EmitReply {
        let nonce = Nonce(entropy::u64());
        let (events, open, snapshot, history) = self.ending(end, nonce);
        let keep = Keep::default();
        let finish = Finish {
            end,
            snapshot: &snapshot,
            history: &history,
            trim_below: None,
            keep: &keep,
        };
        let batch = Batch {
            state: end.state(),
            ..self.batch(nonce, open, &events)
        };
        store.finish(&batch, &finish).await.unwrap()
    }
}
