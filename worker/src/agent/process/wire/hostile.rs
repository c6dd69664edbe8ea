//! Hostile lines of a program: each is something it said, or refused in a few words that repeat none of its values.

use proptest::prelude::*;
use relevo_testkit::hostile::{damaged, json};

use super::*;
use crate::fixture::record;

const LINES: &[&str] = &[
    r#"{"type":"status","state":"working","message":{"parts":[{"text":"hi"}],"messageId":"m"},"metadata":{"a":1}}"#,
    r#"{"type":"artifact","artifact":{"artifactId":"a","parts":[{"raw":"AAEC"}]},"append":true,"lastChunk":false}"#,
    r#"{"type":"artifact","artifact":{"artifactId":"a","parts":[{"file":"out/a.txt","filename":"b"}]}}"#,
    r#"{"type":"session","items":[1,{"a":[]}],"expect":0}"#,
    r#"{"type":"end","state":"completed","message":{"parts":[{"data":null}]},"direct":true}"#,
    r#"{"type":"error","text":"no","retryable":true}"#,
];
const NAMES: &[&str] = &[
    "type",
    "state",
    "message",
    "metadata",
    "artifact",
    "append",
    "lastChunk",
    "items",
    "expect",
    "direct",
    "text",
    "retryable",
    "parts",
    "raw",
    "url",
    "data",
    "artifactId",
    "messageId",
    "role",
    "taskId",
    "contextId",
    "turnId",
    "urn:relevo:a2a:turn:v1",
    "filename",
    "file",
    "mediaType",
    "name",
    "extensions",
];
const TEXTS: &[&str] = &[
    "",
    "status",
    "artifact",
    "session",
    "end",
    "error",
    "working",
    "completed",
    "canceled",
    "TASK_STATE_FAILED",
    "input-required",
    "auth-required",
    "ROLE_AGENT",
    "a",
    "AAEC",
    "https://example.com/",
];

fn is_answered(line: &[u8]) -> Result<(), TestCaseError> {
    if let Err(why) = read(line, &record()) {
        prop_assert!(!why.is_empty() && why.len() < 1_000, "{why}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_lines_are_read_or_refused(line in damaged(LINES)) {
        is_answered(&line)?;
    }

    #[test]
    fn lines_of_any_form_are_read_or_refused(line in json(NAMES, TEXTS), kind in proptest::sample::select(TEXTS)) {
        let mut line = line;
        is_answered(line.to_string().as_bytes())?;
        if let Value::Object(members) = &mut line {
            members.insert("type".to_owned(), kind.into());
        }
        is_answered(line.to_string().as_bytes())?;
    }
}
