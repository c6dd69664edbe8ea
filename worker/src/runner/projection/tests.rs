//! The shapes of the reference server (its table of agent events), and what is not shown of them.

use std::path::PathBuf;

use a2a::{Artifact, Role, TaskState};
use relevo_shared::agents::Profiles;
use serde_json::json;

use super::*;

const BOTH: [Thinking; 2] = [Thinking::Raw, Thinking::Tools];

fn projection(shown: &[Thinking]) -> Projection {
    let mut profile = Profiles::default().get("iac-code").unwrap();
    profile.thinking = shown.to_vec();
    Projection::of(&profile, Paths::new([PathBuf::from("/srv/ws")])).unwrap()
}

fn status(facts: Value) -> Output {
    Output::Status {
        state: TaskState::Working,
        message: None,
        metadata: Some(Metadata::from([("iac_code".to_owned(), facts)])),
        class: Class::Normal,
    }
}

/// What is shown of facts in one status; `None`: there is no such event.
fn shown(projection: &mut Projection, facts: Value) -> Option<Value> {
    let mut output = status(facts);
    let left = projection.output(&mut output);
    let Output::Status { metadata, .. } = output else {
        panic!("no status")
    };
    left.then(|| metadata.unwrap_or_default().remove("iac_code").unwrap_or_default())
}

#[test]
fn a_tool_is_named_in_every_step_and_its_input_is_free_of_credentials() {
    let mut turn = projection(&BOTH);
    for (said, expected) in [
        (
            json!({ "tool": { "status": "started", "toolUseId": "tu_1", "name": "write_file" } }),
            json!({ "tool": { "status": "started", "toolUseId": "tu_1", "name": "write_file" } }),
        ),
        (
            json!({ "tool": { "status": "input_delta", "toolUseId": "tu_1", "partialJson": "{\"pass" } }),
            json!({ "tool": { "status": "input_delta", "toolUseId": "tu_1", "name": "write_file", "partialJsonLength": 6 } }),
        ),
        (
            json!({ "tool": { "status": "input_complete", "toolUseId": "tu_1", "input": {
                "path": "/srv/ws/a.yml", "password": "hunter2", "env": [{ "API_KEY": { "x": "hunter2" }, "none_token": null }], "n": 1,
            } } }),
            json!({ "tool": { "status": "input_complete", "toolUseId": "tu_1", "name": "write_file", "input": {
                "path": "[root]/a.yml", "password": "[redacted]", "env": [{ "API_KEY": "[redacted]", "none_token": null }], "n": 1,
            } } }),
        ),
        (
            json!({ "permission": { "autoApproved": false, "toolName": "write_file", "toolUseId": "tu_1",
                "toolInput": { "path": "a.yml", "secret": "hunter2" } } }),
            json!({ "permission": { "autoApproved": false, "toolName": "write_file", "toolUseId": "tu_1",
                "toolInput": { "path": "a.yml", "secret": "[redacted]" } } }),
        ),
        (
            json!({ "tool": { "status": "completed", "toolUseId": "tu_1", "result": { "ok": true, "artifact": {
                "artifactId": "x", "filename": "vpc.yml", "byteSize": 39, "content": "c", "bytes": "b", "base64": "b", "raw": "r", "path": "/p",
            } } } }),
            json!({ "tool": { "status": "completed", "toolUseId": "tu_1", "name": "write_file", "result": { "ok": true, "artifact": {
                "artifactId": "x", "filename": "vpc.yml", "byteSize": 39,
            } } } }),
        ),
        // Its use is over: what is said under the id now is another's.
        (
            json!({ "tool": { "status": "failed", "toolUseId": "tu_1", "result": "no" } }),
            json!({ "tool": { "status": "failed", "toolUseId": "tu_1", "result": "no" } }),
        ),
        (
            json!({ "usage": { "inputTokens": 11, "outputTokens": 7, "totalTokens": 18 } }),
            json!({ "usage": { "inputTokens": 11, "outputTokens": 7, "totalTokens": 18 } }),
        ),
    ] {
        assert_eq!(shown(&mut turn, said), Some(expected));
    }
    assert!(turn.tools.is_empty());
}

