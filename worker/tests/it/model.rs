//! Agents of `kind = "openai"`: a model that answers well, and what it is sent.

use a2a::{Message, Part, PartContent, Role, TaskState};
use relevo_shared::domain::record::CrashPolicy;
use relevo_testkit::chat_model::{Act, ChatModel, says, whole};
use relevo_testkit::{Process, poll};
use serde_json::{Value, json};

use crate::fixture::{RunningWorker, World, answer};

/// The table of an agent `a` in front of a model, with more lines of TOML.
pub fn table(model: &ChatModel, more: &str) -> String {
    format!(
        "[a]\nkind = \"openai\"\nurl = \"{}\"\nmodel = \"m\"\nbearer = \"sk-hunter2\"\n{more}\n",
        model.url()
    )
}

pub async fn start(world: &World, model: &ChatModel, more: &str) -> RunningWorker {
    RunningWorker::start_with(&world.redis.url(), &[], &table(model, more)).await
}

fn pair(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

/// Answers with what it was asked last.
fn echo(_: usize, body: &Value) -> Vec<Act> {
    let last = body["messages"].as_array().and_then(|all| all.last());
    let text = last.and_then(|message| message["content"].as_str()).unwrap_or_default();
    says(&["You said: ", text])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_streamed_and_what_is_known_of_it_is_told() {
    let world = World::start().await;
    let model = ChatModel::start(|_, _| says(&["Grüße", " an", " alle"]));
    let worker = start(&world, &model, "system = \"Be kind.\"\ntemperature = 0.5").await;
    let turn = world.ask("c-1", "hello", CrashPolicy::Fail).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored).as_str()),
        (TaskState::Completed, "Grüße an alle")
    );
    assert_eq!(
        stored.folded.metadata["urn:relevo:a2a:turn:v1"]["model"],
        json!({
            "name": "m-1", "finishReason": "stop",
            "usage": {"promptTokens": 3, "completionTokens": 5, "totalTokens": 8},
        })
    );
    let asked = model.asked();
    assert_eq!(asked.len(), 1);
    assert!(
        asked[0].head.starts_with("POST /v1/chat/completions HTTP/1.1"),
        "{}",
        asked[0].head
    );
    assert_eq!(asked[0].header("authorization"), Some("Bearer sk-hunter2"));
    assert_eq!(asked[0].header("idempotency-key"), Some(turn.turn.to_string().as_str()));
    assert_eq!(
        asked[0].body,
        json!({
            "model": "m", "stream": true, "stream_options": {"include_usage": true}, "temperature": 0.5,
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}],
        })
    );
    let tokens = ["prompt", "completion"].map(|kind| {
        worker
            .metric("relevo_worker_model_tokens_total", Some(kind))
            .to_string()
    });
    assert_eq!(tokens, ["3", "5"]);
    assert_eq!(worker.observed("relevo_worker_model_first_text_seconds", &["a"]), 1);
    assert!((worker.metric("relevo_worker_model_requests_total", Some("stop")) - 1.0).abs() < f64::EPSILON);
    assert!(worker.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_over_three_workers_is_what_one_process_would_send() {
    let world = World::start().await;
    let model = ChatModel::start(echo);
    let more = "system = \"Be kind.\"\n[a.options]\ntop_p = 0.9";
    let mut conversation = vec![pair("system", "Be kind.")];
    let mut workers = Vec::new();
    for n in 0..5 {
        // The turns run on the first, the second, the third and the first of three workers, then on another one.
        workers.push(start(&world, &model, more).await);
        let words = format!("word {n} \u{1F980} \"\\\u{1}");
        // Tasks of their own: the conversation is the context's.
        let turn = world.ask("c-1", &words, CrashPolicy::Fail).await;
        let stored = world.until_over(turn.task).await;
        assert_eq!(answer(&stored), format!("You said: {words}"));
        conversation.push(pair("user", &words));
        let asked = model.asked();
        assert_eq!((asked.len(), asked[n].messages()), (n + 1, conversation.clone()));
        conversation.push(pair("assistant", &answer(&stored)));
        if n % 2 == 0 {
            assert!(workers.remove(0).stop().await);
        }
    }
    // Another context is another conversation.
    let worker = start(&world, &model, more).await;
    let turn = world.ask("c-2", "alone", CrashPolicy::Fail).await;
    world.until_over(turn.task).await;
    assert_eq!(
        model.asked()[5].messages(),
        [pair("system", "Be kind."), pair("user", "alone")]
    );
    assert!(worker.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_as_much_of_the_conversation_is_sent_as_the_table_says() {
    let world = World::start().await;
    let model = ChatModel::start(echo);
    let _worker = start(&world, &model, "history = 2").await;
    for words in ["one", "two", "three"] {
        let turn = world.ask("c-1", words, CrashPolicy::Fail).await;
        world.until_over(turn.task).await;
    }
    let expected = [
        pair("user", "two"),
        pair("assistant", "You said: two"),
        pair("user", "three"),
    ];
    assert_eq!(model.asked()[2].messages(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_share_a_connection() {
    let world = World::start().await;
    let model = ChatModel::start(echo);
    let _worker = start(&world, &model, "").await;
    for n in 0..4 {
        let turn = world.ask(&format!("c-{n}"), "hello", CrashPolicy::Fail).await;
        assert_eq!(world.until_over(turn.task).await.state, TaskState::Completed);
    }
    assert_eq!((model.asked().len(), model.connections()), (4, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_answer_is_one_message_and_may_stand_alone() {
    let world = World::start().await;
    let body = json!({"model": "m-2", "choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "length"}]});
    let model =
        ChatModel::start(move |_, _| vec![whole("200 OK", "content-type: application/json\r\n", &body.to_string())]);
    let _worker = start(&world, &model, "stream = false\ndirect = true").await;
    let turn = world.ask("c-1", "hello", CrashPolicy::Fail).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored).as_str()),
        (TaskState::Completed, "hi")
    );
    assert_eq!(
        stored.folded.metadata["urn:relevo:a2a:turn:v1"]["model"]["finishReason"],
        "length"
    );
    assert_eq!(model.asked()[0].body["stream"], false);
    assert_eq!(model.asked()[0].header("accept"), Some("application/json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_stream_is_understood() {
    let world = World::start().await;
    let body = r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let model = ChatModel::start(|_, _| vec![whole("200 OK", "content-type: application/json\r\n", body)]);
    let _worker = start(&world, &model, "").await;
    let turn = world.ask("c-1", "hello", CrashPolicy::Fail).await;
    assert_eq!(answer(&world.until_over(turn.task).await), "hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_says_what_a_good_end_is() {
    let world = World::start().await;
    let model = ChatModel::start(echo);
    let table = table(&model, "profile = \"p\"").replace("[a]", "[agents.a]");
    let file = format!("[profiles.p]\nend = \"input-required\"\nanswer_artifact = true\n{table}");
    let _worker = RunningWorker::start_file(&world.redis.url(), &[], &file).await;
    let first = world.ask("c-1", "one", CrashPolicy::Fail).await;
    let stored = world.until_over(first.task).await;
    assert_eq!(stored.state, TaskState::InputRequired);
    assert_eq!(stored.folded.artifacts[0].parts[0].as_text(), Some("You said: one"));
    world.ask_again(&first, "two").await;
    assert_eq!(answer(&world.until_over(first.task).await), "You said: two");
    let expected = [
        pair("user", "one"),
        pair("assistant", "You said: one"),
        pair("user", "two"),
    ];
    assert_eq!(model.asked()[1].messages(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_goes_along_and_what_cannot_be_shown_is_refused() {
    let world = World::start().await;
    let model = ChatModel::start(echo);
    let _worker = start(&world, &model, "images = true").await;
    let part = |media_type: &str| Part {
        content: PartContent::Raw(b"abc".to_vec()),
        filename: Some("a.bin".to_owned()),
        media_type: Some(media_type.to_owned()),
        metadata: None,
    };
    let ask = async |context: &str, part: Part| {
        let message = Message::new(Role::User, vec![Part::text("look"), part]);
        let turn = world
            .submit(world.record(context, "a", CrashPolicy::Fail, message).await)
            .await;
        world.until_over(turn.task).await
    };
    assert_eq!(ask("c-1", part("image/png")).await.state, TaskState::Completed);
    assert_eq!(
        model.asked()[0].body["messages"][0]["content"][1]["image_url"]["url"],
        "data:image/png;base64,YWJj"
    );
    let refused = ask("c-1", part("audio/mpeg")).await;
    assert_eq!(refused.state, TaskState::Failed);
    let words = answer(&refused);
    assert!(
        words.starts_with("Part 2 of the message (bytes, audio/mpeg, a.bin)"),
        "{words}"
    );
    assert_eq!(
        refused.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"],
        "invalid_message"
    );
    assert_eq!(model.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_very_long_answer_is_whole_and_one_without_an_end_is_stopped() {
    let world = World::start().await;
    let words: Vec<String> = (0..20_000).map(|n| format!("word {n} ")).collect();
    let long = words.concat();
    let endless: Vec<String> = words.iter().map(|word| word.repeat(4)).collect();
    let model = ChatModel::start(move |n, _| {
        let texts = if n == 0 { &words } else { &endless };
        says(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    });
    let _worker = start(&world, &model, "").await;
    let turn = world.ask("c-1", "write", CrashPolicy::Fail).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    assert!(answer(&stored) == long);
    let events = world.journal(turn.task).await.len();
    assert!(events < 5_000, "{events} events");
    let turn = world.ask("c-2", "write", CrashPolicy::Fail).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(
        stored.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"],
        "output_limit"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_the_five_minutes_work() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let page = std::fs::read_to_string(format!("{folder}/../docs/agents.md")).unwrap();
    let (_, section) = page.split_once("### Five minutes").unwrap();
    let (_, block) = section.split_once("```toml\n").unwrap();
    let file: String = block
        .lines()
        .map_while(|line| line.strip_prefix("   "))
        .collect::<Vec<_>>()
        .join("\n");
    let file = file.replace("```", "");
    let endpoint = Process::spawn("python3", &[&format!("{folder}/examples/chat_endpoint.py"), "0"], &[]);
    let url = poll::until("the endpoint to listen", || async {
        let said = endpoint.stdout();
        if said.ends_with('\n') {
            Ok(said.trim().to_owned())
        } else {
            Err(endpoint.stderr())
        }
    })
    .await;
    let world = World::start().await;
    for stream in ["true", "false"] {
        let named = format!("http://127.0.0.1:11434/v1\"\nstream = {stream} # \"");
        let config = file.replace(
            "http://127.0.0.1:11434/v1",
            &named.replace("http://127.0.0.1:11434/v1", &url),
        );
        let worker =
            RunningWorker::start_file(&world.redis.url(), &[], &config.replace("[agents.chat]", "[agents.a]")).await;
        let turn = world.ask(stream, "My name is Ada.", CrashPolicy::Restart).await;
        assert_eq!(
            answer(&world.until_over(turn.task).await).trim(),
            "You said: My name is Ada."
        );
        let turn = world.ask(stream, "What is my name?", CrashPolicy::Restart).await;
        assert_eq!(
            answer(&world.until_over(turn.task).await).trim(),
            "You said: What is my name? And before that: My name is Ada."
        );
        assert!(worker.stop().await);
    }
}
