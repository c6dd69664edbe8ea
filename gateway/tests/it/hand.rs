//! A worker played by hand: takes turns and writes their events, exactly when the test wants it.

use a2a::{Message, StreamResponse, TaskState};
use relevo_shared::domain::class::Class;
use relevo_shared::domain::event::{self, Event, agent_message};
use relevo_shared::domain::fold::{Entry, Fold, Folded};
use relevo_shared::domain::position::trim_below;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{Cursor, EntryId, LeaseToken, Nonce, WorkerId};
use relevo_shared::platform::entropy;
use relevo_shared::store::{Batch, EmitReply, Finish, Keep, NewEvent, Open, Store, Suspend, Take, Taken};
use relevo_testkit::poll;

/// Long enough that no janitor takes a turn away from a test.
const TTL_MS: u64 = 600_000;

pub struct Hand {
    pub store: Store,
    id: WorkerId,
}

/// A turn in the hand.
pub struct Turn {
    store: Store,
    pub taken: Taken,
    pub prev: EntryId,
    fold: Fold,
    opened: bool,
    state: TaskState,
}

impl Hand {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            id: WorkerId::random(entropy::u64()),
        }
    }

    /// Takes the next turn, wherever it is.
    pub async fn take(&self) -> Turn {
        poll::until("a turn", async || self.try_take().await.ok_or("none is queued")).await
    }

    /// Takes a turn if there is one.
    pub async fn try_take(&self) -> Option<Turn> {
        for partition in self.store.keys().layout().all() {
            let take = Take {
                partition,
                takers: "default",
                worker: &self.id,
                tokens: &[LeaseToken::new(entropy::u128())],
                ttl_ms: TTL_MS,
                repeat: false,
                last: true,
                slots: 64,
            };
            let took = self.store.take(&take).await.unwrap();
            if let Some(taken) = took.turns.into_iter().next() {
                return Some(Turn::new(self.store.clone(), taken));
            }
        }
        None
    }
}

impl Turn {
    fn new(store: Store, taken: Taken) -> Self {
        let state = match taken.base.clone() {
            Some(mut base) => {
                base.begin_turn();
                base.messages.clear();
                base
            }
            None => Folded::new_task(&taken.record),
        };
        let fold = Fold::resume(taken.last, taken.number, state.clone(), Some((taken.first, state)));
        Self {
            store,
            prev: taken.last,
            fold,
            opened: false,
            state: TaskState::Working,
            taken,
        }
    }

    pub fn task(&self) -> String {
        self.taken.record.task.to_string()
    }

    /// The text of the user's message.
    pub fn asked(&self) -> String {
        self.taken.record.message.text().unwrap_or_default().to_owned()
    }

    fn now(&self) -> u64 {
        self.taken.record.submitted + self.prev.seq
    }

    /// Appends events, opening with WORKING if nothing was written yet.
    pub async fn emit(&mut self, events: Vec<Event>) {
        let (events, open) = self.opened(events);
        let (new, nonce) = self.folded(events);
        let reply = self.store.emit(&self.batch(&new, nonce, open)).await.unwrap();
        self.done(&reply);
    }

    fn opened(&mut self, events: Vec<Event>) -> (Vec<Event>, Open) {
        if std::mem::replace(&mut self.opened, true) {
            return (events, Open::No);
        }
        let mut all = vec![event::working(&self.taken.record, self.now())];
        all.extend(events);
        (all, Open::Working)
    }

    fn folded(&mut self, events: Vec<Event>) -> (Vec<NewEvent>, Nonce) {
        let nonce = Nonce(entropy::u64());
        let mut new = Vec::new();
        for (place, event) in (1..).zip(events) {
            if let StreamResponse::StatusUpdate(update) = &event.body {
                self.state = update.status.state.clone();
            }
            let event = NewEvent::new(self.taken.number, &event);
            self.fold
                .apply(&Entry {
                    id: self.prev.after(place, nonce),
                    kind: event.kind,
                    bytes: event.bytes.to_vec(),
                })
                .unwrap();
            new.push(event);
        }
        (new, nonce)
    }

    fn batch<'a>(&'a self, events: &'a [NewEvent], nonce: Nonce, open: Open) -> Batch<'a> {
        Batch {
            partition: self.taken.partition,
            context: &self.taken.context,
            epoch: self.taken.epoch,
            token: &self.taken.token,
            turn: self.taken.record.turn,
            task: self.taken.record.task,
            prev: self.prev,
            nonce,
            stamp: self.now(),
            state: self.state.clone(),
            open,
            snapshot: None,
            events,
            agent: &self.taken.record.agent,
            session: None,
        }
    }

    fn done(&mut self, reply: &EmitReply) {
        match reply {
            EmitReply::Done { last, .. } => self.prev = *last,
            other => panic!("{other:?}"),
        }
    }

