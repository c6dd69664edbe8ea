//! Which agent a message is for: that of its task, that of the skill it names, or the default one.

use relevo_shared::agents::{AgentConfig, Agents};
use serde_json::Value;

use super::extensions::SKILL;
use crate::error::ApiError;
use crate::request::SendMessage;

/// The agent of a message that begins a task.
pub(super) fn begins<'a>(agents: &'a Agents, request: &SendMessage) -> Result<&'a AgentConfig, ApiError> {
    Ok(named(agents, request)?.map_or_else(|| agents.default_agent(), |(agent, _)| agent))
}

/// The agent of a message that goes on with a task: `owner`, which is empty for a task that says nothing.
pub(super) fn goes_on<'a>(agents: &'a Agents, request: &SendMessage, owner: &str) -> Result<&'a AgentConfig, ApiError> {
    let agent = match owner {
        "" => agents.default_agent(),
        name => agents.get(name).ok_or(ApiError::Unsupported(
            "The agent of this task is not configured any more.",
        ))?,
    };
    match named(agents, request)? {
        Some((other, path)) if other.name != agent.name => {
            Err(ApiError::invalid(path, "is a skill of another agent than the task's"))
        }
        _ => Ok(agent),
    }
}

/// What the message says, or else the request, and where.
fn named<'a>(agents: &'a Agents, request: &SendMessage) -> Result<Option<(&'a AgentConfig, String)>, ApiError> {
    let message = request
        .message
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.get(SKILL));
    let found = message.map(|facts| ("message.metadata", facts));
    let found = found.or_else(|| Some(("metadata", request.metadata.get(SKILL)?)));
    let Some((place, facts)) = found else { return Ok(None) };
    let path = format!("{place}.{SKILL}.id");
    let Some(id) = facts.get("id").and_then(Value::as_str) else {
        return Err(ApiError::invalid(path, "must be a text: the id of a skill"));
    };
    match agents.of_skill(id) {
        Some(agent) => Ok(Some((agent, path))),
        None => Err(ApiError::invalid(path, no_skill(agents, id))),
    }
}

/// Says which skills there are: those that everybody sees.
fn no_skill(agents: &Agents, id: &str) -> String {
    let id: String = id.chars().take(LONGEST_SHOWN).collect();
    let skills = agents.in_order().flat_map(|agent| &agent.skills);
    let mut known: Vec<&str> = skills
        .filter(|skill| !skill.extended)
        .map(|skill| skill.id.as_str())
        .collect();
    known.sort_unstable();
    known.dedup();
    format!("{id:?} is no skill of the agent card, which has: {}", known.join(", "))
}

/// Most characters that are shown of what is no skill.
const LONGEST_SHOWN: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use a2a::{Message, Part, Role};
    use relevo_shared::platform::config::ConfigErrors;
    use relevo_shared::store::HistoryLength;
    use serde_json::json;

    use super::*;

    fn agents() -> Agents {
        let table = "[a]\nkind = \"demo\"\ndefault = true\n[b]\nkind = \"demo\"\n[[b.skills]]\nid = \"sums\"\ndescription = \"Sums.\"\n";
        let mut errors = ConfigErrors::new();
        let agents = Agents::from_table(&toml::from_str(table).unwrap(), &mut errors);
        assert!(errors.is_empty(), "{errors}");
        agents
    }

    fn request(of_message: Option<Value>, of_request: Option<Value>) -> SendMessage {
        let under = |facts: Value| (SKILL.to_owned(), facts);
        SendMessage {
            tenant: String::new(),
            message: Message {
                metadata: of_message.map(|facts| HashMap::from([under(facts)])),
                ..Message::new(Role::User, vec![Part::text("a")])
            },
            accepted_output_modes: Vec::new(),
            history: HistoryLength::All,
            return_immediately: false,
            inline_push: false,
            metadata: of_request.into_iter().map(under).collect::<BTreeMap<_, _>>(),
        }
    }

    fn skill(id: &str) -> Value {
        json!({ "id": id })
    }

    #[test]
    fn a_skill_names_its_agent_and_nothing_the_default_one() {
        let agents = agents();
        for (of_message, of_request, name) in [
            (None, None, "a"),
            (Some(skill("sums")), None, "b"),
            (None, Some(skill("sums")), "b"),
            (Some(skill("a")), Some(skill("sums")), "a"),
            (Some(skill("b")), None, "b"),
        ] {
            let found = begins(&agents, &request(of_message, of_request)).unwrap();
            assert_eq!(found.name, name);
        }
    }

    #[test]
    fn a_skill_that_is_none_is_refused_by_its_place() {
        for (of_message, of_request, place) in [
            (Some(skill("none")), None, "message.metadata."),
            (None, Some(skill("none")), "metadata."),
            (Some(json!("sums")), None, "message.metadata."),
            (Some(json!({ "id": 1 })), None, "message.metadata."),
        ] {
            let error = begins(&agents(), &request(of_message, of_request)).unwrap_err();
            assert!(
                format!("{error:?}").contains(&format!("\"{place}{SKILL}.id\"")),
                "{error:?}"
            );
        }
    }

    #[test]
    fn a_skill_that_is_none_is_told_which_there_are() {
        let error = begins(&agents(), &request(Some(skill("sum")), None)).unwrap_err();
        let told = format!("{error:?}").replace('\\', "");
        assert!(
            told.contains("\"sum\" is no skill of the agent card, which has: a, sums"),
            "{told}"
        );
    }

    #[test]
    fn a_task_stays_with_its_agent() {
        let agents = agents();
        let plain = request(None, None);
        assert_eq!(goes_on(&agents, &plain, "b").unwrap().name, "b");
        assert_eq!(goes_on(&agents, &plain, "").unwrap().name, "a");
        assert_eq!(
            goes_on(&agents, &request(Some(skill("sums")), None), "b").unwrap().name,
            "b"
        );
        assert!(goes_on(&agents, &request(Some(skill("a")), None), "b").is_err());
        assert!(matches!(
            goes_on(&agents, &plain, "gone"),
            Err(ApiError::Unsupported(_))
        ));
    }
}
