//! Long random walks through everything that can happen to three contexts, beside a small model of what must come of it. After
//! each step the replies, the tasks and all invariants are compared. `RELEVO_TEST_SEED` repeats a walk.

use std::collections::{BTreeMap, VecDeque};

use a2a::TaskState;
use relevo_shared::domain::event;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::{CrashPolicy, TurnRecord};
use relevo_shared::domain::retry::handback_wait;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{ContextKey, EntryId, LeaseToken, Nonce, Partition, TaskId, WorkerId};
use relevo_shared::janitor::{Conclusion, GivenBack, Why, cancel_idle, conclude, give_back};
use relevo_shared::platform::config::env_var;
use relevo_shared::platform::entropy;
use relevo_shared::store::{Batch, EmitReply, Held, HistoryLength, Keep, LeaseClient, Settled, Submitted};

use crate::fixture::{Running, TTL, World, token, worker};
use crate::invariants::{self, Memory};

const ONLY: Partition = Partition(0);
const CONTEXTS: [&str; 3] = ["calm", "crashing", "once"];
const ATTEMPTS: u32 = 2;
const HANDBACKS: u32 = 3;
/// Live turns of the scope, one less than there are contexts.
const LIMIT: u64 = 2;
const STEPS: usize = 250;
const FAR: u64 = 3_600_000;

/// Names a walk and tells its steps when it fails.
struct Story {
    seed: u64,
    steps: Vec<String>,
}

impl Drop for Story {
    #[expect(clippy::print_stderr, reason = "for the person who reads the failed test")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = self.steps.len().saturating_sub(25);
            eprintln!("RELEVO_TEST_SEED={}, step {}:", self.seed, self.steps.len());
            for step in &self.steps[last..] {
                eprintln!("  {step}");
            }
        }
    }
}

/// SplitMix64: enough to choose steps, and the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.roll() % n as u64).unwrap()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Queued,
    /// Its entry was taken away.
    Vanished,
    Delayed {
        over: bool,
    },
    Leased {
        expired: bool,
    },
}

/// The live turn of a context, as the model sees it.
#[derive(Debug, Clone)]
struct Live {
    record: TurnRecord,
    stage: Stage,
    lease: Option<(LeaseToken, u64)>,
    charged: u32,
    handbacks: u32,
    opened: u32,
    begun: bool,
    canceled: bool,
    /// What the last opened attempt said.
    said: String,
}

#[derive(Debug, Clone)]
struct Task {
    context: usize,
    state: TaskState,
    terminal: bool,
    entries: u64,
    number: u32,
    history: Vec<String>,
    answer: String,
}

/// A batch that was written.
struct Written {
    by: Running,
    nonce: Nonce,
    text: String,
    last: EntryId,
}

struct Walk {
    world: World,
    dice: Dice,
    story: Story,
    memory: Memory,
    live: [Option<Live>; 3],
    tasks: BTreeMap<TaskId, Task>,
    latest: [Option<TaskId>; 3],
    /// Contexts that wait: last attempts, what came back, what is new.
    queues: [VecDeque<usize>; 3],
    /// What workers believe to hold.
    held: Vec<(usize, Running)>,
    accepted: Vec<(TurnRecord, EntryId, u32)>,
    written: Vec<Written>,
    epochs: [u64; 3],
    dead: usize,
}

const LAST: usize = 0;
const FIRST: usize = 1;
const MAIN: usize = 2;

impl Walk {
    async fn start(seed: u64) -> Self {
        let world = World::small().await;
        world.sweep(ONLY).await;
        Self {
            world,
            dice: Dice(seed),
            story: Story {
                seed,
                steps: Vec::new(),
            },
            memory: Memory::default(),
            live: [None, None, None],
            tasks: BTreeMap::new(),
            latest: [None; 3],
            queues: [VecDeque::new(), VecDeque::new(), VecDeque::new()],
            held: Vec::new(),
            accepted: Vec::new(),
            written: Vec::new(),
            epochs: [0; 3],
            dead: 0,
        }
    }

