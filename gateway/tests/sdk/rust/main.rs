//! What users of the Rust `a2a-client-lf` do, on the two bindings it has, against a cluster of two gateways that
//! `gateway/tests/sdk/run` has started. `make test-sdk` runs these tests, `make test` leaves them out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]
#![allow(missing_docs, reason = "nobody reads the documentation of a test binary")]

use std::env;

use a2a::error_code;
use a2a::{
    A2AError, CancelTaskRequest, GetTaskRequest, ListTasksRequest, Message, Part, PartContent, Role,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task,
    TaskState,
};
use a2a_client::agent_card::AgentCardResolver;
use a2a_client::{A2AClient, A2AClientFactory, BoxStream, Transport};
use futures_util::StreamExt;
use serde_json::json;

type Client = A2AClient<Box<dyn Transport>>;
type Events = BoxStream<'static, Result<StreamResponse, A2AError>>;

/// A client of each of the two gateways, for every binding of the SDK.
async fn clients() -> Vec<[Client; 2]> {
    let urls = env::var_os("RELEVO_URLS").expect("RELEVO_URLS is set by gateway/tests/sdk/run");
    let urls = urls.into_string().unwrap();
    let (a, b) = urls.split_once(' ').unwrap();
    let mut clients = Vec::new();
    for binding in ["JSONRPC", "HTTP+JSON"] {
        clients.push([connect(a, binding).await, connect(b, binding).await]);
    }
    clients
}

async fn connect(gateway: &str, binding: &str) -> Client {
    let card = AgentCardResolver::new(None).resolve(gateway).await.unwrap();
    let bindings: Vec<&str> = card
        .supported_interfaces
        .iter()
        .map(|found| found.protocol_binding.as_str())
        .collect();
    // The last two are for clients of 0.3.
    assert_eq!(bindings, ["JSONRPC", "HTTP+JSON", "GRPC", "JSONRPC", "HTTP+JSON"]);
    let factory = A2AClientFactory::builder()
        .preferred_bindings(vec![binding.to_owned()])
        .build();
    factory.create_from_card(&card).await.unwrap()
}

fn say(text: &str) -> SendMessageRequest {
    SendMessageRequest {
        message: Message::new(Role::User, vec![Part::text(text)]),
        configuration: None,
        metadata: None,
        tenant: None,
    }
}

fn say_in(task: &str, text: &str) -> SendMessageRequest {
    let mut request = say(text);
    request.message.task_id = Some(task.to_owned());
    request
}

async fn answer(client: &Client, request: &SendMessageRequest) -> Task {
    match client.send_message(request).await.unwrap() {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(message) => panic!("a message: {message:?}"),
    }
}

async fn get(client: &Client, id: &str, history_length: Option<i32>) -> Result<Task, A2AError> {
    let request = GetTaskRequest {
        id: id.to_owned(),
        history_length,
        tenant: None,
    };
    client.get_task(&request).await
}

async fn cancel(client: &Client, id: &str) -> Result<Task, A2AError> {
    let request = CancelTaskRequest {
        id: id.to_owned(),
        metadata: None,
        tenant: None,
    };
    client.cancel_task(&request).await
}

async fn follow(client: &Client, id: &str) -> Result<Events, A2AError> {
    let request = SubscribeToTaskRequest {
        id: id.to_owned(),
        tenant: None,
    };
    client.subscribe_to_task(&request).await
}

/// The first event of a stream, which is the task.
async fn first(events: &mut Events) -> Task {
    match events.next().await.unwrap().unwrap() {
        StreamResponse::Task(task) => task,
        event => panic!("not a task: {event:?}"),
    }
}

/// The numbers in the chunks that an event brings, and the state that it tells.
fn told(event: &StreamResponse) -> (Vec<u32>, Option<TaskState>) {
    let (parts, state) = match event {
        StreamResponse::StatusUpdate(update) => (
            update.status.message.as_ref().map(|message| message.parts.as_slice()),
            Some(update.status.state.clone()),
        ),
        StreamResponse::ArtifactUpdate(update) => (Some(update.artifact.parts.as_slice()), None),
        StreamResponse::Task(_) | StreamResponse::Message(_) => (None, None),
    };
    let text: String = parts.unwrap_or_default().iter().filter_map(Part::as_text).collect();
    let words = text.split_whitespace().filter_map(|word| word.strip_prefix("seq="));
    (words.map(|number| number.parse().unwrap()).collect(), state)
}

/// The numbers in all that is left of a stream, and the last state.
async fn rest(mut events: Events) -> (Vec<u32>, Option<TaskState>) {
    let (mut chunks, mut last) = (Vec::new(), None);
    while let Some(event) = events.next().await {
        let (more, state) = told(&event.unwrap());
        chunks.extend(more);
        last = state.or(last);
    }
    (chunks, last)
}

/// A task that will not end by itself, and whose first chunk was seen.
async fn running(client: &Client) -> String {
    let mut events = client
        .send_streaming_message(&say("chunks=1000 delay=200"))
        .await
        .unwrap();
    let id = first(&mut events).await.id;
    while told(&events.next().await.unwrap().unwrap()).0.is_empty() {}
    id
}

