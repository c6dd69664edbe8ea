//! What of a server's events is said to our clients: each thing once, whatever was cut, repeated or looked up anew. Pure.
//!
//! Remembers what was said of every message and artifact. An event adds to it; a whole task is compared with it, and what is new is
//! said. Messages get our ids, in the order in which the server began them.

use std::collections::HashMap;

use a2a::{Artifact, Message, Part, PartContent, Role, StreamResponse, Task, TaskState, TaskStatus};

use crate::agent::{Ending, Metadata};

/// Metadata that a server like ours writes about its own attempts and turns; it says nothing about ours.
const SERVERS: &str = "urn:relevo:a2a:";

/// Something to say.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Say {
    /// Parts of the message of that number.
    Parts {
        number: usize,
        parts: Vec<Part>,
        metadata: Option<Metadata>,
    },
    /// A piece of an artifact.
    Artifact {
        artifact: Artifact,
        append: bool,
        last_chunk: bool,
        metadata: Option<Metadata>,
    },
}

/// How the server ended the turn.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    pub(super) ending: Ending,
    /// What of its last message was not said yet.
    pub(super) last: Option<(usize, Vec<Part>)>,
    pub(super) metadata: Option<Metadata>,
}

/// What was said.
#[derive(Debug)]
pub(super) struct Relay {
    /// The id of our message: what the agent says after it belongs to the turn.
    asked: String,
    messages: Vec<Vec<Part>>,
    /// Which of them has which id of the server's.
    numbers: HashMap<String, usize>,
    artifacts: HashMap<String, Vec<Part>>,
}

impl Relay {
    /// Of a turn whose message has this id, in a task that has these artifacts already.
    pub(super) fn new(asked: String, artifacts: Vec<Artifact>) -> Self {
        let artifacts = artifacts
            .into_iter()
            .map(|artifact| (artifact.artifact_id, joined(artifact.parts)));
        Self {
            asked,
            messages: Vec::new(),
            numbers: HashMap::new(),
            artifacts: artifacts.collect(),
        }
    }

    /// An event that follows all before it.
    pub(super) fn event(&mut self, event: StreamResponse) -> (Vec<Say>, Option<End>) {
        match event {
            StreamResponse::Task(task) => self.task(task),
            StreamResponse::Message(message) => {
                let (number, parts) = self.added(message);
                let last = Some((number, parts));
                (
                    Vec::new(),
                    Some(End {
                        ending: Ending::Direct,
                        last,
                        metadata: None,
                    }),
                )
            }
            StreamResponse::StatusUpdate(update) => {
                let TaskStatus { state, message, .. } = update.status;
                let added = message.map(|message| self.added(message));
                status(&state, added, own(update.metadata))
            }
            StreamResponse::ArtifactUpdate(update) => {
                let append = update.append.unwrap_or_default();
                let (id, parts) = (&update.artifact.artifact_id, &update.artifact.parts);
                if !append {
                    self.artifacts.remove(id);
                }
                if !parts.is_empty() {
                    let known = self.artifacts.entry(id.clone()).or_default();
                    for part in parts {
                        join(known, part.clone());
                    }
                }
                let say = Say::Artifact {
                    artifact: update.artifact,
                    append,
                    last_chunk: update.last_chunk.unwrap_or_default(),
                    metadata: own(update.metadata),
                };
                (vec![say], None)
            }
        }
    }

    /// The task as it is: what of it was not said yet.
    pub(super) fn task(&mut self, task: Task) -> (Vec<Say>, Option<End>) {
        let mut say = Vec::new();
        let history = task.history.unwrap_or_default();
        let since = history.iter().rposition(|message| message.message_id == self.asked);
        let after = since.map_or(history.len(), |place| place + 1);
        let last = task.status.message;
        let last_id = last.as_ref().map(|message| message.message_id.clone());
        for message in history.into_iter().skip(after) {
            if message.role == Role::Agent && Some(&message.message_id) != last_id.as_ref() {
                say.extend(self.compared(message).map(|(number, parts)| Say::Parts {
                    number,
                    parts,
                    metadata: None,
                }));
            }
        }
        for artifact in task.artifacts.unwrap_or_default() {
            say.extend(self.artifact(artifact));
        }
        let last = last
            .filter(|message| message.role == Role::Agent)
            .and_then(|message| self.compared(message));
        let (more, end) = status(&task.status.state, last, None);
        say.extend(more);
        (say, end)
    }

    /// A message, or more of one. One that says nothing is none.
    fn added(&mut self, message: Message) -> (usize, Vec<Part>) {
        if message.parts.is_empty() {
            return (0, Vec::new());
        }
        let (number, known) = self.known(message.message_id);
        for part in &message.parts {
            join(known, part.clone());
        }
        (number, message.parts)
    }

