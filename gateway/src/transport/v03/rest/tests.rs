use serde_json::json;

use super::*;

fn read(method: &str, body: Value) -> Value {
    let Value::Object(fields) = body else {
        panic!("not an object")
    };
    Value::Object(params(method, fields).unwrap())
}

#[test]
fn what_is_given_under_both_names_is_refused_with_both() {
    let part = json!([{ "text": "a" }]);
    for (body, field, other) in [
        (
            json!({ "message": { "content": part, "parts": part } }),
            "message.content",
            "parts",
        ),
        (
            json!({ "request": { "content": part, "parts": [] } }),
            "message.content",
            "parts",
        ),
        (json!({ "request": {}, "message": {} }), "request", "message"),
    ] {
        for method in [methods::SEND_MESSAGE, methods::SEND_STREAMING_MESSAGE] {
            let Value::Object(fields) = body.clone() else {
                panic!("not an object")
            };
            let error = params(method, fields).unwrap_err();
            let ApiError::InvalidParams(found) = &error else {
                panic!("{error:?}")
            };
            assert_eq!(found[0].field, field);
            assert!(found[0].description.ends_with(&format!("and as {other}")), "{found:?}");
        }
    }
    let once = read(
        methods::SEND_MESSAGE,
        json!({ "message": { "content": part, "parts": null } }),
    );
    assert_eq!(once["message"]["parts"], part);
    read(
        methods::SEND_MESSAGE,
        json!({ "message": { "content": null, "parts": part } }),
    );
}

#[test]
fn a_request_is_read_as_one_of_1_0_in_both_spellings() {
    let camel = json!({
        "tenant": "x",
        "message": { "role": "ROLE_USER", "messageId": "m", "contextId": "c", "content": [
            { "text": "hi", "metadata": { "a": 1 } },
            { "data": { "data": { "b": 2 } } },
            { "file": { "fileWithBytes": "AA==", "mimeType": "image/png", "name": "a.png" } },
            { "file": { "fileWithUri": "https://example.com/a" } },
        ] },
        "configuration": { "blocking": true, "historyLength": 3, "acceptedOutputModes": ["text/plain"] },
        "metadata": { "k": "v" },
    });
    let new = json!({
        "message": { "role": "ROLE_USER", "messageId": "m", "contextId": "c", "parts": [
            { "text": "hi", "metadata": { "a": 1 } },
            { "data": { "b": 2 } },
            { "raw": "AA==", "mediaType": "image/png", "filename": "a.png" },
            { "url": "https://example.com/a" },
        ] },
        "configuration": { "returnImmediately": false, "historyLength": 3, "acceptedOutputModes": ["text/plain"] },
        "metadata": { "k": "v" },
    });
    assert_eq!(read(methods::SEND_MESSAGE, camel), new);
    let snake = json!({
        "request": { "content": [
            { "file": { "file_with_bytes": "AA==", "mime_type": "image/png" } },
            { "file": { "file_with_uri": "u" } },
        ] },
        "configuration": { "push_notification": { "url": "u" } },
    });
    let read = read(methods::SEND_STREAMING_MESSAGE, snake);
    assert_eq!(
        read["message"]["parts"],
        json!([{ "raw": "AA==", "mediaType": "image/png" }, { "url": "u" }])
    );
    assert_eq!(
        read["configuration"]["taskPushNotificationConfig"],
        json!({ "url": "u" })
    );
}

#[test]
fn what_a_configuration_leaves_out_is_false_and_zero() {
    let at_once = |configuration: Value| {
        let read = read(methods::SEND_MESSAGE, json!({ "configuration": configuration }));
        read["configuration"]["returnImmediately"].clone()
    };
    assert_eq!(at_once(json!({})), true);
    assert_eq!(at_once(json!({ "blocking": false })), true);
    assert_eq!(at_once(json!({ "blocking": true })), false);
    assert_eq!(at_once(json!({ "blocking": 1 })), 1, "left to the reader to refuse");
    let none = read(methods::SEND_MESSAGE, json!({ "message": {} }));
    assert!(none.get("configuration").is_none());
    for unsaid in [json!({ "historyLength": 0 }), json!({ "history_length": "0" })] {
        let read = read(methods::SEND_MESSAGE, json!({ "configuration": unsaid }));
        assert_eq!(read["configuration"], json!({ "returnImmediately": true }));
    }
}

