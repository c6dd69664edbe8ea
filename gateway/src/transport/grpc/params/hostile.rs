//! Hostile messages of gRPC: what can be decoded becomes parameters that every reader takes or refuses by field.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message as _;

use super::*;
use crate::error::ApiError;
use crate::request::{CancelTask, GetTask, ListTasks, SecretKeys, SendMessage, SubscribeToTask};

fn value() -> impl Strategy<Value = prost_types::Value> {
    let leaf = prop_oneof![
        Just(None),
        any::<i32>().prop_map(|null| Some(Kind::NullValue(null))),
        any::<bool>().prop_map(|flag| Some(Kind::BoolValue(flag))),
        prop_oneof![any::<f64>(), Just(f64::NAN), Just(f64::INFINITY)]
            .prop_map(|number| Some(Kind::NumberValue(number))),
        any::<String>().prop_map(|text| Some(Kind::StringValue(text))),
    ];
    let leaf = leaf.prop_map(|kind| prost_types::Value { kind });
    leaf.prop_recursive(6, 32, 4, |inner| {
        let list = vec(inner.clone(), 0..4).prop_map(|values| Kind::ListValue(prost_types::ListValue { values }));
        let fields = btree_map(any::<String>(), inner, 0..4).prop_map(|fields| Kind::StructValue(Struct { fields }));
        prop_oneof![list, fields].prop_map(|kind| prost_types::Value { kind: Some(kind) })
    })
}

fn metadata() -> impl Strategy<Value = Option<Struct>> {
    let name = prop_oneof!["[a-z_.]{0,12}", any::<String>()];
    option::of(btree_map(name, value(), 0..3).prop_map(|fields| Struct { fields }))
}

fn part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        any::<String>().prop_map(Content::Text),
        any::<Vec<u8>>().prop_map(Content::Raw),
        any::<String>().prop_map(Content::Url),
        value().prop_map(Content::Data),
    ];
    (option::of(content), any::<String>(), any::<String>(), metadata()).prop_map(
        |(content, filename, media_type, metadata)| Part {
            metadata,
            filename,
            media_type,
            content,
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let ids = (any::<String>(), any::<String>(), any::<String>());
    let names = || vec(any::<String>(), 0..3);
    let role = prop_oneof![0..4, any::<i32>()];
    (ids, role, vec(part(), 0..4), metadata(), names(), names()).prop_map(
        |((message_id, context_id, task_id), role, parts, metadata, extensions, reference_task_ids)| Message {
            message_id,
            context_id,
            task_id,
            role,
            parts,
            metadata,
            extensions,
            reference_task_ids,
        },
    )
}

/// A request as its sender encodes it.
fn encoded() -> impl Strategy<Value = Vec<u8>> {
    let send = (any::<String>(), option::of(message()), metadata()).prop_map(|(tenant, message, metadata)| {
        let sent = SendMessageRequest {
            tenant,
            message,
            metadata,
            ..SendMessageRequest::default()
        };
        sent.encode_to_vec()
    });
    let time = option::of((any::<i64>(), any::<i32>()).prop_map(|(seconds, nanos)| Timestamp { seconds, nanos }));
    let list = (any::<String>(), any::<i32>(), option::of(any::<i32>()), time).prop_map(
        |(context_id, status, page_size, status_timestamp_after)| {
            let list = ListTasksRequest {
                context_id,
                status,
                page_size,
                status_timestamp_after,
                ..ListTasksRequest::default()
            };
            list.encode_to_vec()
        },
    );
    prop_oneof![3 => send, 1 => list, 1 => vec(any::<u8>(), 0..64)]
}

/// Reads what `bytes` say as one message, by every reader.
fn read<T: prost::Message + Default + Params>(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(message) = T::decode(bytes) else {
        return Ok(());
    };
    let mut violations = Violations::default();
    let params = message.params(&mut violations);
    let refused = violations.into_result(()).err();
    let params = || params.clone();
    for error in [
        refused,
        SendMessage::parse(params(), &SecretKeys::new(&["secret".to_owned()])).err(),
        GetTask::parse(params()).err(),
        ListTasks::parse(params()).err(),
        CancelTask::parse(params()).err(),
        SubscribeToTask::parse(params()).err(),
    ] {
        let Some(error) = error else { continue };
        prop_assert!(
            matches!(&error, ApiError::InvalidParams(fields) if !fields.is_empty()),
            "{error:?}"
        );
        let size = error
            .to_grpc(relevo_shared::platform::config::Statuses::Current)
            .details()
            .len();
        prop_assert!(size < 64 << 10, "{size} bytes");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_of_any_form_are_read_or_refused_by_field(
        mut bytes in encoded(),
        damage in vec((any::<Index>(), any::<u8>()), 0..4),
    ) {
        for (at, byte) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        read::<SendMessageRequest>(&bytes)?;
        read::<GetTaskRequest>(&bytes)?;
        read::<ListTasksRequest>(&bytes)?;
        read::<CancelTaskRequest>(&bytes)?;
        read::<SubscribeToTaskRequest>(&bytes)?;
    }
}
