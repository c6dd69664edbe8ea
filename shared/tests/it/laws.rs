//! Long random walks through everything that can happen to three contexts, beside a small model of what must come of it. After
//! each step the replies, the tasks and all invariants are compared. `RELEVO_TEST_SEED` repeats a walk.
//!
//! A walk that never comes by a place says nothing of it: the walks count what they met ([`Met`]), and the walks whose seeds
//! are fixed must together have met everything.

mod met;
mod model;
mod steps;

use std::collections::BTreeMap;

use relevo_shared::domain::event;
use relevo_shared::domain::reason::{FailReason, LastAttempt};
use relevo_shared::domain::record::CrashPolicy;
use relevo_shared::ids::{ContextKey, LeaseToken, Partition, ScopeKey, TaskId, TurnId};
use relevo_shared::platform::config::env_var;
use relevo_shared::platform::entropy;
use relevo_shared::store::HistoryLength;

use self::met::Met;
use self::model::{Model, Stage, Written};
use crate::fixture::{Running, World};
use crate::invariants::{self, Memory};
use crate::probe::Saved;

const ONLY: Partition = Partition(0);
const CONTEXTS: [&str; 3] = ["calm", "crashing", "once"];
const ATTEMPTS: u32 = 2;
const HANDBACKS: u32 = 3;
/// Turns of the scope, live and waiting.
const LIMIT: u64 = 4;
const STEPS: usize = 250;
const SEEDS: [u64; 10] = [21, 22, 25, 28, 34, 39, 43, 48, 51, 55];
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

/// Whether a text says what ended the last attempt of a turn; which it was, `janitor.rs` asks.
fn is_told_of_a_last_attempt(text: &str) -> bool {
    [LastAttempt::WorkerLost, LastAttempt::AgentStopped]
        .into_iter()
        .any(|last| {
            [CrashPolicy::Fail, CrashPolicy::Restart]
                .map(|policy| LastAttempt::text(Some(last), policy, ATTEMPTS))
                .contains(&text.to_owned())
        })
}

