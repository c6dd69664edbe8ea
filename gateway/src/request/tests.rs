//! Both ways through ProtoJSON, against the types that are generated from the proto file: every request that they print is
//! read alike, in all the spellings that ProtoJSON allows, and every reply and event that is printed here is read by them.

use std::collections::HashMap;

use a2a::{
    Artifact, CancelTaskRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse, Message, Part, PartContent, Role,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task,
    TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use a2a_pb::protojson_conv::{ProtoJsonPayload, from_value, to_value};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use chrono::DateTime;
use proptest::collection::{hash_map, vec};
use proptest::option;
use proptest::prelude::*;
use relevo_shared::domain::wire::{self, Wire};
use relevo_shared::store::HistoryLength;
use serde::Serialize;
use serde_json::{Number, Value, json};

use super::*;

mod hostile;
mod others;

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        // On gRPC all numbers are doubles.
        any::<f64>().prop_map(|number| Number::from_f64(number).map_or(Value::Null, Value::Number)),
        any::<String>().prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            hash_map(any::<String>(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Unset or with something in it: an empty object says the same as none.
fn metadata() -> impl Strategy<Value = Option<HashMap<String, Value>>> {
    option::of(hash_map(any::<String>(), json_value(), 1..4))
}

/// A text whose empty value is the same as none.
fn optional_text() -> impl Strategy<Value = Option<String>> {
    option::of(any::<String>().prop_filter("empty", |text| !text.is_empty()))
}

fn names() -> impl Strategy<Value = Option<Vec<String>>> {
    option::of(vec(any::<String>(), 1..4))
}

fn part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        any::<String>().prop_map(PartContent::Text),
        any::<Vec<u8>>().prop_map(PartContent::Raw),
        "https?://[a-z]{1,8}/.{0,8}".prop_map(PartContent::Url),
        // The generated reader loses a null here; ours keeps it (message.rs).
        json_value()
            .prop_filter("null", |value| !value.is_null())
            .prop_map(PartContent::Data),
    ];
    (content, optional_text(), optional_text(), metadata()).prop_map(|(content, filename, media_type, metadata)| Part {
        content,
        filename,
        media_type,
        metadata,
    })
}

fn message() -> impl Strategy<Value = Message> {
    (
        "[!-~]{1,40}",
        option::of("[A-Za-z0-9_.:-]{1,40}"),
        optional_text(),
        vec(part(), 1..4),
        metadata(),
        names(),
        names(),
    )
        .prop_map(
            |(message_id, context_id, task_id, parts, metadata, extensions, reference_task_ids)| Message {
                message_id,
                context_id,
                task_id,
                role: Role::User,
                parts,
                metadata,
                extensions,
                reference_task_ids,
            },
        )
}

/// One in an answer, which both sides may have said.
fn told() -> impl Strategy<Value = Message> {
    (message(), any::<bool>()).prop_map(|(message, by_agent)| Message {
        role: if by_agent { Role::Agent } else { Role::User },
        ..message
    })
}

fn send_request() -> impl Strategy<Value = SendMessageRequest> {
    let configuration = (names(), option::of(0..1_000), option::of(any::<bool>())).prop_map(
        |(accepted_output_modes, history_length, return_immediately)| SendMessageConfiguration {
            accepted_output_modes,
            task_push_notification_config: None,
            history_length,
            return_immediately,
        },
    );
    let tenant = option::of("[a-z]{1,9}");
    (message(), option::of(configuration), metadata(), tenant).prop_map(|(message, configuration, metadata, tenant)| {
        SendMessageRequest {
            message,
            configuration,
            metadata,
            tenant,
        }
    })
}

fn state() -> impl Strategy<Value = TaskState> {
    proptest::sample::select(vec![
        TaskState::Unspecified,
        TaskState::Submitted,
        TaskState::Working,
        TaskState::Completed,
        TaskState::Failed,
        TaskState::Canceled,
        TaskState::InputRequired,
        TaskState::Rejected,
        TaskState::AuthRequired,
    ])
}

fn status() -> impl Strategy<Value = TaskStatus> {
    let time = option::of(-62_135_596_800_000..253_402_300_799_999_i64);
    (state(), option::of(told()), time).prop_map(|(state, message, ms)| TaskStatus {
        state,
        message,
        timestamp: ms.and_then(DateTime::from_timestamp_millis),
    })
}

fn artifact() -> impl Strategy<Value = Artifact> {
    let texts = (any::<String>(), optional_text(), optional_text());
    (texts, vec(part(), 0..3), metadata(), names()).prop_map(
        |((artifact_id, name, description), parts, metadata, extensions)| Artifact {
            artifact_id,
            name,
            description,
            parts,
            metadata,
            extensions,
        },
    )
}

fn task() -> impl Strategy<Value = Task> {
    let lists = (option::of(vec(artifact(), 0..2)), option::of(vec(told(), 0..2)));
    (any::<String>(), any::<String>(), status(), lists, metadata()).prop_map(
        |(id, context_id, status, (artifacts, history), metadata)| Task {
            id,
            context_id,
            status,
            artifacts,
            history,
            metadata,
        },
    )
}

fn event() -> impl Strategy<Value = StreamResponse> {
    let ids = || (any::<String>(), any::<String>(), metadata());
    prop_oneof![
        task().prop_map(StreamResponse::Task),
        told().prop_map(StreamResponse::Message),
        (ids(), status()).prop_map(|((task_id, context_id, metadata), status)| {
            StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
                task_id,
                context_id,
                status,
                metadata,
            })
        }),
        (ids(), artifact(), option::of(any::<bool>()), option::of(any::<bool>())).prop_map(
            |((task_id, context_id, metadata), artifact, append, last_chunk)| {
                StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
                    task_id,
                    context_id,
                    artifact,
                    append,
                    last_chunk,
                    metadata,
                })
            }
        ),
    ]
}

