//! Hostile parameters: every reader answers with a request or with the fields that are wrong, in both versions' shapes.

use relevo_testkit::hostile::json;

use super::*;
use crate::error::ApiError;
use crate::request::{ExtendedCard, PushConfig};
use crate::transport::dispatch::OPERATIONS;
use crate::transport::v03;

const NAMES: &[&str] = &[
    "message",
    "request",
    "configuration",
    "metadata",
    "tenant",
    "parts",
    "content",
    "text",
    "raw",
    "url",
    "data",
    "file",
    "fileWithBytes",
    "file_with_uri",
    "bytes",
    "uri",
    "mimeType",
    "name",
    "filename",
    "mediaType",
    "media_type",
    "kind",
    "role",
    "messageId",
    "message_id",
    "contextId",
    "context_id",
    "taskId",
    "task_id",
    "id",
    "historyLength",
    "blocking",
    "returnImmediately",
    "acceptedOutputModes",
    "taskPushNotificationConfig",
    "pushNotificationConfig",
    "push_notification",
    "authentication",
    "schemes",
    "extensions",
    "referenceTaskIds",
    "status",
    "pageSize",
    "pageToken",
    "statusTimestampAfter",
    "includeArtifacts",
    "config",
];
const TEXTS: &[&str] = &[
    "",
    "m",
    "ROLE_USER",
    "ROLE_AGENT",
    "user",
    "text",
    "file",
    "data",
    "AAEC",
    "AA==",
    "-_8",
    "https://example.com/",
    "TASK_STATE_WORKING",
    "TASK_STATE_CANCELLED",
    "2026-11-30T10:39:06.380Z",
    "01a22c0a-cb27-7fff-b5e2-511366f7343c",
    "12",
    "-1",
    "1e9",
    "a b",
    "\u{0}",
    "\u{feff}",
];

/// Reads parameters as every operation; an error says which field is wrong and is not larger than it may be.
fn read(params: &Value) -> Result<(), TestCaseError> {
    let params = || params.clone();
    for read in [
        SendMessage::parse(params(), &SecretKeys::new(&["secret".to_owned()])).map(drop),
        GetTask::parse(params()).map(drop),
        ListTasks::parse(params()).map(drop),
        CancelTask::parse(params()).map(drop),
        SubscribeToTask::parse(params()).map(drop),
        PushConfig::parse(params()).map(drop),
        ExtendedCard::parse(params()).map(drop),
    ] {
        let Err(error) = read else { continue };
        prop_assert!(
            matches!(&error, ApiError::InvalidParams(fields) if !fields.is_empty()),
            "{error:?}"
        );
        prop_assert!(error.to_json().to_string().len() < 64 << 10);
        let old: Value = serde_json::from_slice(&v03::rest::error_body(&error)).unwrap();
        prop_assert_eq!(&old["code"], -32602);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parameters_of_any_form_are_read_or_refused_by_field(params in json(NAMES, TEXTS)) {
        read(&params)?;
        for method in OPERATIONS {
            read(&v03::rpc::params(method, params.clone()))?;
            if let Value::Object(fields) = &params
                && let Ok(params) = v03::rest::params(method, fields.clone())
            {
                read(&Value::Object(params))?;
            }
        }
    }

    #[test]
    fn answers_of_any_form_are_translated_for_0_3(answer in json(NAMES, TEXTS), last in any::<bool>()) {
        let printed = answer.to_string().into_bytes();
        for old in [v03::rpc::printed(&printed, last), v03::rest::printed(&printed, last)] {
            serde_json::from_slice::<Value>(&old).unwrap();
        }
    }
}
