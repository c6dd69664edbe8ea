//! `relevo call`: what it sends, what it prints, how it ends.

use std::net::TcpListener;

use serde_json::json;

use crate::command::{ended, printed, run, run_with, scratch, start};
use crate::scripted::events::{TASK, cursor, opening, status, task};
use crate::scripted::{Reply, Scripted, frame};

fn streamed(state: &str) -> Reply {
    Reply::Stream(vec![
        "retry: 1000\n\n".to_owned(),
        frame(&cursor(1), &opening()),
        frame(&cursor(2), &status("WORKING", "Hel")),
        ": keep-alive\n\n".to_owned(),
        frame(&cursor(3), &status("WORKING", "lo")),
        frame(&cursor(4), &status(state, "")),
    ])
}

#[test]
fn the_exit_code_says_how_the_turn_ended() {
    for (state, code) in [
        ("COMPLETED", 0),
        ("INPUT_REQUIRED", 0),
        ("AUTH_REQUIRED", 0),
        ("FAILED", 1),
        ("REJECTED", 1),
        ("CANCELED", 1),
    ] {
        let server = Scripted::start(vec![streamed(state)]);
        let call = run(&["call", "hi", "--stream", "--url", server.url()]).with(code);
        assert_eq!(call.stdout, "Hello\n", "{state}");
        let server = Scripted::start(vec![Reply::Result(json!({ "task": task(state, "Hello") }))]);
        let call = run(&["call", "hi", "--url", server.url()]).with(code);
        assert_eq!(call.stdout, "Hello\n", "{state}");
    }
}

#[test]
fn ids_and_state_are_on_standard_error_and_nothing_else_is_with_the_text() {
    let server = Scripted::start(vec![streamed("INPUT_REQUIRED")]);
    let call = run(&["call", "hi", "--stream", "--url", server.url()]).with(0);
    assert_eq!(call.noted("task"), TASK);
    assert_eq!(call.noted("context"), "c-1");
    assert_eq!(call.noted("state"), "input required");
}

#[test]
fn a_message_without_a_task_is_an_answer() {
    let message = json!({ "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "hi" }] } });
    let server = Scripted::start(vec![Reply::Result(message.clone())]);
    assert_eq!(run(&["call", "hi", "--url", server.url()]).with(0).stdout, "hi\n");
    let server = Scripted::start(vec![Reply::Stream(vec![frame("", &message)])]);
    assert_eq!(
        run(&["call", "hi", "--stream", "--url", server.url()]).with(0).stdout,
        "hi\n"
    );
}

#[test]
fn text_is_printed_as_it_arrives() {
    let frames = vec![
        frame(&cursor(1), &opening()),
        frame(&cursor(2), &status("WORKING", "first ")),
    ];
    let server = Scripted::start(vec![Reply::Open(frames)]);
    let call = start(&["call", "hi", "--stream", "--url", server.url()]);
    printed(&call, "first ");
    assert!(call.exit_status().is_none());
}

#[test]
fn every_request_names_the_version_and_the_interfaces_tenant() {
    let interface = json!({ "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t-1" });
    let server = Scripted::with_interface(vec![streamed("COMPLETED")], interface);
    let url = server.url();
    run(&[
        "call",
        "hi",
        "--stream",
        "--context-id",
        "c-1",
        "--task-id",
        "t",
        "--url",
        url,
    ])
    .with(0);
    let asked = server.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].header("a2a-version"), Some("1.0"));
    assert_eq!(asked[0].method(), "SendStreamingMessage");
    let params = &asked[0].body["params"];
    assert_eq!(params["tenant"], "t-1");
    assert_eq!(params["message"]["parts"], json!([{ "text": "hi" }]));
    assert_eq!(
        (&params["message"]["contextId"], &params["message"]["taskId"]),
        (&json!("c-1"), &json!("t"))
    );
    assert_eq!(params["message"]["role"], "ROLE_USER");
}