    fn tell(&mut self, step: impl Into<String>) {
        self.story.steps.push(step.into());
    }

    fn key(&self, context: usize) -> ContextKey {
        let scope = relevo_shared::ids::ScopeKey::of("", "");
        self.world.store.place(&scope, CONTEXTS[context]).0
    }

    /// Whether a worker's belief is true.
    fn is_current(&self, context: usize, running: &Running) -> bool {
        self.live[context].as_ref().is_some_and(|live| {
            live.record.turn == running.taken.record.turn
                && live.lease == Some((running.taken.token.clone(), running.taken.epoch.0))
        })
    }

    /// A worker: mostly one whose belief is true.
    fn someone(&mut self) -> Option<(usize, usize)> {
        let true_ones = (0..self.held.len()).filter(|n| self.is_current(self.held[*n].0, &self.held[*n].1));
        let mut choice: Vec<usize> = true_ones.collect();
        if choice.is_empty() || self.dice.below(4) == 0 {
            choice = (0..self.held.len()).collect();
        }
        if choice.is_empty() {
            return None;
        }
        let n = self.dice.one_of(&choice);
        Some((n, self.held[n].0))
    }

    // What the model says.

    /// Whether the scope has as many live turns as it may have.
    fn limited(&self) -> Option<Submitted> {
        let live = self.live.iter().flatten().count() as u64;
        (live >= LIMIT).then_some(Submitted::Limited)
    }

    fn enqueue(&mut self, context: usize, queue: usize) {
        let live = self.live[context].as_mut().unwrap();
        live.stage = Stage::Queued;
        live.lease = None;
        live.begun = false;
        self.queues[queue].push_back(context);
    }

    fn end(&mut self, context: usize, state: &TaskState, failure: Option<FailReason>) {
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
    }