#[test]
fn thinking_is_shown_as_far_as_the_profile_says() {
    let all = json!({
        "thinking": { "type": "raw_thinking", "text": "hm" },
        "tool": { "status": "started" },
        "permission": { "autoApproved": false },
        "usage": { "inputTokens": 1 },
    });
    for (types, left) in [
        (&BOTH[..], vec!["permission", "thinking", "tool", "usage"]),
        (&[Thinking::Raw][..], vec!["thinking", "usage"]),
        (&[Thinking::Tools][..], vec!["permission", "tool", "usage"]),
        (&[][..], vec!["usage"]),
    ] {
        let facts = shown(&mut projection(types), all.clone()).unwrap();
        let names: Vec<&String> = facts.as_object().unwrap().keys().collect();
        assert_eq!(names, left, "{types:?}");
    }
    // Nothing is left of a thought: there is no event, unless it says something else.
    let thought = json!({ "thinking": { "type": "raw_thinking", "text": "hm" } });
    assert_eq!(shown(&mut projection(&[]), thought.clone()), None);
    let mut waiting = status(thought.clone());
    if let Output::Status { class, .. } = &mut waiting {
        *class = Class::Waiting;
    }
    assert!(projection(&[]).output(&mut waiting));
    let mut other = status(thought);
    if let Output::Status { metadata, .. } = &mut other {
        metadata.get_or_insert_default().insert("theirs".to_owned(), json!(1));
    }
    assert!(projection(&[]).output(&mut other));
}

#[test]
fn texts_are_cut_by_letters_and_what_lies_deep_is_left_out() {
    let mut turn = projection(&BOTH);
    let long = "é".repeat(4_001);
    let cut = shown(
        &mut turn,
        json!({ "thinking": { "text": long }, "tool": { "result": ["x".repeat(4_000)] } }),
    )
    .unwrap();
    assert_eq!(cut["thinking"]["text"].as_str().unwrap().chars().count(), 4_000);
    assert_eq!(cut["tool"]["result"][0].as_str().unwrap().len(), 4_000);
    let deep = (0..40).fold(json!("bottom"), |inner, _| json!([inner]));
    let text = shown(&mut turn, json!({ "x": deep })).unwrap().to_string();
    assert!(!text.contains("bottom"), "{text}");
    assert_eq!(
        text,
        format!("{{\"x\":{}\"{DEEPER}\"{}}}", "[".repeat(31), "]".repeat(31))
    );
    let shallow = (0..30).fold(json!("bottom"), |inner, _| json!([inner]));
    assert_eq!(shown(&mut turn, json!({ "x": shallow })), Some(json!({ "x": shallow })));
}

#[test]
fn metadata_of_messages_artifacts_and_parts_too_and_other_keys_never() {
    let secret = || {
        Some(Metadata::from([
            ("iac_code".to_owned(), json!({ "token": "hunter2", "at": "/srv/ws" })),
            ("theirs".to_owned(), json!({ "token": "kept", "at": "/srv/ws" })),
        ]))
    };
    let expected = Some(Metadata::from([
        ("iac_code".to_owned(), json!({ "token": "[redacted]", "at": "[root]" })),
        ("theirs".to_owned(), json!({ "token": "kept", "at": "/srv/ws" })),
    ]));
    let part = || Part {
        metadata: secret(),
        ..Part::text("/srv/ws")
    };
    let mut turn = projection(&BOTH);
    let mut message = Message {
        metadata: secret(),
        ..Message::new(Role::Agent, vec![part()])
    };
    let mut metadata = secret();
    turn.last(Some(&mut message), &mut metadata);
    assert_eq!(
        (&metadata, &message.metadata, &message.parts[0].metadata),
        (&expected, &expected, &expected)
    );
    assert_eq!(
        message.parts[0].as_text(),
        Some("/srv/ws"),
        "what an agent says to people is its own"
    );
    let mut output = Output::Artifact {
        artifact: Artifact {
            artifact_id: "a".to_owned(),
            name: None,
            description: None,
            parts: vec![part()],
            metadata: secret(),
            extensions: None,
        },
        append: false,
        last_chunk: true,
        metadata: secret(),
    };
    assert!(turn.output(&mut output));
    let Output::Artifact { artifact, metadata, .. } = output else {
        panic!("no artifact")
    };
    assert_eq!(
        (&metadata, &artifact.metadata, &artifact.parts[0].metadata),
        (&expected, &expected, &expected)
    );
}

#[test]
fn what_is_projected_stays_as_it_is_when_it_is_projected_again_and_a_profile_without_a_key_projects_nothing() {
    let mut turn = projection(&BOTH);
    let said =
        json!({ "tool": { "toolUseId": "t", "input": { "password": 1, "at": "/srv/ws/x" }, "partialJson": "abc" } });
    let once = shown(&mut turn, said).unwrap();
    assert_eq!(shown(&mut turn, once.clone()), Some(once));
    for odd in [json!(1), json!("/srv/ws"), json!(["/srv/ws"]), json!(null)] {
        assert!(shown(&mut turn, odd).is_some());
    }
    assert!(Projection::of(&Profile::generic(), Paths::default()).is_none());
}