    /// Begins: WORKING.
    pub async fn begin(&mut self) {
        self.emit(Vec::new()).await;
    }

    /// A status update with a text of the answer.
    pub fn saying(&self, text: &str) -> Event {
        let message = agent_message(&self.taken.record, "0", text);
        self.status(TaskState::Working, Some(message), Class::Normal)
    }

    pub fn status(&self, state: TaskState, message: Option<Message>, class: Class) -> Event {
        let update = event::status(&self.taken.record, state, message, self.now());
        Event {
            body: StreamResponse::StatusUpdate(update),
            class,
        }
    }

    pub async fn say(&mut self, text: &str) {
        let event = self.saying(text);
        self.emit(vec![event]).await;
    }

    /// A message of its own, before the one that the turn ends with.
    pub async fn say_apart(&mut self, text: &str) {
        let message = agent_message(&self.taken.record, "apart", text);
        let event = self.status(TaskState::Working, Some(message), Class::Normal);
        self.emit(vec![event]).await;
    }

    /// Begins anew, as a second attempt does.
    pub async fn begin_anew(&mut self) {
        let valid = Cursor {
            task: self.taken.record.task,
            entry: self.taken.first,
        };
        let boundary = event::boundary(&self.taken.record, 2, valid, self.now());
        let (new, nonce) = self.folded(vec![boundary]);
        let reply = self.store.emit(&self.batch(&new, nonce, Open::Boundary)).await.unwrap();
        self.done(&reply);
    }

    /// AUTH_REQUIRED in the middle of the turn.
    pub async fn ask_for_credentials(&mut self) {
        let event = self.status(TaskState::AuthRequired, None, Class::Waiting);
        self.emit(vec![event]).await;
    }

    /// Ends the turn; says what the store said.
    pub async fn try_finish(&mut self, end: End, text: &str) -> EmitReply {
        self.try_finish_as(end, text, false).await
    }

    /// Answers without a task, if nobody saw the task.
    pub async fn answer(mut self, text: &str) {
        let turn = Self {
            fold: self.fold.clone(),
            taken: self.taken.clone(),
            store: self.store.clone(),
            state: self.state.clone(),
            ..self
        };
        match self.try_finish_as(End::Completed, text, true).await {
            EmitReply::Seen => turn.finish(End::Completed, text).await,
            reply => self.done(&reply),
        }
    }

    async fn try_finish_as(&mut self, end: End, text: &str, direct: bool) -> EmitReply {
        let message = (!text.is_empty()).then(|| agent_message(&self.taken.record, "0", text));
        let mut last = event::ended(&self.taken.record, end, message, None, self.now());
        if let (StreamResponse::StatusUpdate(update), true) = (&mut last.body, direct) {
            update.metadata = Some([(event::TURN.to_owned(), event::direct_facts())].into());
        }
        let (events, open) = self.opened(vec![last]);
        let (new, nonce) = self.folded(events);
        let mut snapshot = self.fold.state().clone();
        let history = snapshot.take_messages();
        let finish = Finish {
            end,
            snapshot: &snapshot,
            history: &history,
            trim_below: trim_below(self.taken.first),
            keep: &Keep::default(),
            remember_ms: self.taken.record.remember_ms,
            direct,
            queued: &self.taken.queued,
        };
        self.store
            .finish(&self.batch(&new, nonce, open), &finish)
            .await
            .unwrap()
    }

    /// Leaves the turn to wait for its user.
    pub async fn suspend(mut self, end: End, text: &str) {
        let message = (!text.is_empty()).then(|| agent_message(&self.taken.record, "0", text));
        let mut last = event::ended(&self.taken.record, end, message, None, self.now());
        if let StreamResponse::StatusUpdate(update) = &mut last.body {
            update.metadata = Some([(event::TURN.to_owned(), event::suspended_facts())].into());
        }
        let (events, open) = self.opened(vec![last]);
        let (new, nonce) = self.folded(events);
        let mut snapshot = self.fold.state().clone();
        let history = snapshot.take_messages();
        let record = &self.taken.record;
        let suspend = Suspend {
            record: &record.suspended(record.attempt(self.taken.tries)),
            snapshot: &snapshot,
            history: &history,
            trim_below: trim_below(self.taken.first),
            longest_ms: TTL_MS,
        };
        let reply = self.store.suspend(&self.batch(&new, nonce, open), &suspend).await;
        self.done(&reply.unwrap());
    }

    pub async fn finish(mut self, end: End, text: &str) {
        let reply = self.try_finish(end, text).await;
        self.done(&reply);
    }
}

impl Turn {
    /// The same turn with nothing written since the last accepted batch: for an end that was refused.
    pub fn again(turn: Self) -> Self {
        let fold = Fold::resume(turn.prev, turn.taken.number, turn.fold.into_state(), None);
        Self { fold, ..turn }
    }
}