/// Spells a request as other printers of ProtoJSON may.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
struct Spelling {
    /// Names as in the proto file.
    snake: bool,
    /// Enum values by their numbers.
    numbers: bool,
    /// Base64 for URLs, without padding.
    url_safe: bool,
    /// int32 as text.
    texts: bool,
    /// null for what is unset, and fields that nobody knows.
    noise: bool,
}

fn spelling() -> impl Strategy<Value = Spelling> {
    any::<[bool; 5]>().prop_map(|[snake, numbers, url_safe, texts, noise]| Spelling {
        snake,
        numbers,
        url_safe,
        texts,
        noise,
    })
}

impl Spelling {
    fn respell(self, value: Value) -> Value {
        match value {
            Value::Object(members) => {
                let mut spelled: serde_json::Map<String, Value> = members
                    .into_iter()
                    .map(|(name, value)| {
                        let value = self.member(&name, value);
                        (if self.snake { snake(&name) } else { name }, value)
                    })
                    .collect();
                if self.noise {
                    for name in [
                        "metadata",
                        "taskId",
                        "filename",
                        "historyLength",
                        "tenant",
                        "status",
                        "pageToken",
                    ] {
                        let given = spelled.contains_key(name) || spelled.contains_key(&snake(name));
                        if !given {
                            spelled.insert(name.to_owned(), Value::Null);
                        }
                    }
                    spelled.insert("fromTheFuture".to_owned(), json!({ "x": [1, null] }));
                }
                Value::Object(spelled)
            }
            Value::Array(items) => items.into_iter().map(|item| self.respell(item)).collect(),
            other => other,
        }
    }

