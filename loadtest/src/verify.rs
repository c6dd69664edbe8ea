//! Whether a turn was delivered as promised: every number once, in order, nothing foreign, and an end. Pure.
//!
//! [`StreamCheck`] judges the events of one turn across every reconnect; [`check_task`] judges the task afterwards. A
//! repeated number is an error unless a boundary between the two voids the first. A gap is reported honestly by the
//! server, and still means that a reader missed something: it is a violation of its own kind.

use std::collections::BTreeSet;
use std::fmt;

use a2a::{Artifact, Message, Part, PartContent, Role, StreamResponse, Task, TaskState, TaskStatusUpdateEvent};
use relevo_shared::domain::event::{RESUME, valid_through};
use relevo_shared::ids::{Cursor, EntryId, TaskId};

use crate::expect::{Expect, is_last_word, marks};

/// What was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Something never came.
    Lost,
    /// Something came after what follows it.
    Reordered,
    /// Something came twice.
    Duplicate,
    /// Something of another turn, task or context came.
    Foreign,
    /// There was no end, or another end than was asked for.
    Unfinished,
    /// The server said that it cannot deliver what follows a position.
    Gap,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Lost,
        Self::Reordered,
        Self::Duplicate,
        Self::Foreign,
        Self::Unfinished,
        Self::Gap,
    ];

    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Reordered => "reordered",
            Self::Duplicate => "duplicate",
            Self::Foreign => "foreign",
            Self::Unfinished => "unfinished",
            Self::Gap => "gap",
        }
    }
}

/// One broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What was wrong.
    pub kind: Kind,
    /// For people.
    pub detail: String,
}

impl Violation {
    fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.detail)
    }
}

/// Judges the stream of one turn.
#[derive(Debug)]
pub struct StreamCheck {
    expect: Expect,
    context: String,
    task: Option<TaskId>,
    position: Option<EntryId>,
    /// The numbers that hold, each with the place of its event.
    numbers: Numbers,
    last_word: bool,
    state: TaskState,
    boundaries: u32,
    violations: Vec<Violation>,
}

impl StreamCheck {
    /// A check of the turn that `expect` describes, in a context.
    pub fn new(expect: Expect, context: &str) -> Self {
        Self {
            expect,
            context: context.to_owned(),
            task: None,
            position: None,
            numbers: Numbers::default(),
            last_word: false,
            state: TaskState::Unspecified,
            boundaries: 0,
            violations: Vec::new(),
        }
    }

    /// Takes in an event and its SSE id.
    pub fn event(&mut self, id: Option<&str>, event: &StreamResponse) {
        self.belongs(event);
        let gap = is_gap(event);
        if let Some(id) = id
            && !self.follows(id, gap)
        {
            return;
        }
        if is_end(&self.state) && !gap {
            self.violate(Kind::Reordered, "an event after the end of the turn");
        }
        let place = self.position.map_or(0, |position| position.seq);
        match event {
            StreamResponse::Task(task) => {
                if gap {
                    self.violate(Kind::Gap, format!("after {:?}", self.position));
                    self.numbers = Numbers::default();
                }
                self.state = task.status.state.clone();
                self.snapshot(place, task);
            }
            StreamResponse::Message(message) => self.parts(place, &message.parts, true),
            StreamResponse::StatusUpdate(update) => {
                self.boundary(update);
                self.state = update.status.state.clone();
                if let Some(message) = &update.status.message {
                    self.parts(place, &message.parts, true);
                }
            }
            StreamResponse::ArtifactUpdate(update) => {
                if update.append != Some(true) && !self.numbers.heard.is_empty() {
                    self.violate(Kind::Reordered, "an artifact begins anew in the middle of an attempt");
                }
                self.parts(place, &update.artifact.parts, true);
            }
        }
    }

    /// Attempts that were announced void.
    pub fn boundaries(&self) -> u32 {
        self.boundaries
    }

    /// The stream is over: what is missing.
    pub fn finish(mut self) -> Vec<Violation> {
        if self.state != self.expect.end {
            let detail = format!("the stream ended {:?} instead of {:?}", self.state, self.expect.end);
            self.violate(Kind::Unfinished, detail);
        }
        if is_end(&self.state) && self.state == self.expect.end && !self.last_word {
            self.violate(Kind::Lost, "the last message");
        }
        let chunks = self.expect.chunks;
        self.told(chunks)
    }

    /// The stream is over, and its turn ended before its answer was complete: what came must be whole as far as it goes.
    pub fn finish_early(mut self) -> Vec<Violation> {
        if !is_end(&self.state) {
            let detail = format!("the stream ended {:?}, which is no end", self.state);
            self.violate(Kind::Unfinished, detail);
        }
        let heard = self.numbers.next;
        self.told(heard)
    }

