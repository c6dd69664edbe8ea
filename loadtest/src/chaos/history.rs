//! What turns went through, and whether a promise was broken. Pure; the wire-level checks of one stream are
//! [`crate::verify`]'s.

use std::collections::BTreeMap;
use std::fmt;

use a2a::TaskState;

use super::cancel::{self, Cancel, Said};
use crate::verify::is_end;

/// A promise of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// No event is lost, duplicated or reordered on any stream, whenever it was resumed.
    Stream,
    /// A task holds what its turns said, once.
    Task,
    /// Every accepted turn reaches a visible end, and only an end that can be explained.
    Ended,
    /// A terminal state never changes.
    Absorbs,
    /// A cancel that was acknowledged holds.
    Cancel,
    /// What must run once runs once.
    Once,
    /// Any gateway replays a stream from any of its places.
    Replay,
    /// Nothing is left in Redis of what is over.
    Keys,
    /// No process is left, and none ended by itself.
    Processes,
}

impl Promise {
    /// Every promise.
    pub const ALL: [Self; 9] = [
        Self::Stream,
        Self::Task,
        Self::Ended,
        Self::Absorbs,
        Self::Cancel,
        Self::Once,
        Self::Replay,
        Self::Keys,
        Self::Processes,
    ];

    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Task => "task",
            Self::Ended => "ended",
            Self::Absorbs => "absorbs",
            Self::Cancel => "cancel",
            Self::Once => "once",
            Self::Replay => "replay",
            Self::Keys => "keys",
            Self::Processes => "processes",
        }
    }

    /// What it says, for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Stream => "no event lost, duplicated or reordered on any stream, resumed anywhere",
            Self::Task => "a task holds what its turns said, once",
            Self::Ended => "every accepted turn reaches a visible end that can be explained",
            Self::Absorbs => "a terminal state never changes, and nothing follows it",
            Self::Cancel => {
                "an acknowledged cancel leads to CANCELED or to an honest earlier end, and nothing is said after it"
            }
            Self::Once => "keyed sends make one turn, at-most-once agents run once",
            Self::Replay => "any gateway replays a stream from any of its places",
            Self::Keys => "nothing is left in Redis of what is over",
            Self::Processes => "no process is left behind, and none ended by itself",
        }
    }
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// Which.
    pub promise: Promise,
    /// For people.
    pub detail: String,
}

impl Breach {
    /// A promise was broken in this way.
    pub fn new(promise: Promise, detail: impl Into<String>) -> Self {
        Self {
            promise,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise.as_str(), self.detail)
    }
}

/// What the crash of an attempt does to a turn of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// It is run again.
    Restart,
    /// It ends FAILED: it is never run twice.
    Fail,
}

/// How a turn ended, as its client saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// The state of the task.
    pub state: TaskState,
    /// Why it failed, if it did and says so.
    pub reason: Option<String>,
}

/// A turn as its client saw it. Times are milliseconds of the run.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Its own mark.
    pub nonce: String,
    /// The conversation.
    pub context: String,
    /// The task, once it was known.
    pub task: Option<String>,
    /// Whether it was sent with an idempotency key.
    pub keyed: bool,
    /// What its agent's crash does.
    pub policy: Policy,
    /// The end that was asked for.
    pub wanted: TaskState,
    /// When it was sent.
    pub sent: u64,
    /// When its first event came.
    pub first: Option<u64>,
    /// When its end came.
    pub ended: Option<u64>,
    /// Its end; `None`: it was not seen.
    pub end: Option<End>,
    /// What became of its cancel, if one was sent.
    pub cancel: Option<Cancel>,
    /// What its task held of it after its end, if somebody looked.
    pub holds: Option<Said>,
    /// How often its stream was resumed.
    pub resumes: u64,
    /// How often its message was sent again.
    pub resends: u64,
    /// How many attempts were announced void.
    pub restarts: u64,
    /// When nothing came for long, from and to.
    pub silences: Vec<(u64, u64)>,
    /// The positions and digests of its events, if they are kept for a replay.
    pub events: Vec<(String, u64)>,
    /// Whether nobody knows if its message arrived: it had no key, and the answer was lost.
    pub unknown: bool,
}

impl Turn {
    /// Whether it ended otherwise than it was asked to.
    pub fn ended_early(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.state != self.wanted)
    }
}

/// Why an at-most-once turn may end FAILED when its worker or its way to Redis was hurt.
const HONEST: [&str; 4] = [
    "attempts_exhausted",
    "agent_exited",
    "worker_drained",
    "redis_unavailable",
];

