//! What a person sees of a stream of events: text as it arrives, and a note where something must be known about it. Pure.
//!
//! Owns the record of what was shown, so that a snapshot after a lost connection shows only what is new, and a boundary
//! can say which text is void. It refuses to print: it returns what is to be written. Called by `follow` and by the
//! commands that show one task.

mod content;

use a2a::{
    Artifact, Message, Part, Role, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent,
};
use relevo_shared::domain::event::{RESUME, TURN, attempt, valid_through};
use relevo_shared::domain::reason::FailReason;
use relevo_shared::ids::Cursor;
use serde_json::Value;

use crate::exit::Exit;
use crate::print::{Out, excerpt};
use content::{Content, contents, merged, rest_of};

/// How much of a void text is quoted.
const QUOTED: usize = 40;

/// Whose text it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Message(String),
    Artifact(String),
}

/// Something that was shown.
#[derive(Debug)]
struct Piece {
    /// The journal entry it came with.
    seq: u64,
    key: Key,
    content: Content,
}

/// What the first task of a stream holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// What is to be shown.
    New,
    /// What earlier turns left: only what comes is shown.
    Earlier,
}

/// What was shown of a task.
#[derive(Debug)]
pub(crate) struct Show {
    first: First,
    pieces: Vec<Piece>,
    seq: u64,
    /// Whose text the last line belongs to.
    open: Option<Key>,
    /// Whether that line has not ended.
    unfinished: bool,
    ids: Option<(String, String)>,
    state: Option<TaskState>,
    reason: Option<String>,
    answered: bool,
    /// The answer without a task.
    answer: Vec<Part>,
    out: Vec<Out>,
}

impl Show {
    /// Nothing shown yet.
    pub(crate) fn new(first: First) -> Self {
        Self {
            first,
            pieces: Vec::new(),
            seq: 0,
            open: None,
            unfinished: false,
            ids: None,
            state: None,
            reason: None,
            answered: false,
            answer: Vec::new(),
            out: Vec::new(),
        }
    }

    /// The task, once known.
    pub(crate) fn task_id(&self) -> Option<&str> {
        self.ids.as_ref().map(|(task, _)| task.as_str())
    }

    /// The last state seen.
    pub(crate) fn state(&self) -> Option<&TaskState> {
        self.state.as_ref()
    }

    /// Whether the agent answered with a message and no task: nothing follows.
    pub(crate) fn answered(&self) -> bool {
        self.answered
    }

    /// The parts of that message.
    pub(crate) fn answer(&self) -> &[Part] {
        &self.answer
    }

    /// Takes in an event of a stream.
    pub(crate) fn event(&mut self, cursor: Option<&str>, event: StreamResponse) -> Vec<Out> {
        if let Some(cursor) = cursor.and_then(|cursor| cursor.parse::<Cursor>().ok()) {
            self.seq = cursor.entry.seq;
        }
        match event {
            StreamResponse::Task(task) => self.snapshot(task),
            StreamResponse::Message(message) => {
                self.answered = true;
                self.answer.clone_from(&message.parts);
                self.add(&Key::Message(message.message_id), contents(message.parts));
            }
            StreamResponse::StatusUpdate(update) => self.status(update),
            StreamResponse::ArtifactUpdate(update) => self.artifact(update),
        }
        std::mem::take(&mut self.out)
    }

    /// Whether the task has not ended and waits for nobody.
    pub(crate) fn goes_on(&self) -> bool {
        matches!(
            self.state,
            Some(TaskState::Submitted | TaskState::Working | TaskState::Unspecified)
        )
    }

    /// The reader knows which task this is.
    pub(crate) fn of_known(mut self, task: &str, context: &str) -> Self {
        self.ids = Some((task.to_owned(), context.to_owned()));
        self
    }

    /// Takes in a whole task.
    pub(crate) fn task(&mut self, task: Task) -> Vec<Out> {
        self.event(None, StreamResponse::Task(task))
    }

    /// Ends the last line of the text.
    pub(crate) fn end_text(&mut self) -> Vec<Out> {
        self.end_line();
        std::mem::take(&mut self.out)
    }

    /// The last words: the line is ended and the state is said.
    pub(crate) fn end(&mut self) -> Vec<Out> {
        self.end_line();
        if let Some(state) = &self.state {
            let reason = self
                .reason
                .as_ref()
                .map(|reason| format!(" ({reason})"))
                .unwrap_or_default();
            self.out
                .push(Out::Note(format!("state: {}{reason}", state_name(state))));
            if let (TaskState::InputRequired, Some((task, _))) = (state, &self.ids) {
                self.out.push(Out::Note(format!("answer it with --task-id {task}")));
            }
        }
        std::mem::take(&mut self.out)
    }

    /// The exit code that the last state stands for.
    pub(crate) fn exit(&self) -> Exit {
        match &self.state {
            Some(TaskState::Failed | TaskState::Rejected | TaskState::Canceled) => Exit::Bad,
            // A task that waits for its user although the message was refused.
            Some(_) if self.reason.as_deref() == Some(FailReason::InvalidMessage.as_str()) => Exit::Bad,
            Some(_) => Exit::Good,
            None if self.answered => Exit::Good,
            None => Exit::Bad,
        }
    }

    fn status(&mut self, update: TaskStatusUpdateEvent) {
        self.know(&update.task_id, &update.context_id);
        let facts = update.metadata.as_ref().and_then(|metadata| metadata.get(RESUME));
        if facts.and_then(|facts| facts.get("boundary")) == Some(&Value::Bool(true)) {
            self.boundary(
                attempt(&update),
                valid_through(&update).map_or(0, |cursor| cursor.entry.seq),
            );
        }
        self.reason = update.metadata.as_ref().and_then(reason);
        self.state = Some(update.status.state);
        if let Some(message) = update.status.message {
            self.add(&Key::Message(message.message_id), contents(message.parts));
        }
    }