    /// What is wrong, and which of so many numbers are missing.
    fn told(mut self, chunks: u64) -> Vec<Violation> {
        let missing = self.numbers.missing(chunks);
        if !missing.is_empty() {
            self.violate(Kind::Lost, format!("numbers {missing:?} of {chunks}"));
        }
        let (nonce, task) = (self.expect.nonce, self.task);
        for violation in &mut self.violations {
            violation.detail = format!("{} (stream, nonce {nonce}, task {task:?})", violation.detail);
        }
        self.violations
    }

    fn violate(&mut self, kind: Kind, detail: impl Into<String>) {
        self.violations.push(Violation::new(kind, detail));
    }

    fn belongs(&mut self, event: &StreamResponse) {
        let (task, context) = match event {
            StreamResponse::Task(task) => (Some(task.id.as_str()), Some(task.context_id.as_str())),
            StreamResponse::Message(message) => (message.task_id.as_deref(), message.context_id.as_deref()),
            StreamResponse::StatusUpdate(update) => (Some(update.task_id.as_str()), Some(update.context_id.as_str())),
            StreamResponse::ArtifactUpdate(update) => (Some(update.task_id.as_str()), Some(update.context_id.as_str())),
        };
        if context.is_some_and(|context| context != self.context) {
            self.violate(Kind::Foreign, format!("an event of context {context:?}"));
        }
        if let Some(task) = task.and_then(TaskId::parse)
            && *self.task.get_or_insert(task) != task
        {
            self.violate(Kind::Foreign, format!("an event of task {task}"));
        }
    }

    /// Whether an event is new, by its id.
    fn follows(&mut self, id: &str, gap: bool) -> bool {
        let Ok(cursor) = id.parse::<Cursor>() else {
            self.violate(Kind::Foreign, format!("id {id} is no cursor"));
            return true;
        };
        if *self.task.get_or_insert(cursor.task) != cursor.task {
            self.violate(Kind::Foreign, format!("id {id} of another task"));
        }
        let Some(last) = self.position.replace(cursor.entry) else {
            return true;
        };
        let (is, was) = (cursor.entry, last);
        if gap || is.seq == was.seq + 1 {
            return true;
        }
        if is == was {
            self.violate(Kind::Duplicate, format!("event {is}"));
            return false;
        }
        let kind = if is.seq > was.seq { Kind::Lost } else { Kind::Reordered };
        self.violate(kind, format!("event {is} after {was}"));
        true
    }

    fn boundary(&mut self, update: &TaskStatusUpdateEvent) {
        let Some(through) = valid_through(update) else { return };
        if Some(through.task) != self.task {
            self.violate(Kind::Foreign, format!("a boundary of task {}", through.task));
        }
        self.boundaries += 1;
        self.numbers.void_after(through.entry.seq);
    }

    /// A task as a whole: earlier turns of it may be in it.
    fn snapshot(&mut self, place: u64, task: &Task) {
        let messages = task.history.iter().flatten().chain(&task.status.message);
        let parts: Vec<Part> = agents(messages).flat_map(|message| message.parts.clone()).collect();
        self.parts(place, &parts, false);
        for artifact in task.artifacts.iter().flatten() {
            self.parts(place, &artifact.parts, false);
        }
    }

    fn parts(&mut self, place: u64, parts: &[Part], only_ours: bool) {
        for text in parts.iter().filter_map(text_of) {
            for mark in marks(&text) {
                if mark.nonce == self.expect.nonce {
                    let heard = self.numbers.hear(place, mark.number, self.expect.chunks);
                    self.violations.extend(heard);
                } else if only_ours {
                    self.violate(Kind::Foreign, format!("number {} of nonce {}", mark.number, mark.nonce));
                }
            }
            self.last_word |= is_last_word(&text, &self.expect.nonce);
        }
    }
}

/// The numbers of one attempt.
#[derive(Debug, Default)]
struct Numbers {
    heard: BTreeSet<u64>,
    /// (place, number) as they came.
    order: Vec<(u64, u64)>,
    next: u64,
}

impl Numbers {
    fn hear(&mut self, place: u64, number: u64, chunks: u64) -> Option<Violation> {
        let expected = self.next;
        self.order.push((place, number));
        self.next = self.next.max(number + 1);
        if !self.heard.insert(number) {
            Some(Violation::new(Kind::Duplicate, format!("number {number}")))
        } else if number >= chunks {
            Some(Violation::new(
                Kind::Foreign,
                format!("number {number} of a turn of {chunks}"),
            ))
        } else if number < expected {
            Some(Violation::new(
                Kind::Reordered,
                format!("number {number} after {}", expected - 1),
            ))
        } else {
            None
        }
    }