    /// What of a whole message is new.
    fn compared(&mut self, message: Message) -> Option<(usize, Vec<Part>)> {
        let whole = joined(message.parts);
        if whole.is_empty() {
            return None;
        }
        let (number, known) = self.known(message.message_id);
        let rest = rest(known, &whole)?;
        *known = whole;
        (!rest.is_empty()).then_some((number, rest))
    }

    fn known(&mut self, id: String) -> (usize, &mut Vec<Part>) {
        let next = self.messages.len();
        let number = *self.numbers.entry(id).or_insert(next);
        if number == next {
            self.messages.push(Vec::new());
        }
        #[expect(clippy::indexing_slicing, reason = "the place of one that is there")]
        (number, &mut self.messages[number])
    }

    /// What of a whole artifact is new: its rest, or all of it when what was said is not its beginning.
    fn artifact(&mut self, mut artifact: Artifact) -> Option<Say> {
        let whole = joined(std::mem::take(&mut artifact.parts));
        let known = self.artifacts.insert(artifact.artifact_id.clone(), whole.clone());
        let rest = known.as_deref().and_then(|known| rest(known, &whole));
        if rest.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        let append = rest.is_some();
        artifact.parts = rest.unwrap_or(whole);
        Some(Say::Artifact {
            artifact,
            append,
            last_chunk: false,
            metadata: None,
        })
    }
}

/// A status as it is said, or as an end.
fn status(state: &TaskState, said: Option<(usize, Vec<Part>)>, metadata: Option<Metadata>) -> (Vec<Say>, Option<End>) {
    let said = said.filter(|(_, parts)| !parts.is_empty());
    if let Some(ending) = ending(state) {
        return (
            Vec::new(),
            Some(End {
                ending,
                last: said,
                metadata,
            }),
        );
    }
    let say = said.map(|(number, parts)| Say::Parts {
        number,
        parts,
        metadata,
    });
    (say.into_iter().collect(), None)
}

/// What follows `known` in `whole`; `None` when that does not begin with it. Less than what is known is nothing new.
fn rest(known: &[Part], whole: &[Part]) -> Option<Vec<Part>> {
    let same = known
        .iter()
        .zip(whole)
        .take_while(|(left, right)| left == right)
        .count();
    let (Some(left), Some(right)) = (known.get(same), whole.get(same)) else {
        return Some(whole.get(known.len()..).unwrap_or_default().to_vec());
    };
    let (left, right) = (left.as_text()?, right.as_text()?);
    if left.starts_with(right) {
        return Some(Vec::new());
    }
    let more = right.strip_prefix(left).filter(|_| same + 1 == known.len())?;
    let mut rest = vec![Part::text(more)];
    rest.extend(whole.get(same + 1..).unwrap_or_default().iter().cloned());
    Some(rest)
}

/// Texts one after the other are one text, however they were cut.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut all = Vec::new();
    for part in parts {
        join(&mut all, part);
    }
    all
}

/// Adds a part to what was said, a text to the text before it.
fn join(all: &mut Vec<Part>, part: Part) {
    let alike = |last: &Part| {
        last.filename == part.filename && last.media_type == part.media_type && last.metadata == part.metadata
    };
    let before = all.last_mut().filter(|last| alike(last)).map(|last| &mut last.content);
    match (before, part.content) {
        (Some(PartContent::Text(before)), PartContent::Text(more)) => before.push_str(&more),
        (_, content) => all.push(Part { content, ..part }),
    }
}

fn own(metadata: Option<Metadata>) -> Option<Metadata> {
    let mut metadata = metadata?;
    metadata.retain(|key, _| !key.starts_with(SERVERS));
    (!metadata.is_empty()).then_some(metadata)
}