    /// What becomes of a turn that nobody charges.
    fn uncharged(&mut self, context: usize) -> GivenBack {
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
            self.put_off(context);
        } else {
            let queue = self.queue_of(context);
            self.enqueue(context, queue);
        }
        GivenBack::Queued
    }

    fn queue_of(&self, context: usize) -> usize {
        let charged = self.live[context].as_ref().unwrap().charged;
        if charged > 0 && charged + 1 >= ATTEMPTS {
            LAST
        } else {
            FIRST
        }
    }

    /// What becomes of a turn whose attempt is charged.
    fn charged(&mut self, context: usize) -> GivenBack {
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

    /// Real waits are over in milliseconds: the test says when.
    fn put_off(&self, context: usize) {
        let record = &self.live[context].as_ref().unwrap().record;
        let at = self.world.probe.now() + FAR;
        self.world.probe.set(&self.world.context_key(record), "at", at);
        let due = self.world.store.keys().due(ONLY);
        self.world.probe.set_score(&due, self.key(context).as_str(), at);
    }

    // Steps.

    async fn submit(&mut self) {
        let context = self.dice.below(3);
        let follow = self.latest[context].filter(|_| self.dice.below(3) > 0);
        let mut record = TurnRecord {
            attempts: ATTEMPTS,
            handbacks: HANDBACKS,
            policy: if context == 2 {
                CrashPolicy::Fail
            } else {
                CrashPolicy::Restart
            },
            ..self.world.record(CONTEXTS[context]).await
        };
        let busy = self.live[context].is_some();
        let (submitted, expected) = match follow {
            None => {
                let nonce = Nonce(entropy::u64());
                let submitted = self.world.submit_limited(&record, nonce, None, &[], Some(LIMIT)).await;
                let expected = if busy { Some(Submitted::Busy) } else { self.limited() };
                (submitted, expected)
            }
            Some(task) => {
                let stored = self.world.stored(task).await;
                record.task = task;
                record.new_task = false;
                let history: Vec<_> = stored
                    .folded
                    .status
                    .message
                    .into_iter()
                    .chain([record.message.clone()])
                    .collect();
                let nonce = Nonce(entropy::u64());
                let submitted = self
                    .world
                    .submit_limited(&record, nonce, Some(stored.last), &history, Some(LIMIT))
                    .await;
                let known = &self.tasks[&task];
                let works = self.live[context].as_ref().is_some_and(|live| live.record.task == task);
                let expected = if known.terminal {
                    Some(Submitted::Terminal)
                } else if works {
                    Some(Submitted::Working)
                } else if busy {
                    Some(Submitted::Busy)
                } else {
                    self.limited()
                };
                (submitted, expected)
            }
        };
        self.tell(format!(
            "submit to {} (follow-up: {}): {submitted:?}",
            CONTEXTS[context],
            follow.is_some()
        ));
        if let Some(expected) = expected {
            assert_eq!(submitted, expected);
            return;
        }
        let Submitted::Accepted {
            first,
            number,
            repeat: false,
            ..
        } = submitted
        else {
            panic!("{submitted:?}")
        };
        let task = self.tasks.entry(record.task).or_insert_with(|| Task {
            context,
            state: TaskState::Submitted,
            terminal: false,
            entries: 0,
            number: 0,
            history: Vec::new(),
            answer: String::new(),
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
        self.queues[MAIN].push_back(context);
        self.live[context] = Some(Live {
            record,
            stage: Stage::Queued,
            lease: None,
            charged: 0,
            handbacks: 0,
            opened: 0,
            begun: false,
            canceled: false,
            said: String::new(),
        });
    }

    async fn submit_again(&mut self) {
        if self.accepted.is_empty() {
            return;
        }
        let n = self.dice.below(self.accepted.len());
        let (record, first, number) = self.accepted[n].clone();
        let again = self.world.submit(&record).await;
        self.tell(format!("submit {} again: {again:?}", record.turn));
        assert!(
            matches!(again, Submitted::Accepted { first: f, number: n, repeat: true, .. } if (f, n) == (first, number))
        );
    }

    async fn take(&mut self) {
        let who: WorkerId = worker(self.dice.one_of(&["w-1", "w-2", "w-3"]));
        let n = self.dice.below(3) + 1;
        let tokens: Vec<LeaseToken> = (0..n).map(|_| token()).collect();
        let mut taken = self.world.take_with(&who, ONLY, TTL, &tokens, false).await;
        let mut expected: Vec<usize> = self.queues[LAST].pop_front().into_iter().collect();
        while expected.len() < n {
            let Some(next) = self.queues[FIRST].pop_front().or_else(|| self.queues[MAIN].pop_front()) else {
                break;
            };
            expected.push(next);
        }
        let turns: Vec<_> = taken.iter().map(|t| t.record.turn).collect();
        let names: Vec<&str> = expected.iter().map(|c| CONTEXTS[*c]).collect();
        self.tell(format!("{who} takes up to {n}: {names:?}"));
        let wanted = expected.iter().map(|c| self.live[*c].as_ref().unwrap().record.turn);
        assert_eq!(turns, wanted.collect::<Vec<_>>());
        if self.dice.below(3) == 0 && !expected.is_empty() {
            // The reply was lost.
            taken = self.world.take_with(&who, ONLY, TTL, &tokens, true).await;
            taken.sort_by_key(|t| turns.iter().position(|turn| *turn == t.record.turn));
        }
        assert_eq!(taken.len(), expected.len());
        for (context, taken) in expected.into_iter().zip(taken) {
            assert!(
                taken.epoch.0 > self.epochs[context],
                "the epoch of {context} did not rise"
            );
            self.epochs[context] = taken.epoch.0;
            let live = self.live[context].as_mut().unwrap();
            let tries = taken.tries;
            assert_eq!(
                (tries.charged, tries.handbacks, tries.opened),
                (live.charged, live.handbacks, live.opened)
            );
            live.stage = Stage::Leased { expired: false };
            live.lease = Some((taken.token.clone(), taken.epoch.0));
            self.held.push((context, Running::new(taken)));
        }
    }

    /// The model's side of the first batch of an attempt.
    fn open(&mut self, context: usize, opened: bool) {
        let live = self.live[context].as_mut().unwrap();
        if !opened {
            live.opened += 1;
            live.begun = true;
            live.said.clear();
            self.tasks.get_mut(&live.record.task).unwrap().entries += 1;
        }
    }

    async fn emit(&mut self) {
        let Some((n, context)) = self.someone() else { return };
        let text = format!("{} ", self.dice.below(1_000));
        let snapshot = self.dice.below(3) == 0;
        let before = self.held[n].1.clone();
        let (open, events) = before.events(&[&text]);
        let nonce = Nonce(entropy::u64());
        let mut after = before.clone();
        after.fold_in(&events, nonce);
        let kept = serde_json::to_vec(after.fold.state()).unwrap();
        let batch = Batch {
            snapshot: snapshot.then_some(&kept),
            ..before.batch(nonce, open, &events)
        };
        let reply = self.world.store.emit(&batch).await.unwrap();
        self.tell(format!(
            "emit to {} (snapshot: {snapshot}): {reply:?}",
            CONTEXTS[context]
        ));
        if !self.is_current(context, &before) {
            assert_eq!(reply, EmitReply::Fenced);
        } else if self.live[context].as_ref().unwrap().canceled {
            assert_eq!(reply, EmitReply::Canceled);
        } else {
            let EmitReply::Done {
                last, repeat: false, ..
            } = reply
            else {
                panic!("{reply:?}")
            };
            self.open(context, before.opened);
            let live = self.live[context].as_mut().unwrap();
            live.said.push_str(&text);
            let task = self.tasks.get_mut(&live.record.task).unwrap();
            task.entries += 1;
            task.state = TaskState::Working;
            after.prev = last;
            after.opened = true;
            let stored = self.world.stored(live.record.task).await;
            assert_eq!(&stored.folded, after.fold.state(), "read and folded differ");
            self.held[n].1 = after;
            self.written.push(Written {
                by: before,
                nonce,
                text,
                last,
            });
        }
    }

    async fn emit_again(&mut self) {
        if self.written.is_empty() {
            return;
        }
        let n = self.dice.below(self.written.len());
        let Written { by, nonce, text, last } = &self.written[n];
        let (open, events) = by.events(&[text]);
        let reply = self.world.store.emit(&by.batch(*nonce, open, &events)).await.unwrap();
        let known = self.tasks.contains_key(&by.taken.record.task);
        let last = *last;
        self.tell(format!("emit {last} again: {reply:?}"));
        if known {
            assert!(matches!(reply, EmitReply::Done { last: l, repeat: true, .. } if l == last));
        } else {
            assert_eq!(reply, EmitReply::Fenced);
        }
    }

    async fn finish(&mut self) {
        let Some((n, context)) = self.someone() else { return };
        let end = self.dice.one_of(&[
            End::Completed,
            End::InputRequired,
            End::InputRequired,
            End::Failed,
            End::Canceled,
            End::AuthRequired,
        ]);
        let running = self.held[n].1.clone();
        let nonce = Nonce(entropy::u64());
        let reply = running.finish_as(&self.world.store, end, nonce, None).await;
        self.tell(format!("finish {} {end:?}: {reply:?}", CONTEXTS[context]));
        if !self.is_current(context, &running) {
            assert_eq!(reply, EmitReply::Fenced);
        } else if self.live[context].as_ref().unwrap().canceled && end != End::Canceled {
            assert_eq!(reply, EmitReply::Canceled);
        } else {
            assert!(matches!(reply, EmitReply::Done { repeat: false, .. }));
            self.open(context, running.opened);
            self.end(context, &end.state(), None);
            let again = running.finish_as(&self.world.store, end, nonce, None).await;
            assert!(matches!(again, EmitReply::Done { repeat: true, .. }));
        }
    }

    async fn renew(&mut self) {
        let held = self.held.iter().map(|(_, running)| Held {
            context: running.taken.context.clone(),
            token: running.taken.token.clone(),
            turn: running.taken.record.turn,
        });
        let held: Vec<Held> = held.collect();
        let mut client = LeaseClient::new(self.world.store.clone());
        let renewed = tokio::task::spawn_blocking(move || client.renew(ONLY, TTL, &held))
            .await
            .unwrap()
            .unwrap();
        let (mut lost, mut canceled) = (Vec::new(), Vec::new());
        for (context, running) in &self.held {
            if !self.is_current(*context, running) {
                lost.push(running.taken.token.clone());
            } else if self.live[*context].as_ref().unwrap().canceled {
                canceled.push(running.taken.token.clone());
            }
        }
        self.tell(format!("renew: {} of {} lost", lost.len(), self.held.len()));
        assert_eq!((renewed.lost, renewed.canceled), (lost, canceled));
        for live in self.live.iter_mut().flatten() {
            // Whoever holds a current lease was among them: nobody forgets one here.
            if let Stage::Leased { expired } = &mut live.stage {
                *expired = false;
            }
        }
    }

    async fn cancel(&mut self) {
        let context = self.dice.below(3);
        let Some((record, _, _)) = self
            .accepted
            .iter()
            .rfind(|(r, _, _)| r.context_id == CONTEXTS[context])
        else {
            return;
        };
        let turn = record.turn;
        let key = self.key(context);
        let nonce = Nonce(entropy::u64());
        let asked = self.world.store.request_cancel(ONLY, &key, turn, nonce).await.unwrap();
        self.tell(format!("cancel {}: {asked:?}", CONTEXTS[context]));
        match self.live[context].as_mut() {
            None => {
                assert_eq!(asked, None);
                self.cancel_idle(context).await;
            }
            Some(live) if live.lease.is_some() => {
                assert_eq!(asked, Some(true));
                live.canceled = true;
            }
            Some(live) => {
                assert_eq!(asked, Some(false));
                let view = self.world.view(&live.record).await;
                let end = Conclusion {
                    end: End::Canceled,
                    reason: None,
                    dead: false,
                    only_expired: false,
                };
                let settled = conclude(&self.world.store, &view, end, &Keep::default()).await;
                assert_eq!(settled.unwrap(), Settled::Done);
                self.end(context, &TaskState::Canceled, None);
            }
        }
    }

    async fn cancel_idle(&mut self, context: usize) {
        let Some(id) = self.latest[context] else { return };
        let stored = self.world.stored(id).await;
        let settled = cancel_idle(&self.world.store, &stored, &Keep::default()).await.unwrap();
        let task = self.tasks.get_mut(&id).unwrap();
        if task.terminal {
            assert_eq!(settled, Settled::Changed);
        } else {
            assert_eq!(settled, Settled::Done);
            task.entries += 1;
            task.state = TaskState::Canceled;
            task.terminal = true;
        }
    }

    async fn give_back(&mut self) {
        let Some((n, context)) = self.someone() else { return };
        let why = self.dice.one_of(&[
            Why::HandOver(FailReason::WorkerDrained),
            Why::HandOver(FailReason::RedisUnavailable),
            Why::Crash,
        ]);
        let running = self.held[n].1.clone();
        let (taken, keep) = (&running.taken, Keep::default());
        let given = give_back(&self.world.store, ONLY, &taken.context, &taken.token, why, &keep)
            .await
            .unwrap();
        self.tell(format!("give back {} for {why:?}: {given:?}", CONTEXTS[context]));
        let expected = if self.is_current(context, &running) {
            let live = self.live[context].clone().unwrap();
            match why {
                _ if live.canceled => {
                    self.end(context, &TaskState::Canceled, None);
                    GivenBack::Ended(End::Canceled)
                }
                Why::HandOver(reason) if live.begun && live.record.policy == CrashPolicy::Fail => {
                    self.end(context, &TaskState::Failed, Some(reason));
                    GivenBack::Ended(End::Failed)
                }
                Why::HandOver(_) => self.uncharged(context),
                Why::Crash => self.charged(context),
            }
        } else {
            GivenBack::Gone
        };
        assert_eq!(given, expected);
    }

    fn disturb(&mut self) {
        let context = self.dice.below(3);
        let Some(live) = self.live[context].as_mut() else {
            return;
        };
        let stage = live.stage;
        match &mut live.stage {
            Stage::Leased { expired } => {
                *expired = true;
                self.world.expire(&live.record);
            }
            Stage::Delayed { over } => {
                *over = true;
                self.world.wake(&live.record);
            }
            Stage::Queued => {
                live.stage = Stage::Vanished;
                let turn = self.world.store.keys().turn(live.record.turn);
                let [queue, entry] = ["q", "e"].map(|field| self.world.probe.field(&turn, field).unwrap());
                let base = self.world.store.keys().meta(ONLY);
                let queue = format!("{}{queue}", base.trim_end_matches("meta"));
                self.world.probe.ask(&["XDEL", &queue, &entry]);
                for queue in &mut self.queues {
                    queue.retain(|waiting| *waiting != context);
                }
            }
            Stage::Vanished => {}
        }
        self.tell(format!("time passes for {}, which was {stage:?}", CONTEXTS[context]));
    }

    async fn look(&mut self) {
        let janitor = self.world.janitor();
        self.tell("the janitor looks");
        for context in 0..3 {
            let key = self.key(context);
            janitor.look_at(ONLY, &key).await.unwrap();
            let Some(live) = self.live[context].clone() else {
                continue;
            };
            match live.stage {
                Stage::Leased { expired: true } if live.canceled => self.end(context, &TaskState::Canceled, None),
                Stage::Leased { expired: true } if !live.begun => drop(self.uncharged(context)),
                Stage::Leased { expired: true } => drop(self.charged(context)),
                Stage::Vanished => drop(self.uncharged(context)),
                Stage::Delayed { over: true } => {
                    let queue = self.queue_of(context);
                    self.enqueue(context, queue);
                }
                Stage::Leased { expired: false } | Stage::Delayed { over: false } | Stage::Queued => {}
            }
        }
    }

    async fn purge(&mut self) {
        let retain = self.world.store.keys().retain(ONLY);
        let members = self.world.probe.texts(&["ZRANGE", &retain, "0", "-1"]);
        if members.is_empty() {
            return;
        }
        let member = members[self.dice.below(members.len())].clone();
        self.world.probe.set_score(&retain, &member, 1);
        let purged = self.world.store.purge(ONLY, &member, &Keep::default()).await.unwrap();
        self.tell(format!("purge {member}: {purged}"));
        let (class, id) = member.split_once(':').unwrap();
        let task = TaskId::parse(id);
        let live = |task: TaskId| self.live.iter().flatten().any(|live| live.record.task == task);
        match class {
            "t" => {
                let task = task.unwrap();
                assert!(purged);
                self.tasks.remove(&task);
                for latest in self.latest.iter_mut().filter(|latest| **latest == Some(task)) {
                    *latest = None;
                }
            }
            "j" => {
                let task = task.unwrap();
                assert_eq!(purged, !live(task));
                if purged {
                    self.written.retain(|w| w.by.taken.record.task != task);
                }
            }
            _ => {
                let context = (0..3).find(|context| self.key(*context).as_str() == id).unwrap();
                let empty = !self.tasks.values().any(|task| task.context == context);
                assert_eq!(purged, empty);
                if purged {
                    self.epochs[context] = 0;
                }
            }
        }
    }

    async fn step(&mut self) {
        match self.dice.below(40) {
            0..=6 => self.submit().await,
            7 => self.submit_again().await,
            8..=14 => self.take().await,
            15..=21 => self.emit().await,
            22 => self.emit_again().await,
            23..=26 => self.finish().await,
            27 => self.renew().await,
            28 => self.cancel().await,
            29..=31 => self.give_back().await,
            32..=35 => self.disturb(),
            36..=38 => self.look().await,
            _ => self.purge().await,
        }
        // A worker forgets what it lost long ago.
        if self.held.len() > 8 {
            let stale = self
                .held
                .iter()
                .position(|(context, running)| !self.is_current(*context, running));
            if let Some(stale) = stale {
                self.held.remove(stale);
            }
        }
        self.written.drain(..self.written.len().saturating_sub(20));
        self.compare().await;
    }

    /// Tasks are as the model says, and the invariants hold.
    async fn compare(&mut self) {
        for (id, task) in &self.tasks {
            let stored = self.world.stored(*id).await;
            let live = self.live[task.context].as_ref().filter(|live| live.record.task == *id);
            assert_eq!(stored.state, task.state, "{id}");
            assert_eq!(
                (stored.terminal, stored.last.seq, stored.number),
                (task.terminal, task.entries, task.number),
                "{id}"
            );
            let status_time = event::timestamp(stored.updated);
            assert_eq!(stored.folded.status.timestamp, status_time, "{id} is listed elsewhere");
            assert_eq!(stored.live, live.map(|live| live.record.turn), "{id}");
            let seen = stored.into_task(HistoryLength::All);
            let text = |m: &a2a::Message| -> String { m.parts.iter().filter_map(|p| p.as_text()).collect() };
            let history: Vec<String> = seen.history.iter().flatten().map(text).collect();
            assert_eq!(history, task.history, "{id}");
            let answer = seen.status.message.as_ref().map(text).unwrap_or_default();
            let expected = live.map_or(&task.answer, |live| &live.said);
            assert_eq!(&answer, expected, "{id}");
        }
        assert_eq!(self.world.store.dead_turns(1_000).await.unwrap().len(), self.dead);
        let vanished = (0..3).filter(|context| {
            let live = self.live[*context].as_ref();
            live.is_some_and(|live| live.stage == Stage::Vanished)
        });
        let taken_away = vanished.map(|context| self.key(context).as_str().to_owned()).collect();
        let meta = self.world.store.keys().meta(ONLY);
        let prefix = meta.trim_end_matches("meta");
        invariants::hold(&self.world.probe.dump(), prefix, &taken_away, &mut self.memory);
    }

    /// Everything that was accepted comes to an end, without any worker.
    async fn settle(&mut self) {
        self.tell("all workers are gone");
        for _ in 0..200 {
            if self.live.iter().all(Option::is_none) {
                return;
            }
            for context in 0..3 {
                if let Some(live) = &mut self.live[context] {
                    match &mut live.stage {
                        Stage::Leased { expired } => {
                            *expired = true;
                            self.world.expire(&live.record);
                        }
                        Stage::Delayed { over } => {
                            *over = true;
                            self.world.wake(&live.record);
                        }
                        Stage::Queued | Stage::Vanished => {}
                    }
                }
            }
            self.look().await;
            // A worker that dies as soon as it has taken something.
            self.take().await;
            self.compare().await;
        }
        panic!("turns without a worker never end: {:?}", self.live);
    }
}

async fn walk(seed: u64) {
    let mut walk = Walk::start(seed).await;
    for _ in 0..STEPS {
        walk.step().await;
    }
    walk.settle().await;
}

#[tokio::test]
async fn a_random_walk_keeps_every_law() {
    let seed = env_var("RELEVO_TEST_SEED").and_then(|seed| seed.parse().ok());
    walk(seed.unwrap_or_else(entropy::u64)).await;
}

#[tokio::test]
async fn a_walk_that_is_the_same_every_time_keeps_every_law() {
    walk(20).await;
}
