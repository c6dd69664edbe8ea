use serde_json::json;

use super::*;

#[test]
fn a_request_is_read_as_one_of_1_0() {
    let old = json!({
        "tenant": "x",
        "message": { "kind": "message", "role": "user", "messageId": "m", "contextId": "c", "parts": [
            { "kind": "text", "text": "hi", "metadata": { "a": 1 } },
            { "kind": "data", "data": { "b": 2 } },
            { "kind": "file", "file": { "bytes": "AA==", "mimeType": "image/png", "name": "a.png" } },
            { "kind": "file", "file": { "uri": "https://example.com/a" } },
        ] },
        "configuration": { "blocking": false, "historyLength": 3, "acceptedOutputModes": ["text/plain"] },
        "metadata": { "k": "v" },
    });
    let new = json!({
        "message": { "role": "ROLE_USER", "messageId": "m", "contextId": "c", "parts": [
            { "text": "hi", "metadata": { "a": 1 } },
            { "data": { "b": 2 } },
            { "raw": "AA==", "mediaType": "image/png", "filename": "a.png" },
            { "url": "https://example.com/a" },
        ] },
        "configuration": { "returnImmediately": true, "historyLength": 3, "acceptedOutputModes": ["text/plain"] },
        "metadata": { "k": "v" },
    });
    assert_eq!(params(methods::SEND_MESSAGE, old), new);
    let push = json!({ "message": {}, "configuration": { "pushNotificationConfig": { "url": "u" } } });
    let read = params(methods::SEND_MESSAGE, push);
    assert_eq!(read["configuration"]["taskPushNotificationConfig"]["url"], "u");
}

#[test]
fn what_is_no_object_is_left_to_the_reader() {
    for odd in [
        json!(null),
        json!([1]),
        json!("x"),
        json!({ "message": 1, "configuration": [] }),
    ] {
        assert_eq!(params(methods::SEND_MESSAGE, odd.clone()), odd);
    }
    let odd = json!({ "message": { "parts": [1, { "file": 7 }], "role": 3 } });
    assert_eq!(
        params(methods::SEND_MESSAGE, odd)["message"],
        json!({ "parts": [1, {}], "role": 3 })
    );
}

#[test]
fn a_task_is_shown_as_one_of_0_3() {
    let message = json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "x" }, { "data": [1] }] });
    let old_message = json!({ "kind": "message", "messageId": "m", "role": "agent", "parts": [
        { "kind": "text", "text": "x" }, { "kind": "data", "data": { "value": [1] } },
    ] });
    let task = json!({
        "id": "t", "contextId": "c",
        "status": { "state": "TASK_STATE_INPUT_REQUIRED", "message": message, "timestamp": "2026-01-01T00:00:00.000Z" },
        "artifacts": [{ "artifactId": "a", "parts": [{ "raw": "AA==", "mediaType": "x/y", "filename": "f" }] }],
        "history": [message],
    });
    let old = json!({
        "kind": "task", "id": "t", "contextId": "c",
        "status": { "state": "input-required", "message": old_message, "timestamp": "2026-01-01T00:00:00.000Z" },
        "artifacts": [{ "artifactId": "a", "parts": [
            { "kind": "file", "file": { "bytes": "AA==", "mimeType": "x/y", "name": "f" } },
        ] }],
        "history": [old_message],
    });
    assert_eq!(result(task.clone(), true), old);
    assert_eq!(result(json!({ "task": task }), false), old);
    assert_eq!(result(json!({ "message": message }), true), old_message);
}

#[test]
fn the_last_status_of_a_stream_says_so() {
    for (state, old) in [
        ("TASK_STATE_SUBMITTED", "submitted"),
        ("TASK_STATE_WORKING", "working"),
        ("TASK_STATE_AUTH_REQUIRED", "auth-required"),
        ("TASK_STATE_INPUT_REQUIRED", "input-required"),
        ("TASK_STATE_CANCELED", "canceled"),
        ("TASK_STATE_UNSPECIFIED", "unknown"),
    ] {
        for last in [false, true] {
            let event = json!({ "statusUpdate": { "taskId": "t", "contextId": "c", "status": { "state": state } } });
            let expected = json!({
                "kind": "status-update", "taskId": "t", "contextId": "c", "status": { "state": old }, "final": last,
            });
            assert_eq!(result(event, last), expected);
        }
    }
    let event = json!({ "artifactUpdate": { "taskId": "t", "contextId": "c", "append": true,
        "artifact": { "artifactId": "a", "parts": [{ "url": "u" }] } } });
    assert_eq!(
        result(event, false),
        json!({ "kind": "artifact-update", "taskId": "t", "contextId": "c", "append": true,
            "artifact": { "artifactId": "a", "parts": [{ "kind": "file", "file": { "uri": "u" } }] } })
    );
}