#[test]
fn shapes_of_other_versions_mean_nothing() {
    let other = read(
        methods::SEND_MESSAGE,
        json!({ "message": { "parts": [{ "text": "x" }] } }),
    );
    assert_eq!(other, json!({ "message": {} }));
    let odd = json!({ "message": { "content": [
        { "raw": "AA==", "url": "u", "text": "y" }, { "data": [1] }, { "file": 7 }, 3,
    ] } });
    assert_eq!(
        read(methods::SEND_MESSAGE, odd)["message"],
        json!({ "parts": [{ "text": "y" }, {}, {}, 3] })
    );
    let cancelled = read(methods::LIST_TASKS, json!({ "status": "TASK_STATE_CANCELLED" }));
    assert_eq!(cancelled["status"], "TASK_STATE_CANCELED");
}

#[test]
fn a_push_config_is_flat_whatever_it_came_in() {
    let config = json!({ "id": "c", "url": "u", "token": "t",
        "authentication": { "schemes": ["Bearer"], "credentials": "x" } });
    let flat = json!({ "id": "c", "url": "u", "token": "t",
        "authentication": { "scheme": "Bearer", "credentials": "x" } });
    let inner = json!({ "name": "tasks/t/pushNotificationConfigs/c", "pushNotificationConfig": config });
    let whole = json!({ "parent": "tasks/t", "config_id": "c", "config": { "push_notification_config": config } });
    for body in [inner, whole] {
        assert_eq!(read(methods::CREATE_PUSH_CONFIG, body), flat);
    }
}

#[test]
fn a_task_is_shown_as_one_of_0_3() {
    let message = json!({ "messageId": "m", "role": "ROLE_AGENT", "referenceTaskIds": ["r"],
        "parts": [{ "text": "x", "mediaType": "text/plain" }, { "data": [1] }] });
    let old_message = json!({ "messageId": "m", "role": "ROLE_AGENT",
        "content": [{ "text": "x" }, { "data": { "data": { "value": [1] } } }] });
    let task = json!({
        "id": "t", "contextId": "c",
        "status": { "state": "TASK_STATE_CANCELED", "message": message, "timestamp": "2026-01-01T00:00:00.000Z" },
        "artifacts": [{ "artifactId": "a", "parts": [{ "raw": "AA==", "mediaType": "x/y", "filename": "f" }] }],
        "history": [message],
        "metadata": { "parts": [{ "raw": 1 }] },
    });
    let old = json!({
        "id": "t", "contextId": "c",
        "status": { "state": "TASK_STATE_CANCELLED", "message": old_message, "timestamp": "2026-01-01T00:00:00.000Z" },
        "artifacts": [{ "artifactId": "a", "parts": [
            { "file": { "fileWithBytes": "AA==", "mimeType": "x/y", "name": "f" } },
        ] }],
        "history": [old_message],
        "metadata": { "parts": [{ "raw": 1 }] },
    });
    assert_eq!(result(task.clone(), true), old);
    assert_eq!(result(json!({ "task": task }), false), json!({ "task": old }));
    assert_eq!(
        result(json!({ "message": message }), true),
        json!({ "message": old_message })
    );
    let page = json!({ "tasks": [task], "nextPageToken": "", "pageSize": 1, "totalSize": 1 });
    let old_page = json!({ "tasks": [old], "nextPageToken": "", "pageSize": 1, "totalSize": 1 });
    assert_eq!(result(page, true), old_page);
}

#[test]
fn events_keep_their_wrapper_and_the_last_status_says_so() {
    for last in [false, true] {
        let event = json!({ "statusUpdate": { "taskId": "t", "status": { "state": "TASK_STATE_WORKING" } } });
        let old =
            json!({ "statusUpdate": { "taskId": "t", "status": { "state": "TASK_STATE_WORKING" }, "final": last } });
        assert_eq!(result(event, last), old);
    }
    let event = json!({ "artifactUpdate": { "append": true, "artifact": { "parts": [{ "url": "u" }] } } });
    assert_eq!(
        result(event, false),
        json!({ "artifactUpdate": { "append": true,
            "artifact": { "parts": [{ "file": { "fileWithUri": "u" } }] } } })
    );
}

#[test]
fn an_error_is_that_of_json_rpc_by_itself() {
    let error = ApiError::invalid("message.parts[0]", "must be an object");
    let body: Value = serde_json::from_slice(&error_body(&error)).unwrap();
    assert_eq!(body["code"], -32602);
    assert_eq!(
        body["message"],
        "Invalid parameters: message.content[0]: must be an object"
    );
    assert_eq!(body["data"][1]["fieldViolations"][0]["field"], "message.content[0]");
}