#[tokio::test]
#[ignore = "run by make test-sdk"]
async fn a_send_waits_for_the_end_or_returns_at_once() {
    for [a, b] in clients().await {
        let task = answer(&a, &say("chunks=3 nonce=abc")).await;
        assert_eq!(task.status.state, TaskState::Completed);
        let mut request = say("chunks=2 delay=500");
        request.configuration = Some(SendMessageConfiguration {
            accepted_output_modes: None,
            task_push_notification_config: None,
            history_length: None,
            return_immediately: Some(true),
        });
        let task = answer(&a, &request).await;
        assert!(!task.status.state.is_terminal(), "{task:?}");
        let (_, last) = rest(follow(&b, &task.id).await.unwrap()).await;
        assert_eq!(last, Some(TaskState::Completed));
    }
}

#[tokio::test]
#[ignore = "run by make test-sdk"]
async fn a_stream_brings_every_chunk_in_order_and_ends() {
    for [a, _] in clients().await {
        for answer in ["chunks=50 delay=2", "chunks=50 artifact=chunks"] {
            let mut events = a.send_streaming_message(&say(answer)).await.unwrap();
            first(&mut events).await;
            assert_eq!(rest(events).await, ((0..50).collect(), Some(TaskState::Completed)));
        }
    }
}

#[tokio::test]
#[ignore = "run by make test-sdk"]
async fn a_running_task_is_followed_and_canceled_from_another_gateway() {
    for [a, b] in clients().await {
        let id = running(&a).await;
        let mut events = follow(&b, &id).await.unwrap();
        assert_eq!(first(&mut events).await.id, id);
        while told(&events.next().await.unwrap().unwrap()).0.is_empty() {}
        assert_eq!(cancel(&b, &id).await.unwrap().status.state, TaskState::Canceled);
        assert_eq!(rest(events).await.1, Some(TaskState::Canceled));
    }
}

#[tokio::test]
#[ignore = "run by make test-sdk"]
async fn a_task_that_asks_for_input_goes_on_with_the_answer_on_another_gateway() {
    for [a, b] in clients().await {
        let asked = answer(&a, &say("chunks=1 end=input-required")).await;
        assert_eq!(asked.status.state, TaskState::InputRequired);
        let task = answer(&b, &say_in(&asked.id, "chunks=1")).await;
        assert_eq!((task.id, task.status.state), (asked.id.clone(), TaskState::Completed));
        let history = get(&b, &asked.id, None).await.unwrap().history.unwrap();
        let latest = get(&b, &asked.id, Some(1)).await.unwrap().history.unwrap();
        assert_eq!(latest, history[history.len() - 1..]);
        assert!(
            get(&b, &asked.id, Some(0))
                .await
                .unwrap()
                .history
                .unwrap_or_default()
                .is_empty()
        );
    }
}

#[tokio::test]
#[ignore = "run by make test-sdk"]
async fn tasks_are_listed_by_context_page_by_page() {
    for [a, b] in clients().await {
        let context = a2a::new_context_id();
        let mut sent = Vec::new();
        for _ in 0..5 {
            let mut request = say("chunks=1 artifact=chunks");
            request.message.context_id = Some(context.clone());
            sent.insert(0, answer(&a, &request).await.id);
        }
        let mut request = ListTasksRequest {
            context_id: Some(context),
            status: None,
            page_size: Some(2),
            page_token: None,
            history_length: None,
            status_timestamp_after: None,
            include_artifacts: None,
            tenant: None,
        };
        let mut seen = Vec::new();
        while request.page_token.as_deref() != Some("") {
            let page = b.list_tasks(&request).await.unwrap();
            assert_eq!((page.total_size, page.page_size), (5, 2));
            seen.extend(page.tasks.into_iter().map(|task| task.id));
            request.page_token = Some(page.next_page_token);
        }
        assert_eq!(seen, sent);
    }
}

#[tokio::test]
#[ignore = "run by make test-sdk"]
async fn parts_of_every_kind_arrive_as_they_were_sent() {
    for [a, _] in clients().await {
        let mut request = say("chunks=1 artifact=file");
        // The SDK has doubles only: an integer would come back as one.
        request.message.parts.extend([
            Part::data(json!({ "text": "ü", "list": [2.5, null, true] })),
            Part::raw((0..=255).collect())
                .with_media_type("image/png")
                .with_filename("all.png"),
            Part::url("https://example.com/a.pdf").with_media_type("application/pdf"),
        ]);
        let task = answer(&a, &request).await;
        assert_eq!(task.history.unwrap()[0].parts, request.message.parts);
        let file = &task.artifacts.unwrap()[0].parts[0];
        assert!(
            matches!(&file.content, PartContent::Raw(bytes) if !bytes.is_empty()),
            "{file:?}"
        );
    }
}

#[tokio::test]
#[ignore = "run by make test-sdk"]
async fn errors_have_the_codes_of_the_protocol() {
    for [a, _] in clients().await {
        let ended = answer(&a, &say("chunks=1")).await.id;
        let mut nothing = say("");
        nothing.message.parts.clear();
        for (code, error) in [
            (error_code::TASK_NOT_FOUND, get(&a, "no-such", None).await.err()),
            (error_code::TASK_NOT_FOUND, follow(&a, "no-such").await.err()),
            (error_code::TASK_NOT_CANCELABLE, cancel(&a, &ended).await.err()),
            (error_code::UNSUPPORTED_OPERATION, follow(&a, &ended).await.err()),
            (
                error_code::UNSUPPORTED_OPERATION,
                a.send_message(&say_in(&ended, "x")).await.err(),
            ),
            (error_code::INVALID_PARAMS, a.send_message(&nothing).await.err()),
            (error_code::INVALID_PARAMS, get(&a, &ended, Some(-1)).await.err()),
        ] {
            let error = error.expect("the call is refused");
            assert_eq!(error.code, code, "{error:?}");
        }
    }
}