#[test]
fn a_card_that_names_no_address_means_the_one_it_was_found_at() {
    let interface = json!({ "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "url": "http://0.0.0.0:1/rpc" });
    let server = Scripted::with_interface(vec![streamed("COMPLETED")], interface);
    run(&["call", "hi", "--stream", "--url", server.url()]).with(0);
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn a_refusal_names_the_fields_that_are_wrong() {
    let error = json!({ "code": -32602, "message": "Invalid parameters", "data": [
        { "@type": "type.googleapis.com/google.rpc.BadRequest",
          "fieldViolations": [{ "field": "message.contextId", "description": "must be shorter" }] },
    ] });
    for stream in [&["--stream"][..], &[]] {
        let server = Scripted::start(vec![Reply::Error(200, error.clone())]);
        let args = [&["call", "hi", "--url", server.url()], stream].concat();
        let call = run(&args).with(1);
        assert!(
            call.stderr
                .contains("Invalid parameters (-32602)\n  message.contextId: must be shorter"),
            "{call:?}"
        );
    }
}

#[test]
fn a_server_that_is_not_there_or_is_none_is_unreachable() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://user:hunter2@{}", closed.local_addr().unwrap());
    drop(closed);
    let call = run(&["call", "hi", "--url", &address]).with(3);
    assert!(!call.stderr.contains("hunter2"), "{call:?}");

    let server = Scripted::start(vec![Reply::Status(502)]);
    run(&["call", "hi", "--url", server.url()]).with(3);
    let old = json!({ "protocolBinding": "JSONRPC", "protocolVersion": "0.3" });
    let server = Scripted::with_interface(vec![], old);
    let call = run(&["call", "hi", "--url", server.url()]).with(3);
    assert!(
        call.stderr.contains("lists no JSONRPC interface of version 1"),
        "{call:?}"
    );
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    run(&["call"]).with(2);
    run(&["call", "hi", "--url", "redis://h"]).with(2);
    run(&["call", "hi", "--timeout", "soon"]).with(2);
    run(&["task", "list", "--status", "running"]).with(2);
}

#[test]
fn the_exit_codes_are_in_the_help() {
    let help = run(&["call", "--help"]).with(0).stdout;
    for line in ["0  the turn ended well", "3  the server cannot be reached"] {
        assert!(help.contains(line), "{help}");
    }
}

#[test]
fn a_blocking_call_that_is_answered_too_early_is_followed() {
    let server = Scripted::start(vec![
        Reply::Result(json!({ "task": task("WORKING", "one ") })),
        Reply::Stream(vec![
            frame(&cursor(5), &json!({ "task": task("WORKING", "one two ") })),
            frame(&cursor(6), &status("COMPLETED", "three")),
        ]),
    ]);
    let call = run(&["call", "hi", "--url", server.url()]).with(0);
    assert_eq!(call.stdout, "one two three\n");
    assert_eq!(server.asked()[1].method(), "SubscribeToTask");
}

#[test]
fn a_call_that_takes_too_long_is_given_up() {
    let server = Scripted::start(vec![Reply::Open(vec![frame(&cursor(1), &opening())])]);
    let call = start(&["call", "hi", "--stream", "--timeout", "200ms", "--url", server.url()]);
    assert!(ended(&call).with(3).stderr.contains("given up after 200ms"));
}

#[test]
fn a_card_is_shown_to_people_and_to_machines() {
    let server = Scripted::start(vec![]);
    let card = run(&["card", "--url", server.url()]).with(0);
    assert!(card.stdout.contains("JSONRPC 1.0 at http://127.0.0.1"), "{card:?}");
    let card = run(&["card", "--json", "--url", server.url()]).with(0);
    let card: serde_json::Value = serde_json::from_str(&card.stdout).unwrap();
    assert_eq!(card["name"], "scripted");
}

#[test]
fn a_refused_message_is_no_success_though_its_task_waits_for_input() {
    let mut refused = task("INPUT_REQUIRED", "Message content is required.");
    refused["metadata"] = json!({ "urn:relevo:a2a:turn:v1": { "reason": "invalid_message" } });
    let server = Scripted::start(vec![Reply::Result(json!({ "task": refused }))]);
    let call = run(&["call", "hi", "--url", server.url()]).with(1);
    assert_eq!(call.noted("state"), "input required (invalid_message)");
}

#[test]
fn metadata_directory_and_extensions_go_with_the_message() {
    let server = Scripted::start(vec![streamed("COMPLETED")]);
    let url = server.url();
    let metadata = r#"{"tone": "dry", "iac_code": {"thinking": {"enabled": true}}}"#;
    let words = [
        "call",
        "hi",
        "--stream",
        "--url",
        url,
        "--metadata",
        metadata,
        "--cwd",
        "/srv/project",
        "--skill",
        "s",
    ];
    let extensions = [
        "--extension",
        "urn:example:a:v1",
        "--extension",
        "https://example.com/b",
    ];
    run(&[&words[..], &extensions[..]].concat()).with(0);
    let asked = &server.asked()[0];
    let expected = json!({ "tone": "dry", "iac_code": { "thinking": { "enabled": true }, "cwd": "/srv/project" },
        "urn:relevo:a2a:skill:v1": { "id": "s" } });
    assert_eq!(asked.body["params"]["message"]["metadata"], expected);
    assert_eq!(
        asked.header("a2a-extensions"),
        Some("urn:example:a:v1, https://example.com/b")
    );
}

#[test]
fn a_directory_named_from_here_is_sent_whole() {
    let server = Scripted::start(vec![streamed("COMPLETED")]);
    run(&["call", "hi", "--stream", "--url", server.url(), "--cwd", "below"]).with(0);
    let sent = server.asked()[0].body["params"]["message"]["metadata"]["iac_code"]["cwd"].clone();
    let sent = std::path::Path::new(sent.as_str().unwrap());
    assert!(sent.is_absolute() && sent.ends_with("below"), "{sent:?}");
}

#[test]
fn metadata_that_cannot_be_is_refused_before_anything_is_sent() {
    let server = Scripted::start(Vec::new());
    for (metadata, dir, rule) in [
        ("[1]", None, "must be a JSON object"),
        ("{", None, "must be a JSON object"),
        (r#"{"iac_code": 1}"#, Some("/a"), "iac_code must be an object"),
        (r#"{"iac_code": {"cwd": "/b"}}"#, Some("/a"), "which is there, too"),
    ] {
        let mut words = vec!["call", "hi", "--url", server.url(), "--metadata", metadata];
        words.extend(dir.iter().flat_map(|dir| ["--cwd", *dir]));
        let call = run(&words).with(2);
        assert!(call.stderr.contains(rule), "{metadata}: {}", call.stderr);
    }
    assert!(server.asked().is_empty());
}

#[test]
fn http_basic_needs_both_of_its_parts_and_no_token_beside_it() {
    let server = Scripted::start(vec![streamed("COMPLETED"), streamed("COMPLETED")]);
    let words = [
        "call",
        "hi",
        "--stream",
        "--url",
        server.url(),
        "--basic-username",
        "ada",
    ];
    assert!(run(&words).with(2).stderr.contains("HTTP Basic needs a password"));
    let password = [("RELEVO_BASIC_PASSWORD", "love"), ("RELEVO_TOKEN", "of something else")];
    run_with(&words, &password).with(0);
    run_with(
        &words[..5],
        &[
            ("IACCODE_A2A_BASIC_USERNAME", "ada"),
            ("IACCODE_A2A_BASIC_PASSWORD", "love"),
        ],
    )
    .with(0);
    for asked in server.asked() {
        assert_eq!(asked.header("authorization"), Some("Basic YWRhOmxvdmU="));
    }
    let both = [&words[..], &["--token-file", "/dev/null"]].concat();
    assert!(
        run_with(&both, &password)
            .with(2)
            .stderr
            .contains("two credentials for one header")
    );
}

#[test]
fn files_of_the_answer_are_saved_and_nothing_is_overwritten() {
    let folder = scratch();
    let dir = folder.path().join("files");
    let save = |parts: serde_json::Value, flags: &[&str]| {
        let mut whole = task("COMPLETED", "");
        whole["artifacts"] = json!([{ "artifactId": "a", "parts": parts }]);
        let first = if flags.is_empty() {
            Reply::Result(json!({ "task": whole.clone() }))
        } else {
            streamed("COMPLETED")
        };
        let server = Scripted::start(vec![first, Reply::Result(whole)]);
        let mut args = vec!["call", "hi", "--url", server.url(), "--save", dir.to_str().unwrap()];
        args.extend(flags);
        run(&args)
    };
    let parts = json!([
        { "raw": "aGk=", "filename": "../out/plan.pdf" },
        { "text": "one", "filename": "one.txt" },
        { "text": "not a file" },
        { "url": "https://h/x", "filename": "elsewhere" }
    ]);
    for flags in [&[][..], &["--stream"]] {
        let saved = save(parts.clone(), flags).with(0);
        assert!(saved.stderr.contains("files/plan.pdf"), "{saved:?}");
        assert_eq!(std::fs::read(dir.join("plan.pdf")).unwrap(), b"hi");
        assert_eq!(std::fs::read(dir.join("one.txt")).unwrap(), b"one");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
    let refused = save(json!([{ "text": "two", "filename": "one.txt" }]), &[]).with(1);
    assert!(refused.stderr.contains("one.txt is there already"), "{refused:?}");
    assert_eq!(std::fs::read(dir.join("one.txt")).unwrap(), b"one");
    std::os::unix::fs::symlink(folder.path().join("target"), dir.join("link")).unwrap();
    save(json!([{ "text": "two", "filename": "link" }]), &[]).with(1);
    assert!(!folder.path().join("target").exists());
    let refused = save(json!([{ "text": "two", "filename": ".." }]), &[]).with(1);
    assert!(refused.stderr.contains("no name of a file"), "{refused:?}");
}