fn ending(state: &TaskState) -> Option<Ending> {
    Some(match state {
        TaskState::Completed => Ending::Completed,
        TaskState::Failed => Ending::Failed,
        TaskState::Canceled => Ending::Canceled,
        TaskState::Rejected => Ending::Rejected,
        TaskState::InputRequired => Ending::InputRequired,
        TaskState::AuthRequired => Ending::AuthRequired,
        TaskState::Unspecified | TaskState::Submitted | TaskState::Working => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(value: serde_json::Value) -> StreamResponse {
        serde_json::from_value(value).unwrap()
    }

    fn update(state: &str, id: &str, text: &str) -> StreamResponse {
        event(
            json!({ "statusUpdate": { "taskId": "t", "contextId": "c", "status": { "state": state,
            "message": { "messageId": id, "role": "ROLE_AGENT", "parts": [{ "text": text }] } } } }),
        )
    }

    fn piece(text: &str, append: bool) -> StreamResponse {
        event(
            json!({ "artifactUpdate": { "taskId": "t", "contextId": "c", "append": append,
            "artifact": { "artifactId": "a", "parts": [{ "text": text }] } } }),
        )
    }

    fn task(state: &str, messages: &[(&str, &str)], artifact: &[&str]) -> Task {
        let message = |(id, text): &(&str, &str)| json!({ "messageId": id, "role": if *id == "ask" { "ROLE_USER" } else { "ROLE_AGENT" }, "parts": [{ "text": text }] });
        let history: Vec<_> = messages.iter().map(message).collect();
        let parts: Vec<_> = artifact.iter().map(|text| json!({ "text": text })).collect();
        let artifacts = if parts.is_empty() {
            json!([])
        } else {
            json!([{ "artifactId": "a", "parts": parts }])
        };
        serde_json::from_value(json!({ "id": "t", "contextId": "c", "status": { "state": state }, "history": history, "artifacts": artifacts })).unwrap()
    }

    /// What was said, as text.
    fn said(say: &[Say]) -> Vec<String> {
        let text = |parts: &[Part]| parts.iter().filter_map(Part::as_text).collect::<String>();
        let one = |say: &Say| match say {
            Say::Parts { number, parts, .. } => format!("{number}:{}", text(parts)),
            Say::Artifact { artifact, append, .. } => {
                format!("{}{}", if *append { "+" } else { "=" }, text(&artifact.parts))
            }
        };
        say.iter().map(one).collect()
    }

    fn relay() -> Relay {
        Relay::new("ask".to_owned(), Vec::new())
    }

    #[test]
    fn texts_of_one_message_go_on_and_others_begin_anew() {
        let mut relay = relay();
        let all: Vec<String> = [("m", "a"), ("m", "b"), ("n", "c")]
            .into_iter()
            .flat_map(|(id, text)| said(&relay.event(update("TASK_STATE_WORKING", id, text)).0))
            .collect();
        assert_eq!(all, ["0:a", "0:b", "1:c"]);
        let (_, end) = relay.event(update("TASK_STATE_INPUT_REQUIRED", "n", "d"));
        let end = end.unwrap();
        assert_eq!(
            (end.ending, end.last),
            (Ending::InputRequired, Some((1, vec![Part::text("d")])))
        );
    }

    #[test]
    fn after_a_cut_only_what_is_new_is_said() {
        let mut relay = relay();
        relay.event(update("TASK_STATE_WORKING", "m", "ab"));
        relay.event(piece("x", false));
        relay.event(piece("y", true));
        let now = task(
            "TASK_STATE_WORKING",
            &[("old", "no"), ("ask", "q"), ("m", "abc"), ("n", "d")],
            &["x", "yz"],
        );
        assert_eq!(said(&relay.task(now.clone()).0), ["0:c", "1:d", "+z"]);
        assert_eq!(
            said(&relay.task(now).0),
            Vec::<String>::new(),
            "the same again is nothing"
        );
        assert_eq!(said(&relay.event(piece("!", true)).0), ["+!"]);
        let ended = task(
            "TASK_STATE_COMPLETED",
            &[("ask", "q"), ("m", "abc"), ("n", "d")],
            &["xyz!"],
        );
        let (say, end) = relay.task(ended);
        assert_eq!((say, end.unwrap().last), (Vec::new(), None));
    }

    #[test]
    fn an_artifact_that_is_another_replaces_what_was_said() {
        let mut relay = relay();
        relay.event(piece("abc", false));
        assert_eq!(said(&relay.task(task("TASK_STATE_WORKING", &[], &["xyz"])).0), ["=xyz"]);
    }

    #[test]
    fn what_the_task_had_before_the_turn_is_not_said_again() {
        let artifact = Artifact {
            artifact_id: "a".to_owned(),
            name: None,
            description: None,
            parts: vec![Part::text("old")],
            metadata: None,
            extensions: None,
        };
        let mut relay = Relay::new("ask".to_owned(), vec![artifact]);
        let now = task("TASK_STATE_WORKING", &[("m", "before"), ("ask", "q")], &["old"]);
        assert_eq!(relay.task(now), (Vec::new(), None));
    }

    #[test]
    fn what_a_server_like_ours_says_about_itself_is_left_out() {
        let mut relay = relay();
        let boundary = event(
            json!({ "statusUpdate": { "taskId": "t", "contextId": "c", "status": { "state": "TASK_STATE_COMPLETED" },
            "metadata": { "urn:relevo:a2a:turn:v1": { "reason": "x" }, "mine": 1 } } }),
        );
        let (_, end) = relay.event(boundary);
        assert_eq!(end.unwrap().metadata.unwrap().into_keys().collect::<Vec<_>>(), ["mine"]);
    }

    #[test]
    fn a_message_alone_is_the_answer() {
        let (say, end) = relay().event(event(
            json!({ "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "hi" }] } }),
        ));
        assert_eq!((say, end.unwrap().ending), (Vec::new(), Ending::Direct));
    }
}