struct Walk {
    world: World,
    dice: Dice,
    story: Story,
    memory: Memory,
    model: Model,
    /// What workers believe to hold.
    held: Vec<(usize, Running)>,
    epochs: [u64; 3],
    /// Redis as it was, for a crash that loses what came after.
    saved: Option<(Saved, Model, Memory)>,
    /// Batches that were acknowledged and lost.
    lost: Vec<Written>,
    /// Leases whose take was lost.
    lost_tokens: Vec<LeaseToken>,
    /// Whether a task was deleted.
    purged: bool,
    met: Met,
}

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
            model: Model::default(),
            held: Vec::new(),
            epochs: [0; 3],
            saved: None,
            lost: Vec::new(),
            lost_tokens: Vec::new(),
            purged: false,
            met: Met::default(),
        }
    }

    fn tell(&mut self, step: impl Into<String>) {
        self.story.steps.push(step.into());
    }

    fn key(&self, context: usize) -> ContextKey {
        let scope = ScopeKey::of("", "");
        self.world.store.place(&scope, CONTEXTS[context]).0
    }

    /// A worker: mostly one whose belief is true.
    fn someone(&mut self) -> Option<(usize, usize)> {
        let true_ones = (0..self.held.len()).filter(|n| self.model.is_current(self.held[*n].0, &self.held[*n].1));
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

    /// Real waits are over in milliseconds: the test says when.
    fn put_off(&self, context: usize) {
        let record = &self.model.live[context].as_ref().unwrap().record;
        let at = self.world.probe.now() + FAR;
        self.world.probe.set(&self.world.context_key(record), "at", at);
        let due = self.world.store.keys().due(ONLY);
        self.world.probe.set_score(&due, self.key(context).as_str(), at);
    }

    async fn step(&mut self) {
        match self.dice.below(57) {
            0..=6 => self.submit().await,
            7 => self.submit_again().await,
            8..=14 => self.take().await,
            15..=21 => self.emit().await,
            22 => self.emit_again().await,
            23..=26 => self.finish().await,
            27..=28 => self.renew().await,
            29..=30 => self.cancel().await,
            31..=33 => self.give_back().await,
            34..=38 => self.disturb(),
            39..=40 => self.look().await,
            41..=43 => self.die().await,
            44 => self.purge().await,
            45 => self.lose_tail_or_remember().await,
            46 => self.emit_lost().await,
            47..=49 => self.interrupt().await,
            50..=52 => self.suspend().await,
            _ => self.answer().await,
        }
        // A worker forgets what it lost long ago.
        if self.held.len() > 8 {
            let stale = self
                .held
                .iter()
                .position(|(context, running)| !self.model.is_current(*context, running));
            if let Some(stale) = stale {
                self.held.remove(stale);
            }
        }
        self.model.written.drain(..self.model.written.len().saturating_sub(20));
        self.compare().await;
    }

    /// Tasks are as the model says, and the invariants hold.
    async fn compare(&mut self) {
        let turns: BTreeMap<TaskId, Option<TurnId>> = self
            .model
            .tasks
            .keys()
            .map(|id| (*id, self.model.turn_of(*id)))
            .collect();
        for (id, task) in &mut self.model.tasks {
            let stored = self.world.stored(*id).await;
            let turn = turns[id];
            let live = self.model.live[task.context]
                .as_ref()
                .filter(|live| live.record.task == *id);
            assert_eq!(stored.state, task.state, "{id}");
            assert_eq!(
                (stored.terminal, stored.last.seq, stored.number),
                (task.terminal, task.entries, task.number),
                "{id}"
            );
            task.last = stored.last;
            let status_time = event::timestamp(stored.updated);
            assert_eq!(stored.folded.status.timestamp, status_time, "{id} is listed elsewhere");
            assert_eq!(stored.live, turn, "{id}");
            let seen = stored.into_task(HistoryLength::All);
            let text = |m: &a2a::Message| -> String { m.parts.iter().filter_map(|p| p.as_text()).collect() };
            let history: Vec<String> = seen.history.iter().flatten().map(text).collect();
            assert_eq!(history, task.history, "{id}");
            let answer = seen.status.message.as_ref().map(text).unwrap_or_default();
            let expected = live.map_or(&task.answer, |live| &live.said);
            if expected == FailReason::AttemptsExhausted.text() {
                assert!(is_told_of_a_last_attempt(&answer), "{id}: {answer}");
            } else {
                assert_eq!(&answer, expected, "{id}");
            }
        }
        assert_eq!(self.world.store.dead_turns(1_000).await.unwrap().len(), self.model.dead);
        let vanished = (0..3).filter(|context| {
            let live = self.model.live[*context].as_ref();
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
        self.end_grace();
        for _ in 0..200 {
            if self.model.live.iter().all(Option::is_none) {
                return;
            }
            for context in 0..3 {
                if let Some(live) = &mut self.model.live[context] {
                    match &mut live.stage {
                        Stage::Leased { expired } => {
                            *expired = true;
                            self.world.expire(&live.record);
                        }
                        Stage::Delayed { over } => {
                            *over = true;
                            self.world.wake(&live.record);
                        }
                        Stage::Suspended { over } => {
                            *over = true;
                            self.world.outwait(&live.record);
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
        panic!("turns without a worker never end: {:?}", self.model.live);
    }
}

async fn walk(seed: u64) -> Met {
    let mut walk = Walk::start(seed).await;
    for _ in 0..STEPS {
        Box::pin(walk.step()).await;
    }
    Box::pin(walk.settle()).await;
    std::mem::take(&mut walk.met)
}

#[tokio::test]
async fn a_random_walk_keeps_every_law() {
    let seed = env_var("RELEVO_TEST_SEED").and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(entropy::u64);
    walk(seed).await.print(&format!("the walk of seed {seed}"));
}

/// The same every time, so that what they meet is no matter of luck.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn walks_that_are_the_same_every_time_keep_every_law_and_meet_everything() {
    let walks = SEEDS.map(|seed| {
        #[expect(clippy::disallowed_methods, reason = "tests join it themselves")]
        tokio::spawn(walk(seed))
    });
    let mut all = Met::default();
    for walk in walks {
        all.add(&walk.await.unwrap());
    }
    all.print(&format!("{} walks of {STEPS} steps", SEEDS.len()));
    all.assert_everything();
}