    fn artifact(&mut self, update: TaskArtifactUpdateEvent) {
        self.know(&update.task_id, &update.context_id);
        let Artifact { artifact_id, parts, .. } = update.artifact;
        let key = Key::Artifact(artifact_id);
        if update.append != Some(true) {
            self.replace(&key);
        }
        self.add(&key, contents(parts));
    }

    fn snapshot(&mut self, task: Task) {
        let first = self.ids.is_none();
        self.know(&task.id, &task.context_id);
        let facts = task.metadata.as_ref().and_then(|metadata| metadata.get(RESUME));
        if facts.and_then(|facts| facts.get("gap")) == Some(&Value::Bool(true)) {
            self.end_line();
            let note = "-- gap: some events can no longer be read; what follows is the task as it is now --";
            self.out.push(Out::Note(note.to_owned()));
        }
        self.reason = task.metadata.as_ref().and_then(reason);
        let ended = task.status.state.is_terminal();
        self.state = Some(task.status.state);
        let earlier = first && self.first == First::Earlier;

        let history = task.history.unwrap_or_default();
        let asked = history.iter().rposition(|message| message.role == Role::User);
        let answers = history.into_iter().skip(asked.map_or(0, |at| at + 1));
        for Message { message_id, parts, .. } in answers {
            self.whole(&Key::Message(message_id), contents(parts), earlier);
        }
        if let Some(Message { message_id, parts, .. }) = task.status.message {
            self.whole(&Key::Message(message_id), contents(parts), earlier && !ended);
        }
        for Artifact { artifact_id, parts, .. } in task.artifacts.unwrap_or_default() {
            self.whole(&Key::Artifact(artifact_id), contents(parts), earlier);
        }
    }

    /// Shows what is new in the whole of a message or artifact.
    fn whole(&mut self, key: &Key, whole: Vec<Content>, silently: bool) {
        if silently {
            let seq = self.seq;
            self.pieces.extend(whole.into_iter().map(|content| Piece {
                seq,
                key: key.clone(),
                content,
            }));
            return;
        }
        if let Some(rest) = rest_of(&self.shown(key), &whole) {
            self.add(key, rest);
        } else {
            self.replace(key);
            self.add(key, whole);
        }
    }

    fn shown(&self, key: &Key) -> Vec<Content> {
        merged(
            self.pieces
                .iter()
                .filter(|piece| piece.key == *key)
                .map(|piece| piece.content.clone()),
        )
    }

    /// What was shown of it does not hold any more.
    fn replace(&mut self, key: &Key) {
        let before = self.pieces.len();
        self.pieces.retain(|piece| piece.key != *key);
        if self.pieces.len() < before {
            self.end_line();
            let what = match key {
                Key::Message(_) => "a message above".to_owned(),
                Key::Artifact(id) => format!("artifact {id} above"),
            };
            self.out
                .push(Out::Note(format!("-- {what} is replaced by what follows --")));
        }
    }

    /// Another attempt begins: what came after entry `valid` is void.
    fn boundary(&mut self, attempt: Option<u64>, valid: u64) {
        let void = self.pieces.iter().filter(|piece| piece.seq > valid);
        let quote = void
            .map(|piece| piece.content.quote())
            .find(|text| !text.trim().is_empty());
        self.pieces.retain(|piece| piece.seq <= valid);
        self.end_line();
        let attempt = attempt.map_or_else(|| "another attempt".to_owned(), |n| format!("attempt {n}"));
        self.out.push(Out::Note(match quote {
            Some(text) => format!(
                "-- {attempt}, text above from \"{}\" is void --",
                excerpt(&text, QUOTED)
            ),
            None => format!("-- {attempt}, no text above is void --"),
        }));
    }

    fn add(&mut self, key: &Key, contents: Vec<Content>) {
        for content in contents {
            match &content {
                Content::Text(text) if text.is_empty() => continue,
                Content::Text(text) => {
                    if self.open.as_ref() != Some(key) {
                        self.end_line();
                    }
                    self.unfinished = !text.ends_with('\n');
                    self.open = Some(key.clone());
                    self.out.push(Out::Text(text.clone()));
                }
                Content::Other(what) => {
                    self.end_line();
                    self.out.push(Out::Note(match key {
                        Key::Message(_) => format!("[{what}]"),
                        Key::Artifact(id) => format!("[artifact {id}: {what}]"),
                    }));
                }
            }
            let (seq, key) = (self.seq, key.clone());
            self.pieces.push(Piece { seq, key, content });
        }
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.unfinished) {
            self.out.push(Out::Text("\n".to_owned()));
        }
        self.open = None;
    }

    fn know(&mut self, task: &str, context: &str) {
        if self.ids.is_none() {
            self.ids = Some((task.to_owned(), context.to_owned()));
            self.out.push(Out::Note(format!("task {task}, context {context}")));
        }
    }
}

fn reason(metadata: &std::collections::HashMap<String, Value>) -> Option<String> {
    metadata.get(TURN)?.get("reason")?.as_str().map(str::to_owned)
}

/// A state as people say it.
pub(crate) fn state_name(state: &TaskState) -> &'static str {
    match state {
        TaskState::Unspecified => "unspecified",
        TaskState::Submitted => "submitted",
        TaskState::Working => "working",
        TaskState::Completed => "completed",
        TaskState::Failed => "failed",
        TaskState::Canceled => "canceled",
        TaskState::InputRequired => "input required",
        TaskState::Rejected => "rejected",
        TaskState::AuthRequired => "authentication required",
    }
}

#[cfg(test)]
mod tests;
