use a2a::Role;
use proptest::prelude::*;

use super::*;
use crate::fixture::record;

fn said(line: &str) -> Result<Said, String> {
    read(line.as_bytes(), &record())
}

#[test]
fn a_status_is_working_unless_it_says_otherwise() {
    let plain = Said::Status {
        state: TaskState::Working,
        message: None,
        metadata: None,
    };
    for line in [
        r#"{"type":"status"}"#,
        r#"{"type":"status","state":"working","message":null,"metadata":{},"more":1}"#,
        r#" {"type":"status","state":"TASK_STATE_WORKING","contextId":"c-1"}"#,
    ] {
        assert_eq!(said(line), Ok(plain.clone()), "{line}");
    }
    let Ok(Said::Status { state, .. }) = said(r#"{"type":"status","state":"auth-required"}"#) else {
        panic!("no status")
    };
    assert_eq!(state, TaskState::AuthRequired);
}

#[test]
fn a_status_of_a_state_that_ends_a_turn_is_the_end() {
    for (word, ending) in [
        ("completed", Ending::Completed),
        ("INPUT_REQUIRED", Ending::InputRequired),
        ("TASK_STATE_FAILED", Ending::Failed),
        ("canceled", Ending::Canceled),
        ("rejected", Ending::Rejected),
    ] {
        for kind in ["status", "end"] {
            let line = format!(r#"{{"type":"{kind}","state":"{word}"}}"#);
            assert_eq!(said(&line), Ok(Said::End(ending, None, None)));
        }
    }
    assert_eq!(said(r#"{"type":"end"}"#), Ok(Said::End(Ending::Completed, None, None)));
}

#[test]
fn an_answer_without_a_task_is_a_message_and_completed_else_the_word_does_not_count() {
    let direct = r#"{"type":"end","direct":true,"message":{"parts":[{"text":"a"}]}}"#;
    assert!(matches!(said(direct), Ok(Said::End(Ending::Direct, Some(_), None))));
    for (other, ending) in [
        (r#"{"type":"end","direct":true}"#, Ending::Completed),
        (
            r#"{"type":"end","direct":true,"state":"failed","message":{"parts":[{"text":"a"}]}}"#,
            Ending::Failed,
        ),
        (
            r#"{"type":"end","direct":true,"state":"input-required","message":{"parts":[{"text":"a"}]}}"#,
            Ending::InputRequired,
        ),
    ] {
        let without = said(&other.replace(r#""direct":true"#, r#""direct":false"#));
        assert_eq!(said(other), without, "{other}");
        assert!(
            matches!(without, Ok(Said::End(found, ..)) if found == ending),
            "{other}"
        );
    }
}

#[test]
fn messages_are_filled_in() {
    let record = record();
    let line = r#"{"type":"status","message":{"role":"ROLE_USER","parts":[{"text":"a"}],"metadata":{"k":1}}}"#;
    let Ok(Said::Status {
        message: Some(message), ..
    }) = said(line)
    else {
        panic!("no message")
    };
    assert_eq!(
        (message.task_id, message.context_id),
        (Some(record.task.to_string()), Some("c-1".into()))
    );
    assert_eq!((message.role, message.message_id.as_str()), (Role::Agent, ""));
    assert_eq!(message.metadata.unwrap()["k"], 1);
}

#[test]
fn a_message_without_parts_is_none() {
    let plain = said(r#"{"type":"status"}"#);
    for line in [
        r#"{"type":"status","message":{}}"#,
        r#"{"type":"status","message":{"messageId":"m","parts":[]}}"#,
    ] {
        assert_eq!(said(line), plain, "{line}");
    }
    let end = r#"{"type":"end","direct":true,"message":{"parts":[]}}"#;
    assert_eq!(said(end), Ok(Said::End(Ending::Completed, None, None)));
}

#[test]
fn an_id_of_the_agents_own_has_a_length() {
    let line = |length: usize| {
        let id = "m".repeat(length);
        format!(r#"{{"type":"status","message":{{"messageId":"{id}","parts":[{{"text":"a"}}]}}}}"#)
    };
    assert!(said(&line(LONGEST_ID)).is_ok());
    assert!(said(&line(LONGEST_ID + 1)).unwrap_err().contains("messageId"));
}

#[test]
fn wrong_lines_are_refused_without_being_quoted() {
    for line in [
        "\"hunter2\"",
        "{\"hunter2\"",
        r#"{"type":"artifact","artifact":{"artifactId":"a","parts":["hunter2"]}}"#,
        r#"{"type":"artifact","artifact":{"artifactId":["hunter2"],"parts":[]}}"#,
        r#"{"type":"status","metadata":"hunter2"}"#,
        r#"{"type":"status","message":"hunter2"}"#,
        r#"{"type":"status","message":{"parts":[{"hunter2":1}]}}"#,
        r#"{"type":"status","message":{"taskId":"hunter2"}}"#,
        r#"{"type":"status","message":{"messageId":"hunter2\u0007","parts":[{"text":"a"}]}}"#,
        r#"{"type":"status","turnId":"hunter2"}"#,
        r#"{"type":"status","metadata":{"urn:relevo:a2a:turn:v1":"hunter2"}}"#,
        r#"{"type":"artifact","artifact":{"artifactId":"","parts":[{"text":"a"}]}}"#,
        r#"{"type":"artifact","artifact":{"artifactId":"hunter2","parts":[]}}"#,
        r#"{"type":"artifact"}"#,
        r#"{"type":"end","state":"submitted"}"#,
        r#"{"type":"error"}"#,
    ] {
        let why = said(line).unwrap_err();
        assert!(!why.contains("hunter2"), "{line}: {why}");
    }
}

proptest! {
    #[test]
    fn no_line_is_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(read(&bytes, &record()));
    }
}
