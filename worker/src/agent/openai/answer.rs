//! The model's answer, put together from the pieces of a stream or read as a whole. Pure.
//!
//! Only the first choice is read. A stream is whole when the server says so (`[DONE]`), or has said why the model stopped; any other
//! end is a cut one, whose text is worth nothing.

use relevo_shared::domain::event::TURN;
use serde::Deserialize;
use serde_json::{Value, json};

use super::conversation::LONGEST;
use super::trouble::{Trouble, words};
use crate::agent::Metadata;
use crate::agent::secrets::Secrets;

/// The member of the turn's facts that holds what is known of an answer beside its text.
pub(super) const MODEL: &str = "model";
/// What ends a stream.
const DONE: &str = "[DONE]";
/// What `role`, `content` and quotes need of a message.
const ENVELOPE: usize = 64;
/// Longest name of a model or of a reason that is shown.
const LONGEST_NAME: usize = 128;

/// How many tokens a request took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt: u64,
    pub(super) completion: u64,
    pub(super) total: u64,
}

impl Usage {
    /// Reads what is there of it: a count that is missing ends no turn.
    fn read(value: &Value) -> Option<Self> {
        let count = |key| value.get(key).and_then(Value::as_u64).unwrap_or(0);
        value.is_object().then(|| Self {
            prompt: count("prompt_tokens"),
            completion: count("completion_tokens"),
            total: count("total_tokens"),
        })
    }

    fn to_json(self) -> Value {
        json!({ "promptTokens": self.prompt, "completionTokens": self.completion, "totalTokens": self.total })
    }
}

#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<Value>,
    model: Option<String>,
}

#[derive(Deserialize)]
struct Choice {
    index: Option<u64>,
    /// In a stream,
    delta: Option<Message>,
    /// and of a whole answer.
    message: Option<Message>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<Content>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Deserialize)]
struct ContentPart {
    text: Option<String>,
}

impl Content {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect(),
        }
    }
}

/// What is there of an answer.
#[derive(Debug, Default)]
pub(super) struct Answer {
    text: String,
    /// How long the text is as JSON.
    bytes: usize,
    refused: bool,
    finish: Option<String>,
    usage: Option<Usage>,
    model: Option<String>,
    /// Whether the model has said anything, if only that it stops.
    heard: bool,
    done: bool,
}

/// A whole answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finished {
    pub(super) text: String,
    pub(super) usage: Option<Usage>,
    /// Why the model stopped, as a label.
    pub(super) label: &'static str,
    /// The same in the server's word.
    finish: Option<String>,
    model: Option<String>,
    refused: bool,
}

impl Answer {
    /// Takes the data of an event in; returns the text that came with it.
    pub(super) fn event(&mut self, data: &str, secrets: &Secrets) -> Result<String, Trouble> {
        if self.done || data.trim().is_empty() {
            return Ok(String::new());
        }
        if data.trim() == DONE {
            self.done = true;
            return Ok(String::new());
        }
        self.json(data.as_bytes(), secrets)
    }

    /// Reads a whole answer; returns its text.
    pub(super) fn whole(&mut self, body: &[u8], secrets: &Secrets) -> Result<String, Trouble> {
        let text = self.json(body, secrets)?;
        self.done = true;
        Ok(text)
    }

    /// Whether the server has said that nothing follows.
    pub(super) const fn is_done(&self) -> bool {
        self.done
    }

    fn json(&mut self, json: &[u8], secrets: &Secrets) -> Result<String, Trouble> {
        let value: Value = serde_json::from_slice(json).map_err(|_wrong| unreadable())?;
        if let Some(words) = words(&value) {
            return Err(Trouble::of_words(&words, secrets));
        }
        let chunk: Chunk = serde_json::from_value(value).map_err(|_wrong| unreadable())?;
        self.usage = chunk.usage.as_ref().and_then(Usage::read).or(self.usage);
        self.model = chunk.model.filter(|name| !name.is_empty()).or(self.model.take());
        let first = chunk
            .choices
            .into_iter()
            .flatten()
            .find(|choice| choice.index.unwrap_or(0) == 0);
        let Some(choice) = first else { return Ok(String::new()) };
        self.heard |= choice.finish_reason.is_some() || choice.delta.is_some() || choice.message.is_some();
        self.finish = choice
            .finish_reason
            .filter(|word| !word.is_empty())
            .or(self.finish.take());
        let Some(message) = choice.delta.or(choice.message) else {
            return Ok(String::new());
        };
        let mut text = message.content.map(Content::text).unwrap_or_default();
        if let Some(refusal) = message.refusal.filter(|refusal| !refusal.is_empty()) {
            self.refused = true;
            text.push_str(&refusal);
        }
        secrets.strike(&mut text);
        self.bytes += serde_json::to_string(&text).map_or(usize::MAX, |json| json.len());
        if self.bytes > LONGEST - ENVELOPE {
            let most = LONGEST >> 10;
            return Err(Trouble::too_much(format!(
                "The model's answer is longer than {most} KiB."
            )));
        }
        self.text.push_str(&text);
        Ok(text)
    }

    /// The answer at the end of the body.
    pub(super) fn end(self) -> Result<Finished, Trouble> {
        if !self.done && self.finish.is_none() {
            return Err(Trouble::passing("broken", "The model's server broke off its answer."));
        }
        if !self.heard {
            return Err(unreadable());
        }
        let label = match self.finish.as_deref() {
            Some("content_filter") => {
                let text = "The content filter of the model's server stopped the answer.";
                return Err(Trouble::lasting("content_filter", text));
            }
            Some("tool_calls" | "function_call") if self.text.is_empty() => {
                let text = "The model asks for a tool, and this agent has none.";
                return Err(Trouble::lasting("tool_calls", text));
            }
            Some("length") => "length",
            Some("stop") | None => "stop",
            Some(_) => "other",
        };
        Ok(Finished {
            text: self.text,
            usage: self.usage,
            label,
            finish: self.finish,
            model: self.model,
            refused: self.refused,
        })
    }
}

fn unreadable() -> Trouble {
    Trouble::passing("invalid", "The model's server gave an answer that cannot be read.")
}

impl Finished {
    /// What the end of the turn carries beside the text.
    pub(super) fn metadata(&self) -> Metadata {
        let name = |name: &Option<String>| {
            name.as_ref()
                .map(|name| name.chars().take(LONGEST_NAME).collect::<String>())
        };
        let facts = [
            ("name", name(&self.model).map(Value::from)),
            ("finishReason", name(&self.finish).map(Value::from)),
            ("refused", self.refused.then_some(Value::Bool(true))),
            ("usage", self.usage.map(Usage::to_json)),
        ];
        let facts: serde_json::Map<String, Value> = facts
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect();
        Metadata::from([(TURN.to_owned(), json!({ MODEL: facts }))])
    }
}

#[cfg(test)]
mod tests;