/// Judges the end of a turn.
pub fn judge_end(turn: &Turn) -> Vec<Breach> {
    let name = format!("turn {} of task {:?}", turn.nonce, turn.task);
    let Some(end) = &turn.end else {
        return if turn.unknown {
            Vec::new()
        } else {
            vec![Breach::new(Promise::Ended, format!("{name}: no end was seen"))]
        };
    };
    let state = &end.state;
    let broken = turn
        .cancel
        .as_ref()
        .map(|cancel| cancel::broken(cancel, state, turn.holds.as_ref()));
    let broken = broken.into_iter().flatten();
    let mut found: Vec<Breach> = broken
        .map(|how| Breach::new(Promise::Cancel, format!("{name}: {how}")))
        .collect();
    let reason = end.reason.as_deref().unwrap_or_default();
    let explained = match state {
        state if *state == turn.wanted => true,
        TaskState::Canceled => turn.cancel.is_some(),
        TaskState::Failed => turn.policy == Policy::Fail && HONEST.contains(&reason),
        _ => false,
    };
    if !explained {
        found.push(Breach::new(
            Promise::Ended,
            format!("{name}: ended {state:?} ({reason}) instead of {:?}", turn.wanted),
        ));
    }
    found
}

/// One start of an at-most-once agent, as it wrote it down itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Of the turn.
    pub nonce: String,
    /// The epoch of the attempt.
    pub epoch: String,
}

/// Judges how often at-most-once agents ran: each turn once at most, and once for sure if it ended as asked.
pub fn judge_runs(turns: &[Turn], runs: &[Run]) -> Vec<Breach> {
    let mut of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for run in runs {
        of.entry(&run.nonce).or_default().push(&run.epoch);
    }
    let mut found = Vec::new();
    for turn in turns.iter().filter(|turn| turn.policy == Policy::Fail) {
        let epochs = of.remove(turn.nonce.as_str()).unwrap_or_default();
        let least = usize::from(turn.end.is_some() && !turn.ended_early());
        if epochs.len() > 1 || epochs.len() < least {
            found.push(Breach::new(
                Promise::Once,
                format!("turn {}: its agent ran in the epochs {epochs:?}", turn.nonce),
            ));
        }
    }
    for nonce in of.keys() {
        found.push(Breach::new(
            Promise::Once,
            format!("an agent ran for {nonce}, which nobody sent"),
        ));
    }
    found
}

/// A task as the cluster lists it in the end.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Its id.
    pub task: String,
    /// Its state.
    pub state: TaskState,
    /// The marks of the messages that it got.
    pub nonces: Vec<String>,
}

/// Judges the listing of everything: each message made one turn, each task is over, and is what its last turn said.
pub fn judge_listing(turns: &[Turn], listed: &[Listed]) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut held: BTreeMap<&str, Vec<&Listed>> = BTreeMap::new();
    for task in listed {
        if !is_end(&task.state) {
            found.push(Breach::new(
                Promise::Ended,
                format!("task {} is still {:?}", task.task, task.state),
            ));
        }
        for nonce in &task.nonces {
            held.entry(nonce).or_default().push(task);
        }
    }
    let mut last: BTreeMap<&str, &Turn> = BTreeMap::new();
    for turn in turns {
        let holders = held.remove(turn.nonce.as_str()).unwrap_or_default();
        let known = turn.end.is_some() || turn.first.is_some();
        let tasks: Vec<&str> = holders.iter().map(|task| task.task.as_str()).collect();
        if holders.len() > 1 || (known && holders.is_empty()) {
            found.push(Breach::new(
                Promise::Once,
                format!("turn {}: its message is in the tasks {tasks:?}", turn.nonce),
            ));
        }
        if let Some(task) = &turn.task {
            // Turns come in the order in which they were sent.
            let later = last.get(task.as_str()).is_none_or(|before| before.sent <= turn.sent);
            if later {
                last.insert(task, turn);
            }
        }
    }
    for (nonce, tasks) in held {
        let tasks: Vec<&str> = tasks.iter().map(|task| task.task.as_str()).collect();
        found.push(Breach::new(
            Promise::Once,
            format!("{tasks:?} hold {nonce}, which nobody sent"),
        ));
    }
    for task in listed {
        let Some(turn) = last.get(task.task.as_str()) else {
            continue;
        };
        // A later turn whose answer was lost has perhaps taken the task on.
        let taken_on = turns
            .iter()
            .any(|other| other.unknown && other.context == turn.context && task.nonces.contains(&other.nonce));
        if let Some(end) = &turn.end
            && end.state != task.state
            && !taken_on
        {
            found.push(Breach::new(
                Promise::Absorbs,
                format!("task {} ended {:?} and is {:?}", task.task, end.state, task.state),
            ));
        }
    }
    found
}

/// Judges what a gateway replays after the `from`-th event of a turn.
pub fn judge_replay(turn: &Turn, from: usize, replayed: &[(String, u64)]) -> Vec<Breach> {
    let rest = turn.events.get(from + 1..).unwrap_or_default();
    if rest == replayed {
        return Vec::new();
    }
    let ids = |events: &[(String, u64)]| events.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    let after = turn.events.get(from).map(|(id, _)| id.as_str()).unwrap_or_default();
    let detail = if ids(rest) == ids(replayed) {
        "the same positions with other contents".to_owned()
    } else {
        format!("{:?} instead of {:?}", ids(replayed), ids(rest))
    };
    let detail = format!("turn {}: after {after} came {detail}", turn.nonce);
    vec![Breach::new(Promise::Replay, detail)]
}

#[cfg(test)]
pub(crate) mod tests;