    fn member(self, name: &str, value: Value) -> Value {
        match (name, &value) {
            ("metadata" | "data", _) => value,
            ("role", Value::String(role)) if self.numbers => json!(if role == "ROLE_AGENT" { 2 } else { 1 }),
            ("status", Value::String(name)) if self.numbers => {
                let state = a2a_pb::TaskState::from_str_name(name).unwrap();
                json!(i32::from(state))
            }
            ("raw", Value::String(text)) if self.url_safe => {
                json!(URL_SAFE_NO_PAD.encode(STANDARD.decode(text).unwrap()))
            }
            ("historyLength" | "pageSize", Value::Number(number)) if self.texts => json!(number.to_string()),
            _ => self.respell(value),
        }
    }
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// As the generated types print it, spelled otherwise.
fn canonical<T: ProtoJsonPayload>(request: &T, spelling: Spelling) -> Value {
    spelling.respell(to_value(request).unwrap())
}

fn length(wanted: Option<i32>, unset: HistoryLength) -> HistoryLength {
    wanted.map_or(unset, |length| HistoryLength::Latest(u32::try_from(length).unwrap()))
}

/// What is printed here is read by the generated types as the same value.
fn read_back<T>(value: &T) -> Result<(), TestCaseError>
where
    T: ProtoJsonPayload,
    T::Proto: PartialEq,
    for<'a> Wire<'a, T>: Serialize,
{
    read_back_from(value, &wire::to_vec(value))
}

fn read_back_from<T>(value: &T, printed: &[u8]) -> Result<(), TestCaseError>
where
    T: ProtoJsonPayload,
    T::Proto: PartialEq,
{
    let printed: Value = serde_json::from_slice(printed).unwrap();
    let read: T = from_value(printed.clone()).map_err(|error| TestCaseError::fail(format!("{error}: {printed}")))?;
    prop_assert!(T::to_proto(&read) == T::to_proto(value), "{}", printed);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_send_is_read_alike_in_every_spelling(request in send_request(), spelling in spelling()) {
        let json = canonical(&request, spelling);
        let read = SendMessage::parse(json.clone(), &SecretKeys::new(&[]))
            .map_err(|error| TestCaseError::fail(format!("{error:?}: {json}")))?;
        prop_assert_eq!(read.message, request.message);
        prop_assert_eq!(read.tenant, request.tenant.unwrap_or_default());
        prop_assert_eq!(read.metadata, request.metadata.unwrap_or_default().into_iter().collect());
        let configuration = request.configuration;
        let modes = configuration.as_ref().and_then(|c| c.accepted_output_modes.clone());
        prop_assert_eq!(read.accepted_output_modes, modes.unwrap_or_default());
        let at_once = configuration.as_ref().and_then(|c| c.return_immediately);
        prop_assert_eq!(read.return_immediately, at_once.unwrap_or(false));
        let history = configuration.as_ref().and_then(|c| c.history_length);
        prop_assert_eq!(read.history, length(history, HistoryLength::All));
    }

    #[test]
    fn requests_about_tasks_are_read_alike_in_every_spelling(
        id in "\\PC{1,40}",
        tenant in option::of("[a-z]{1,9}"),
        history_length in option::of(0..1_000),
        spelling in spelling(),
    ) {
        let expected = tenant.clone().unwrap_or_default();
        let get = GetTaskRequest { id: id.clone(), history_length, tenant: tenant.clone() };
        let read = GetTask::parse(canonical(&get, spelling)).unwrap();
        let history = length(history_length, HistoryLength::All);
        prop_assert_eq!(read, GetTask { tenant: expected.clone(), id: id.clone(), history });
        let cancel = CancelTaskRequest { id: id.clone(), metadata: None, tenant: tenant.clone() };
        let read = CancelTask::parse(canonical(&cancel, spelling)).unwrap();
        prop_assert_eq!(read, CancelTask { tenant: expected.clone(), id: id.clone() });
        let subscribe = SubscribeToTaskRequest { id: id.clone(), tenant };
        let read = SubscribeToTask::parse(canonical(&subscribe, spelling)).unwrap();
        prop_assert_eq!(read, SubscribeToTask { tenant: expected, id });
    }

    #[test]
    fn a_listing_is_read_alike_in_every_spelling(
        context_id in option::of("[A-Za-z0-9_.:-]{1,40}"),
        state in option::of(state()),
        page_size in option::of(1..=100),
        page_token in optional_text(),
        history_length in option::of(0..1_000),
        include_artifacts in option::of(any::<bool>()),
        since in option::of(-62_135_596_800_000..253_402_300_799_999_i64),
        spelling in spelling(),
    ) {
        let list = ListTasksRequest {
            context_id: context_id.clone(),
            status: state.clone(),
            page_size,
            page_token: page_token.clone(),
            history_length,
            status_timestamp_after: since.and_then(DateTime::from_timestamp_millis),
            include_artifacts,
            tenant: None,
        };
        let read = ListTasks::parse(canonical(&list, spelling)).unwrap();
        let expected = ListTasks {
            tenant: String::new(),
            context_id,
            status: state.filter(|state| *state != TaskState::Unspecified),
            since: since.map(|ms| u64::try_from(ms).unwrap_or(0)),
            page_size: u16::try_from(page_size.unwrap_or(50)).unwrap(),
            page_token,
            history: length(history_length, HistoryLength::Latest(0)),
            include_artifacts: include_artifacts.unwrap_or(false),
        };
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn an_event_is_printed_as_the_generated_types_read_it(event in event()) {
        read_back(&event)?;
        // Our own reader of the journal sees the same.
        let parsed: StreamResponse = serde_json::from_slice(&wire::to_vec(&event)).unwrap();
        prop_assert_eq!(StreamResponse::to_proto(&parsed), StreamResponse::to_proto(&event));
    }

    #[test]
    fn answers_are_printed_as_the_generated_types_read_them(
        tasks in vec(task(), 0..3),
        message in told(),
        next_page_token in any::<String>(),
        page_size in any::<i32>(),
        total_size in any::<i32>(),
    ) {
        for task in &tasks {
            read_back(task)?;
            read_back(&SendMessageResponse::Task(task.clone()))?;
        }
        read_back(&SendMessageResponse::Message(message))?;
        let printed: Vec<Vec<u8>> = tasks.iter().map(wire::to_vec).collect();
        let printed = wire::page(&printed, &next_page_token, page_size, total_size);
        let page = ListTasksResponse { tasks, next_page_token, page_size, total_size };
        read_back_from(&page, &printed)?;
    }
}
