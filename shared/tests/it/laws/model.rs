//! What must come of every step, in a few maps: the other side of each comparison.

use std::collections::{BTreeMap, VecDeque};

use a2a::TaskState;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::{CrashPolicy, TurnRecord};
use relevo_shared::domain::retry::handback_wait;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{EntryId, LeaseToken, Nonce, TaskId, TurnId};
use relevo_shared::janitor::GivenBack;
use relevo_shared::store::Submitted;

use super::{ATTEMPTS, HANDBACKS, LIMIT};
use crate::fixture::{Answered, Running};

pub const LAST: usize = 0;
pub const FIRST: usize = 1;
pub const MAIN: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Queued,
    /// Its entry was taken away.
    Vanished,
    Delayed {
        over: bool,
    },
    Leased {
        expired: bool,
    },
    Suspended {
        over: bool,
    },
}

/// The live turn of a context, as the model sees it.
#[derive(Debug, Clone)]
pub struct Live {
    pub record: TurnRecord,
    /// Whether it waited behind another.
    pub waited: bool,
    pub stage: Stage,
    pub lease: Option<(LeaseToken, u64)>,
    pub charged: u32,
    pub handbacks: u32,
    pub opened: u32,
    pub begun: bool,
    pub canceled: bool,
    /// How often its user answered it.
    pub answers: u32,
    /// What the last opened attempt said.
    pub said: String,
}

