//! The load: conversations of every kind at once, until they are told to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use a2a::{Task, TaskState};
use relevo_loadtest::chaos::history::{Breach, Turn};
use relevo_loadtest::chaos::random::Random;
use relevo_loadtest::chaos::series::{Trouble, ms};
use relevo_loadtest::client::Client;
use relevo_loadtest::expect::Expect;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::cluster::Group;
use crate::follow::{Ask, carry_out};

/// Which part of the run's numbers is the load's.
const PART: u64 = 1_000;
/// Asks the agent to suspend its turn, which the next message of the conversation answers.
const SUSPEND: &str = " suspend=input-required";
/// How long one read may take, and all tries.
const READ: Duration = Duration::from_secs(5);
const READS: u32 = 40;

/// What all conversations share.
pub struct Shared {
    pub client: Client,
    /// The first addresses of the client are those of gateways; the load balancer's follows.
    pub gateways: usize,
    pub begun: Instant,
    pub stopped: AtomicBool,
    events: Mutex<Vec<u64>>,
    troubles: Mutex<Vec<Trouble>>,
    turns: Mutex<Vec<Turn>>,
    breaches: Mutex<Vec<Breach>>,
}

impl Shared {
    pub fn new(urls: Vec<String>, gateways: usize, begun: Instant) -> Self {
        Self {
            client: Client::new(urls).unwrap(),
            gateways,
            begun,
            stopped: AtomicBool::new(false),
            events: Mutex::default(),
            troubles: Mutex::default(),
            turns: Mutex::default(),
            breaches: Mutex::default(),
        }
    }

    /// Milliseconds of the run.
    pub fn now(&self) -> u64 {
        ms(self.begun.elapsed())
    }

    /// An event came.
    pub fn event(&self) -> u64 {
        let now = self.now();
        self.events.lock().unwrap().push(now);
        now
    }

    /// A call or a stream failed.
    pub fn trouble(&self, kind: &str) {
        let trouble = Trouble {
            at: self.now(),
            kind: kind.to_owned(),
        };
        self.troubles.lock().unwrap().push(trouble);
    }

    fn turn(&self, turn: Turn, breaches: Vec<Breach>) {
        self.turns.lock().unwrap().push(turn);
        self.breaches.lock().unwrap().extend(breaches);
    }

    /// Everything that was written down: turns in the order in which they were sent.
    pub fn take(&self) -> (Vec<Turn>, Vec<Breach>, Vec<u64>, Vec<Trouble>) {
        let mut turns = std::mem::take(&mut *self.turns.lock().unwrap());
        let mut events = std::mem::take(&mut *self.events.lock().unwrap());
        turns.sort_by_key(|turn| turn.sent);
        events.sort_unstable();
        let breaches = std::mem::take(&mut *self.breaches.lock().unwrap());
        (
            turns,
            breaches,
            events,
            std::mem::take(&mut *self.troubles.lock().unwrap()),
        )
    }

    /// A task at whichever gateway answers.
    pub async fn read_task(&self, task: &str) -> Option<Task> {
        for door in (usize::try_from(self.now()).unwrap_or(0)..).take(usize::try_from(READS).unwrap_or(0)) {
            match timeout(READ, self.client.get(door % self.gateways, task)).await {
                Ok(Ok(task)) => return Some(task),
                Ok(Err(error)) => self.trouble(&error.kind()),
                Err(_) => self.trouble("read_slow"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await; // pace: of trying again
        }
        None
    }
}

/// Starts the load.
pub fn start(shared: &Arc<Shared>, seed: u64, contexts: u64, balanced: bool) -> JoinSet<()> {
    let mut conversations = JoinSet::new();
    for place in 0..contexts {
        let shared = Arc::clone(shared);
        let random = Random::new(seed, PART + place);
        conversations.spawn(async move { converse(&shared, random, place, balanced).await });
    }
    conversations
}

/// One conversation after the other.
async fn converse(shared: &Shared, mut random: Random, place: u64, balanced: bool) {
    let mut number = 0_u64;
    for conversation in 0_u64.. {
        let group = if random.chance(70) { Group::Demo } else { Group::Once };
        let mut doors: Vec<usize> = (0..shared.gateways)
            .filter(|place| Group::of(*place) == group)
            .collect();
        if balanced && group == Group::Demo {
            doors.push(shared.gateways);
        }
        let mut task = None;
        let mut before = Vec::new();
        let mut left = random.between(1, 3);
        // Whether its turn waits for an answer: it gets one, whatever else is over.
        let mut asked = false;
        while left > 0 || asked {
            let stopped = shared.stopped.load(Ordering::Relaxed);
            if stopped && !asked {
                return;
            }
            let context = format!("ch-{place}-{conversation}");
            let mut ask = ask(&mut random, &format!("{place}.{number}"), &context, group, &doors);
            if asked {
                // Nobody may wonder whether it arrived. The last one is not asked back.
                ask.keyed = true;
                if stopped || left == 0 {
                    ask.text = ask.text.replace(SUSPEND, " end=completed");
                }
            }
            let ask = Ask {
                task: task.take(),
                before: std::mem::take(&mut before),
                ..ask
            };
            number += 1;
            left = left.saturating_sub(1);
            let (turn, breaches) = carry_out(shared, Random::new(random.next(), place), &ask).await;
            let state = turn.end.as_ref().map(|end| end.state.clone());
            let known = turn.task.clone();
            asked = state == Some(TaskState::InputRequired) && ask.text.contains(SUSPEND);
            shared.turn(turn, breaches);
            match state {
                Some(TaskState::InputRequired) => {
                    task = known;
                    before = ask.before;
                    before.extend(Expect::of(&ask.text));
                }
                Some(_) => {}
                // Nobody knows whether the context is free.
                None => break,
            }
        }
    }
}

fn ask(random: &mut Random, nonce: &str, context: &str, group: Group, doors: &[usize]) -> Ask {
    let (chunks, delay) = match random.below(10) {
        0..=4 => (random.between(1, 10), random.between(0, 20)),
        5..=7 => (random.between(10, 30), random.between(20, 80)),
        // Long enough to live on after a worker was out of reach for longer than its leases.
        _ => (random.between(30, 60), random.between(80, 120)),
    };
    let canceled = random.chance(15);
    let kind = match random.below(10) {
        0 if !canceled => " end=input-required",
        1 if !canceled => SUSPEND,
        2 | 3 if group == Group::Demo => " artifact=chunks",
        4 if group == Group::Demo => " size=500",
        _ => "",
    };
    let length = chunks * delay;
    // Some are canceled in the silence before their end: what their worker writes next is the end itself.
    let silent = canceled && group == Group::Demo && random.chance(40);
    let (hold, from, to) = if silent {
        (" hold=1", length, length + 900)
    } else {
        ("", 0, length + 19)
    };
    Ask {
        nonce: nonce.to_owned(),
        context: context.to_owned(),
        task: None,
        text: format!("chunks={chunks} delay={delay}{kind}{hold} nonce={nonce}"),
        before: Vec::new(),
        group,
        keyed: random.chance(85),
        streamed: canceled || random.chance(85),
        kept: random.chance(20),
        cancel: canceled.then(|| Duration::from_millis(random.between(from, to))),
        doors: doors.to_vec(),
    }
}
