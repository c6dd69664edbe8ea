//! What is wrong with a line that is none of the protocol, in words for the log of whoever writes an agent. Pure. Names are repeated,
//! and the beginning of what is no JSON at all, which is a stray print; values are not: they may be anybody's.

use serde_json::Value;

/// How much of a line or a name is repeated, in characters.
const SHOWN: usize = 60;

/// The types of lines, and which members each must have.
const TYPES: [(&str, &[&str]); 6] = [
    ("status", &[]),
    ("artifact", &["artifact"]),
    ("session", &["items", "expect"]),
    ("end", &[]),
    ("suspend", &[]),
    ("error", &["text"]),
];

/// Says why a line is none of the protocol; `error` is what its reader met.
pub(super) fn line(text: &str, error: &serde_json::Error) -> String {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return no_json(text, error);
    };
    let Value::Object(line) = value else {
        return "it is JSON, but no object: standard output carries only lines of the protocol".to_owned();
    };
    let Some(name) = line.get("type") else {
        return format!("type is missing: it is one of {}", names());
    };
    let Some(name) = name.as_str() else {
        return format!("type must be a text: one of {}", names());
    };
    let Some((_, needed)) = TYPES.iter().find(|(known, _)| *known == name) else {
        return format!("type `{}` is none of {}", excerpt(name), names());
    };
    let missing = needed.iter().find(|member| !line.contains_key(**member));
    if let Some(member) = missing {
        return format!("{member} is missing, which a line of type {name} must have");
    }
    let wrong = line.iter().find_map(|(member, value)| rule_broken(member, value));
    wrong.unwrap_or_else(|| format!("it is no line of type {name} (column {})", error.column()))
}

/// Says why a message is none of A2A's.
pub(super) fn message(message: &Value) -> String {
    parts(message, "message").unwrap_or_else(|| "message is not one of A2A's".to_owned())
}

/// Says why an artifact is none of A2A's.
pub(super) fn artifact(artifact: &Value) -> String {
    match artifact.get("artifactId") {
        None => "artifact.artifactId is missing".to_owned(),
        Some(id) if !id.is_string() => "artifact.artifactId must be a text".to_owned(),
        Some(_) if artifact.get("parts").is_none() => "artifact.parts is missing".to_owned(),
        Some(_) => parts(artifact, "artifact").unwrap_or_else(|| "artifact is not one of A2A's".to_owned()),
    }
}

/// Says that a state is unknown.
pub(super) fn state(state: &str) -> String {
    format!(
        "state `{}` is none of A2A's: working, completed, failed, canceled, rejected, input-required, auth-required",
        excerpt(state)
    )
}

fn parts(of: &Value, name: &str) -> Option<String> {
    let content = |part: &Value| ["text", "raw", "url", "data"].iter().any(|one| part.get(one).is_some());
    match of.get("parts") {
        Some(Value::Array(parts)) => {
            let bad = parts.iter().position(|part| !content(part))?;
            Some(format!(
                "{name}.parts[{bad}] must be an object with `text`, `raw`, `url` or `data`"
            ))
        }
        Some(_) => Some(format!("{name}.parts must be a list")),
        None => None,
    }
}

fn no_json(text: &str, error: &serde_json::Error) -> String {
    // An attempt at a line may hold what its user said.
    if text.trim_start().starts_with('{') {
        return format!(
            "it is not JSON (column {}): one object per line, as json.dumps writes it",
            error.column()
        );
    }
    format!(
        "standard output carries only JSON lines; got `{}`; print to standard error",
        excerpt(text.trim())
    )
}

/// Names a member that is of a wrong form.
fn rule_broken(member: &str, value: &Value) -> Option<String> {
    let (right, rule) = match member {
        "message" => (value.is_object() || value.is_null(), "an object with `parts`"),
        "metadata" => (value.is_object() || value.is_null(), "an object"),
        "artifact" => (value.is_object(), "an object with `artifactId` and `parts`"),
        "items" => (value.is_array(), "a list"),
        "expect" => (value.is_u64(), "a whole number, how many items the session has"),
        "append" | "lastChunk" | "direct" | "retryable" => (value.is_boolean(), "true or false"),
        "text" => (value.is_string(), "a text"),
        "state" | "taskId" | "contextId" | "turnId" => (value.is_string() || value.is_null(), "a text"),
        _ => return None,
    };
    (!right).then(|| format!("{member} must be {rule}"))
}

fn names() -> String {
    TYPES.map(|(name, _)| name).join(", ")
}

/// The beginning, without what would disturb a log.
fn excerpt(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(SHOWN)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use crate::fixture::record;

    #[test]
    fn whoever_writes_an_agent_is_told_what_is_wrong() {
        for (line, why) in [
            (
                "hello, I am ready",
                "standard output carries only JSON lines; got `hello, I am ready`; print to standard error",
            ),
            (
                "[1]",
                "it is JSON, but no object: standard output carries only lines of the protocol",
            ),
            (
                "{'type': 'end'}",
                "it is not JSON (column 2): one object per line, as json.dumps writes it",
            ),
            (
                "{}",
                "type is missing: it is one of status, artifact, session, end, suspend, error",
            ),
            (
                r#"{"type":"text","text":"hi"}"#,
                "type `text` is none of status, artifact, session, end, suspend, error",
            ),
            (
                r#"{"type":"status","message":"hi"}"#,
                "message must be an object with `parts`",
            ),
            (
                r#"{"type":"status","message":{"parts":"hi"}}"#,
                "message.parts must be a list",
            ),
            (
                r#"{"type":"status","message":{"parts":[{"text":"a"},"hi"]}}"#,
                "message.parts[1] must be an object with `text`, `raw`, `url` or `data`",
            ),
            (
                r#"{"type":"artifact"}"#,
                "artifact is missing, which a line of type artifact must have",
            ),
            (
                r#"{"type":"artifact","artifact":{"parts":[]}}"#,
                "artifact.artifactId is missing",
            ),
            (
                r#"{"type":"artifact","artifact":{"artifactId":"a"}}"#,
                "artifact.parts is missing",
            ),
            (
                r#"{"type":"session","items":[],"expect":"0"}"#,
                "expect must be a whole number, how many items the session has",
            ),
            (
                r#"{"type":"error"}"#,
                "text is missing, which a line of type error must have",
            ),
            (r#"{"type":"end","direct":"yes"}"#, "direct must be true or false"),
            (
                r#"{"type":"end","state":"done"}"#,
                "state `done` is none of A2A's: working, completed, failed, canceled, rejected, input-required, auth-required",
            ),
            (r#"{"type":"end","state":"working"}"#, "state `working` ends no turn"),
            (
                r#"{"type":"suspend","state":"completed"}"#,
                "state `completed` suspends no turn: input-required and auth-required do",
            ),
        ] {
            assert_eq!(read(line.as_bytes(), &record()), Err(why.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_long_line_is_not_repeated_whole() {
        let why = read("é\u{7}".repeat(5_000).as_bytes(), &record()).unwrap_err();
        assert!(why.contains("é é …") && why.len() < 300, "{why}");
    }
}