impl Live {
    pub fn new(record: TurnRecord, waited: bool) -> Self {
        Self {
            record,
            waited,
            stage: Stage::Queued,
            lease: None,
            charged: 0,
            handbacks: 0,
            opened: 0,
            begun: false,
            canceled: false,
            answers: 0,
            said: String::new(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Task {
    pub context: usize,
    pub state: TaskState,
    pub terminal: bool,
    pub entries: u64,
    pub number: u32,
    pub history: Vec<String>,
    pub answer: String,
    /// The end of its journal, as it was last seen.
    pub last: EntryId,
}

/// A batch that was written.
#[derive(Clone)]
pub struct Written {
    pub by: Running,
    pub nonce: Nonce,
    pub text: String,
    pub last: EntryId,
}

/// Everything that Redis should hold.
#[derive(Clone, Default)]
pub struct Model {
    pub live: [Option<Live>; 3],
    /// Behind the live ones, in order.
    pub waiting: [VecDeque<TurnRecord>; 3],
    pub tasks: BTreeMap<TaskId, Task>,
    pub latest: [Option<TaskId>; 3],
    /// Contexts that wait: last attempts, what came back, what is new.
    pub queues: [VecDeque<usize>; 3],
    pub accepted: Vec<(TurnRecord, EntryId, u32)>,
    pub written: Vec<Written>,
    /// Answers that were accepted: their first entries and numbers.
    pub answered: Vec<(Answered, EntryId, u32)>,
    pub dead: usize,
    /// Tasks in the order of their making.
    pub made: Vec<TaskId>,
    /// Whether leases are not judged yet: Redis came back.
    pub grace: bool,
}

/// What a write of a lease holder must be answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    Done,
    Fenced,
    Diverged,
    Canceled,
}

impl Model {
    /// Whether a worker's belief is true.
    pub fn is_current(&self, context: usize, running: &Running) -> bool {
        self.live[context].as_ref().is_some_and(|live| {
            live.record.turn == running.taken.record.turn
                && live.lease == Some((running.taken.token.clone(), running.taken.epoch.0))
        })
    }

    /// What becomes of a batch, or of an end.
    pub fn judge(&self, context: usize, running: &Running, end: Option<End>) -> Judged {
        if !self.is_current(context, running) {
            return Judged::Fenced;
        }
        let live = self.live[context].as_ref().unwrap();
        if self.tasks[&live.record.task].last != running.prev {
            Judged::Diverged
        } else if live.canceled && end != Some(End::Canceled) {
            Judged::Canceled
        } else {
            Judged::Done
        }
    }

    /// Whether the scope has as many turns as it may have.
    pub fn limited(&self) -> Option<Submitted> {
        let waiting: usize = self.waiting.iter().map(VecDeque::len).sum();
        let turns = self.live.iter().flatten().count() + waiting;
        (turns as u64 >= LIMIT).then_some(Submitted::Limited)
    }

    /// The turn of a task, live or waiting.
    pub fn turn_of(&self, task: TaskId) -> Option<TurnId> {
        let live = self.live.iter().flatten().map(|live| &live.record);
        let mut all = live.chain(self.waiting.iter().flatten());
        all.find(|record| record.task == task).map(|record| record.turn)
    }

    /// Whether a turn is live or waits.
    pub fn is_known(&self, turn: TurnId) -> bool {
        let live = self.live.iter().flatten().map(|live| &live.record);
        live.chain(self.waiting.iter().flatten())
            .any(|record| record.turn == turn)
    }

    /// A waiting turn ends before it began.
    pub fn withdraw(&mut self, context: usize, turn: TurnId) {
        let record = self.waiting[context].iter().find(|record| record.turn == turn).unwrap();
        let task = self.tasks.get_mut(&record.task).unwrap();
        task.state = TaskState::Canceled;
        task.terminal = true;
        task.entries += 1;
        self.waiting[context].retain(|record| record.turn != turn);
    }

    pub fn enqueue(&mut self, context: usize, queue: usize) {
        let live = self.live[context].as_mut().unwrap();
        live.stage = Stage::Queued;
        live.lease = None;
        live.begun = false;
        self.queues[queue].push_back(context);
    }

    pub fn end(&mut self, context: usize, state: &TaskState, failure: Option<FailReason>) {
        let live = self.live[context].take().unwrap();
        for queue in &mut self.queues {
            queue.retain(|waiting| *waiting != context);
        }
        let task = self.tasks.get_mut(&live.record.task).unwrap();
        task.state = state.clone();
        task.terminal = state.is_terminal();
        task.entries += 1;
        task.answer.clone_from(&live.said);
        if let Some(reason) = failure {
            if !live.said.is_empty() {
                task.history.push(live.said);
            }
            reason.text().clone_into(&mut task.answer);
        }
        if let Some(next) = self.waiting[context].pop_front() {
            self.live[context] = Some(Live::new(next, true));
            self.queues[MAIN].push_back(context);
        }
    }

    /// What becomes of a turn that nobody charges.
    pub fn uncharged(&mut self, context: usize) -> GivenBack {
        let live = self.live[context].as_mut().unwrap();
        if live.handbacks + 1 > HANDBACKS {
            self.end(context, &TaskState::Failed, Some(FailReason::HandbacksExhausted));
            self.dead += 1;
            return GivenBack::Ended(End::Failed);
        }
        live.handbacks += 1;
        if handback_wait(live.handbacks) > 0 {
            live.stage = Stage::Delayed { over: false };
            live.lease = None;
            live.begun = false;
        } else {
            let queue = self.queue_of(context);
            self.enqueue(context, queue);
        }
        GivenBack::Queued
    }

    pub fn queue_of(&self, context: usize) -> usize {
        let charged = self.live[context].as_ref().unwrap().charged;
        if charged > 0 && charged + 1 >= ATTEMPTS {
            LAST
        } else {
            FIRST
        }
    }

    /// What becomes of a turn whose attempt is charged.
    pub fn charged(&mut self, context: usize) -> GivenBack {
        let live = self.live[context].as_mut().unwrap();
        if live.record.policy == CrashPolicy::Fail || live.charged + 1 >= ATTEMPTS {
            self.end(context, &TaskState::Failed, Some(FailReason::AttemptsExhausted));
            self.dead += 1;
            return GivenBack::Ended(End::Failed);
        }
        live.charged += 1;
        let queue = self.queue_of(context);
        self.enqueue(context, queue);
        GivenBack::Queued
    }

    /// The model's side of the first batch of an attempt.
    pub fn open(&mut self, context: usize, opened: bool) {
        let live = self.live[context].as_mut().unwrap();
        if !opened {
            live.opened += 1;
            live.begun = true;
            live.said.clear();
            self.tasks.get_mut(&live.record.task).unwrap().entries += 1;
        }
    }

    /// A turn waits for its user: what it said is not taken back any more.
    pub fn suspend(&mut self, context: usize, state: &TaskState) {
        let live = self.live[context].as_mut().unwrap();
        live.stage = Stage::Suspended { over: false };
        live.lease = None;
        (live.begun, live.opened) = (false, 0);
        let task = self.tasks.get_mut(&live.record.task).unwrap();
        task.state = state.clone();
        task.entries += 1;
    }

    /// Its user has answered.
    pub fn answer(&mut self, context: usize, answer: Answered, first: EntryId, number: u32) {
        let live = self.live[context].as_mut().unwrap();
        live.answers += 1;
        let task = self.tasks.get_mut(&live.record.task).unwrap();
        task.state = TaskState::Submitted;
        task.entries += 1;
        task.number += 1;
        assert_eq!((number, first.seq), (task.number, task.entries));
        let said = std::mem::take(&mut live.said);
        task.history.extend(Some(said).filter(|text| !text.is_empty()));
        task.history.push("yes".to_owned());
        self.answered.push((answer, first, number));
        let queue = self.queue_of(context);
        self.enqueue(context, queue);
    }

    /// A turn was accepted, behind the live one or as it.
    pub fn accept(&mut self, context: usize, record: TurnRecord, first: EntryId, number: u32) {
        if record.new_task {
            self.made.push(record.task);
        }
        let task = self.tasks.entry(record.task).or_insert_with(|| Task {
            context,
            state: TaskState::Submitted,
            terminal: false,
            entries: 0,
            number: 0,
            history: Vec::new(),
            answer: String::new(),
            last: first,
        });
        task.state = TaskState::Submitted;
        task.entries += 1;
        task.number += 1;
        assert_eq!((number, first.seq), (task.number, task.entries));
        let answer = std::mem::take(&mut task.answer);
        task.history.extend(Some(answer).filter(|text| !text.is_empty()));
        task.history.push("hello".to_owned());
        self.latest[context] = Some(record.task);
        self.accepted.push((record.clone(), first, number));
        if self.live[context].is_some() {
            self.waiting[context].push_back(record);
        } else {
            self.queues[MAIN].push_back(context);
            self.live[context] = Some(Live::new(record, false));
        }
    }
}
