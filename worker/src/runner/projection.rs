//! What an agent says under its profile's key of metadata, as clients may see it: bounded, without credentials, without paths of
//! this machine, and no more of its thinking than the profile shows. Pure. What stands under other keys is not touched.

use std::collections::HashMap;

use a2a::{Message, Part};
use relevo_shared::agents::{Profile, Thinking};
use relevo_shared::domain::class::Class;
use serde_json::{Map, Value};

use super::sink::{Metadata, Output};
pub(crate) use paths::Paths;
use secret::is_secret;

mod paths;
mod secret;

/// Longest text, in characters.
const LONGEST_TEXT: usize = 4_000;
/// How deep values lie at the most, and what stands for those that lie deeper.
const DEEPEST: usize = 32;
const DEEPER: &str = "[truncated-depth]";
/// What stands for a credential.
const HIDDEN: &str = "[redacted]";
/// How many uses of tools are under way at once that are known by name, and how long their ids and names are.
const TOOLS: usize = 1_024;
const LONGEST_NAME: usize = 256;
/// What the artifact of a tool's result may hold beside facts about it: the artifact is an event of its own.
const PAYLOAD: [&str; 5] = ["content", "bytes", "base64", "raw", "path"];

/// Projects what is said in one turn.
pub(crate) struct Projection {
    namespace: String,
    shown: Vec<Thinking>,
    paths: Paths,
    /// The names of the tools in use.
    tools: HashMap<String, String>,
}

impl Projection {
    /// That of a profile which has a key of its own. `paths` are those that nobody has to see.
    pub(crate) fn of(profile: &Profile, paths: Paths) -> Option<Self> {
        Some(Self {
            namespace: profile.namespace.clone()?,
            shown: profile.thinking.clone(),
            paths,
            tools: HashMap::new(),
        })
    }

    /// Projects what goes on; says whether there is anything left to say.
    pub(crate) fn output(&mut self, output: &mut Output) -> bool {
        match output {
            Output::Status {
                message,
                metadata,
                class,
                ..
            } => {
                let before = metadata.is_some();
                self.last(message.as_mut(), metadata);
                let emptied = before && metadata.is_none();
                !emptied || message.is_some() || *class != Class::Normal
            }
            Output::Artifact { artifact, metadata, .. } => {
                self.metadata(&mut artifact.metadata);
                self.parts(&mut artifact.parts);
                self.metadata(metadata);
                true
            }
        }
    }

    /// Projects what ends the turn.
    pub(crate) fn last(&mut self, message: Option<&mut Message>, metadata: &mut Option<Metadata>) {
        if let Some(message) = message {
            self.metadata(&mut message.metadata);
            self.parts(&mut message.parts);
        }
        self.metadata(metadata);
    }

    fn parts(&mut self, parts: &mut [Part]) {
        for part in parts {
            self.metadata(&mut part.metadata);
        }
    }

    fn metadata(&mut self, metadata: &mut Option<Metadata>) {
        let Some(members) = metadata else { return };
        let Some(facts) = members.remove(&self.namespace) else {
            return;
        };
        if let Some(facts) = self.facts(facts) {
            members.insert(self.namespace.clone(), facts);
        } else if members.is_empty() {
            *metadata = None;
        }
    }

    /// What stands under the key; `None` when nothing of it is shown.
    fn facts(&mut self, facts: Value) -> Option<Value> {
        let facts = match facts {
            Value::Object(mut facts) => {
                if !self.shown.contains(&Thinking::Raw) {
                    facts.remove("thinking");
                }
                if !self.shown.contains(&Thinking::Tools) {
                    facts.remove("tool");
                    facts.remove("permission");
                }
                if facts.is_empty() {
                    return None;
                }
                if let Some(Value::Object(tool)) = facts.get_mut("tool") {
                    self.tool(tool);
                }
                Value::Object(facts)
            }
            other => other,
        };
        Some(self.value(facts, 0))
    }

    /// A use of a tool is named in each of its steps. Pieces of its input, in which nothing can be told from a credential, are
    /// told by their length.
    fn tool(&mut self, tool: &mut Map<String, Value>) {
        if let Some(piece) = tool.remove("partialJson") {
            let length = piece.as_str().map_or(0, |piece| piece.chars().count());
            tool.insert("partialJsonLength".to_owned(), length.into());
        }
        let artifact = tool.get_mut("result").and_then(|result| result.get_mut("artifact"));
        if let Some(Value::Object(artifact)) = artifact {
            artifact.retain(|name, _| !PAYLOAD.contains(&name.as_str()));
        }
        let text = |name: &str| tool.get(name).and_then(Value::as_str).map(str::to_owned);
        let Some(id) = text("toolUseId").filter(|id| id.len() <= LONGEST_NAME) else {
            return;
        };
        let over = matches!(text("status").as_deref(), Some("completed" | "failed"));
        let name = text("name");
        match (name, self.tools.get(&id).cloned()) {
            (None, Some(known)) => drop(tool.insert("name".to_owned(), known.into())),
            (Some(name), None) if !over && name.len() <= LONGEST_NAME && self.tools.len() < TOOLS => {
                self.tools.insert(id.clone(), name);
            }
            _ => {}
        }
        if over {
            self.tools.remove(&id);
        }
    }

    fn value(&self, value: Value, depth: usize) -> Value {
        if depth >= DEEPEST {
            return DEEPER.into();
        }
        match value {
            Value::String(text) => self.text(&text).into(),
            Value::Array(items) => items.into_iter().map(|item| self.value(item, depth + 1)).collect(),
            Value::Object(members) => {
                let member = |(name, member): (String, Value)| {
                    let member = if is_secret(&name) && !member.is_null() {
                        HIDDEN.into()
                    } else {
                        self.value(member, depth + 1)
                    };
                    (self.text(&name), member)
                };
                Value::Object(members.into_iter().map(member).collect())
            }
            other => other,
        }
    }

    fn text(&self, text: &str) -> String {
        let shown = self.paths.hidden(text);
        shown.chars().take(LONGEST_TEXT).collect()
    }
}

#[cfg(test)]
mod tests;