    fn void_after(&mut self, place: u64) {
        self.order.retain(|(at, _)| *at <= place);
        self.heard = self.order.iter().map(|(_, number)| *number).collect();
        self.next = self.heard.last().map_or(0, |number| number + 1);
    }

    /// The first few that never came.
    fn missing(&self, chunks: u64) -> Vec<u64> {
        (0..chunks)
            .filter(|number| !self.heard.contains(number))
            .take(8)
            .collect()
    }
}

/// Judges a task after its turns, the last of which is `turns.last()`.
pub fn check_task(task: &Task, context: &str, turns: &[Expect]) -> Vec<Violation> {
    let mut found = Vec::new();
    if task.context_id != context {
        found.push(Violation::new(
            Kind::Foreign,
            format!("context {} instead of {context}", task.context_id),
        ));
    }
    let end = turns.last().map(|turn| &turn.end);
    if end != Some(&task.status.state) {
        found.push(Violation::new(
            Kind::Unfinished,
            format!("the task is {:?} instead of {end:?}", task.status.state),
        ));
    }
    let messages: Vec<&Message> = task.history.iter().flatten().chain(&task.status.message).collect();
    let texts = texts_of_agent(task);
    for mark in texts.iter().flat_map(|text| marks(text)) {
        if !turns.iter().any(|turn| turn.nonce == mark.nonce) {
            found.push(Violation::new(
                Kind::Foreign,
                format!("number {} of nonce {}", mark.number, mark.nonce),
            ));
        }
    }
    for turn in turns {
        let mut numbers = Numbers::default();
        let ours = texts
            .iter()
            .flat_map(|text| marks(text))
            .filter(|mark| mark.nonce == turn.nonce);
        found.extend(ours.filter_map(|mark| numbers.hear(0, mark.number, turn.chunks)));
        let missing = numbers.missing(turn.chunks);
        if !missing.is_empty() {
            let detail = format!("numbers {missing:?} of {}, nonce {}", turn.chunks, turn.nonce);
            found.push(Violation::new(Kind::Lost, detail));
        }
        let last = texts.iter().filter(|text| is_last_word(text, &turn.nonce)).count();
        let asked = messages
            .iter()
            .filter(|message| message.role == Role::User && asks(message, &turn.text))
            .count();
        for (what, count) in [("last message", last), ("question", asked)] {
            match count {
                1 => {}
                0 => found.push(Violation::new(
                    Kind::Lost,
                    format!("the {what} of nonce {}", turn.nonce),
                )),
                _ => found.push(Violation::new(
                    Kind::Duplicate,
                    format!("the {what} of nonce {}", turn.nonce),
                )),
            }
        }
    }
    for violation in &mut found {
        violation.detail = format!("{} (task {})", violation.detail, task.id);
    }
    found
}

/// Every text of the agent that a task holds, in the order of the task.
pub fn texts_of_agent(task: &Task) -> Vec<String> {
    let messages = task.history.iter().flatten().chain(&task.status.message);
    let said = agents(messages).flat_map(|message| &message.parts);
    let made = task
        .artifacts
        .iter()
        .flatten()
        .flat_map(|artifact: &Artifact| &artifact.parts);
    said.chain(made).filter_map(text_of).collect()
}

/// Whether a turn is over when its task is in this state.
pub fn is_end(state: &TaskState) -> bool {
    state.is_terminal() || matches!(state, TaskState::InputRequired | TaskState::AuthRequired)
}

/// Whether an event replaces what the server can no longer deliver.
pub fn is_gap(event: &StreamResponse) -> bool {
    let StreamResponse::Task(task) = event else {
        return false;
    };
    let facts = task.metadata.as_ref().and_then(|metadata| metadata.get(RESUME));
    facts
        .and_then(|facts| facts.get("gap"))
        .and_then(serde_json::Value::as_bool)
        == Some(true)
}

fn agents<'a>(messages: impl Iterator<Item = &'a Message>) -> impl Iterator<Item = &'a Message> {
    messages.filter(|message| message.role == Role::Agent)
}

fn asks(message: &Message, text: &str) -> bool {
    message.parts.iter().any(|part| part.as_text() == Some(text))
}

fn text_of(part: &Part) -> Option<String> {
    match &part.content {
        PartContent::Text(text) => Some(text.clone()),
        PartContent::Raw(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        PartContent::Url(_) | PartContent::Data(_) => None,
    }
}

#[cfg(test)]
mod tests;
