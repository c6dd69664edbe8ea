//! What a process says becomes events, and what it must not say has an exact outcome.

use a2a::{Message, Part, Role, TaskState};
use relevo_shared::domain::class::Class;
use relevo_shared::domain::record::CrashPolicy;
use serde_json::Value;

use crate::fixture::{RunningWorker, World, answer};
use crate::process_harness::Mark;

fn reason(stored: &relevo_shared::store::StoredTask) -> Option<String> {
    let facts = stored.folded.metadata.get("urn:relevo:a2a:turn:v1")?;
    facts["reason"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_line_becomes_its_event() {
    let (world, mark) = (World::start().await, Mark::new());
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("")).await;
    let lines = [
        r#"{"type":"status","message":{"parts":[{"text":"a"}]},"metadata":{"k":1}}"#,
        r#"{"type":"status","message":{"parts":[{"text":"b"}]},"taskId":"<task>"}"#,
        r#"{"type":"status","state":"auth-required"}"#,
        r#"{"type":"status","state":"TASK_STATE_WORKING","message":{"messageId":"second","parts":[{"data":{"x":1}}]}}"#,
        r#"{"type":"artifact","artifact":{"artifactId":"f","name":"n","parts":[{"text":"1"}]},"metadata":{"m":2}}"#,
        r#"{"type":"artifact","artifact":{"artifactId":"f","parts":[{"text":"2"}]},"append":true,"lastChunk":true}"#,
        r#"{"type":"end","state":"input-required","message":{"messageId":"third","parts":[{"text":"?"}]},"metadata":{"z":3}}"#,
    ];
    let text = lines.map(|line| format!("line={line}")).join(" ");
    let turn = world.ask("c-1", &text, CrashPolicy::Fail).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored)),
        (TaskState::InputRequired, "?".to_owned())
    );
    assert_eq!(stored.folded.artifacts[0].parts[0].as_text(), Some("12"));
    let said: Vec<String> = stored
        .history
        .iter()
        .map(|message| message.message_id.clone())
        .collect();
    assert_eq!(
        said[1..],
        [format!("{}.0", turn.turn), format!("{}.1.second", turn.turn)]
    );
    assert_eq!(stored.history[1].parts[0].as_text(), Some("ab"));
    assert_eq!(stored.history[1].task_id, Some(turn.task.to_string()));

    let events = world.journal(turn.task).await;
    let classes: Vec<Class> = events.iter().map(|event| event.kind.class).collect();
    assert_eq!(classes.iter().filter(|class| **class == Class::Waiting).count(), 1);
    assert_eq!(classes.last(), Some(&Class::Interrupted));
    let bodies: Vec<Value> = events
        .iter()
        .map(|event| serde_json::from_slice(&event.bytes).unwrap())
        .collect();
    let body = |n: usize| &bodies[n];
    assert_eq!(body(2)["statusUpdate"]["metadata"]["k"], 1);
    assert_eq!(body(6)["artifactUpdate"]["metadata"]["m"], 2);
    assert_eq!(body(7)["artifactUpdate"]["append"], true);
    assert_eq!(body(7)["artifactUpdate"]["lastChunk"], true);
    assert_eq!(body(8)["statusUpdate"]["metadata"]["z"], 3);
    mark.until_gone().await;
}

/// An agent that names its messages alike in every turn, and comes back to a name that it left.
#[tokio::test(flavor = "multi_thread")]
async fn no_two_messages_of_a_task_have_one_id_and_none_is_empty() {
    let (world, mark) = (World::start().await, Mark::new());
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("")).await;
    let named = |id: &str, text: &str| {
        format!(r#"line={{"type":"status","message":{{"messageId":"{id}","parts":[{{"text":"{text}"}}]}}}}"#)
    };
    let lines = [
        named("m", "a"),
        r#"line={"type":"status","message":{}}"#.to_owned(),
        r#"line={"type":"status","message":{"parts":[{"text":"b"}]}}"#.to_owned(),
        named("m", "c"),
        named("n", "d"),
        named("m", "e"),
    ]
    .join(" ");
    let first = world
        .ask("c-1", &format!("{lines} end=input-required"), CrashPolicy::Fail)
        .await;
    world.until_over(first.task).await;
    let second = world
        .ask_again(
            &first,
            &format!(r#"{lines} line={{"type":"end","message":{{"messageId":"m","parts":[]}}}}"#),
        )
        .await;
    let stored = world.until_over(second.task).await;
    let mut said: Vec<&Message> = stored.history.iter().collect();
    said.extend(&stored.folded.messages);
    said.extend(&stored.folded.status.message);
    let agent: Vec<&Message> = said.into_iter().filter(|message| message.role == Role::Agent).collect();
    let texts: Vec<&str> = agent
        .iter()
        .filter_map(|message| message.parts.first()?.as_text())
        .collect();
    assert_eq!(texts, ["abc", "d", "eover", "abc", "d", "e"]);
    let mut ids: Vec<&str> = agent.iter().map(|message| message.message_id.as_str()).collect();
    assert!(
        ids[0] == format!("{}.0.m", first.turn) && ids[2] == format!("{}.2.m", first.turn),
        "{ids:?}"
    );
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), agent.len(), "{ids:?}");
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_reaches_the_task() {
    let (world, mark) = (World::start().await, Mark::new());
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("")).await;
    for (context, text, state, why) in [
        ("1", "end=completed", TaskState::Completed, None),
        ("2", "end=TASK_STATE_FAILED", TaskState::Failed, None),
        ("3", "end=rejected", TaskState::Rejected, None),
        ("4", "end=canceled", TaskState::Canceled, None),
        ("5", "end=auth-required", TaskState::AuthRequired, None),
        // A status in such a state is the end, and what comes after the end is not heard.
        (
            "6",
            r#"line={"type":"status","state":"completed"} raw=ff0a say=late"#,
            TaskState::Completed,
            None,
        ),
        (
            "7",
            r#"line={"type":"error","text":"sorry"}"#,
            TaskState::Failed,
            Some("agent_error"),
        ),
        (
            "8",
            r#"line={"type":"error","text":"sorry","retryable":true}"#,
            TaskState::Failed,
            Some("agent_error"),
        ),
    ] {
        let turn = world.ask(context, text, CrashPolicy::Fail).await;
        let stored = world.until_over(turn.task).await;
        assert_eq!(
            (stored.state.clone(), reason(&stored).as_deref()),
            (state, why),
            "{text}"
        );
        if why.is_some() {
            assert_eq!(answer(&stored), "sorry");
        }
    }
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_of_the_protocol_fails_the_turn_and_an_early_end_is_named() {
    let (world, mark) = (World::start().await, Mark::new());
    let table = mark.driven("max_line = \"4KiB\"\nkill_grace = \"200ms\"");
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &table).await;
    let other = r#"line={"type":"status","taskId":"another"}"#;
    let reserved = r#"line={"type":"status","metadata":{"urn:relevo:a2a:resume:v1":{"boundary":true}}}"#;
    for (n, (text, why)) in [
        ("line=no+json hold=60", "agent_error"),
        ("raw=7b22ff7d0a hold=60", "agent_error"),
        ("long=5000 hold=60", "agent_error"),
        (r#"line={"type":"whatever"} hold=60"#, "agent_error"),
        (r#"line={"type":"end","state":"working"} hold=60"#, "agent_error"),
        (r#"line={"type":"status","state":"odd"} hold=60"#, "agent_error"),
        (
            r#"line={"type":"artifact","artifact":{"artifactId":"a"}} hold=60"#,
            "agent_error",
        ),
        (
            r#"line={"type":"artifact","artifact":{"artifactId":"a","parts":[]}} hold=60"#,
            "agent_error",
        ),
        (other, "agent_error"),
        (reserved, "agent_error"),
        ("say=hello exit=0", "agent_exited"),
        ("log=my+last+words exit=7", "agent_exited"),
        ("die=1", "agent_exited"),
        ("close=1 hold=60", "agent_exited"),
        // `{"type":"end"}` without its line end.
        ("raw=7b2274797065223a22656e64227d exit=0", "agent_exited"),
        ("keeper=1 hold=60", "agent_exited"),
    ]
    .into_iter()
    .enumerate()
    {
        let turn = world.ask(&n.to_string(), text, CrashPolicy::Fail).await;
        let stored = world.until_over(turn.task).await;
        assert_eq!(
            (stored.state.clone(), reason(&stored).as_deref()),
            (TaskState::Failed, Some(why)),
            "{text}"
        );
        let seen = String::from_utf8(world.journal(turn.task).await.last().unwrap().bytes.clone()).unwrap();
        assert!(!seen.contains("last words"), "{seen}");
    }
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_fails_the_turn() {
    let world = World::start().await;
    let table = "[a]\nkind = \"process\"\ncommand = [\"/no/such/program\"]\n";
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], table).await;
    let turn = world.ask("c-1", "x", CrashPolicy::Fail).await;
    assert_eq!(
        reason(&world.until_over(turn.task).await).as_deref(),
        Some("agent_exited")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_agent_that_exits_is_run_again_until_its_attempts_are_used() {
    let (world, mark) = (World::start().await, Mark::new());
    let worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("policy = \"restart\"")).await;
    let late = world
        .ask("c-1", "say=word exit-before=3 end=completed", CrashPolicy::Restart)
        .await;
    let stored = world.until_over(late.task).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored)),
        (TaskState::Completed, "wordover".to_owned())
    );
    let boundaries = world.journal(late.task).await;
    let boundaries = boundaries.iter().filter(|event| event.kind.class == Class::Boundary);
    assert_eq!(boundaries.count(), 2);
    let never = world
        .ask(
            "c-2",
            r#"line={"type":"error","text":"later","retryable":true}"#,
            CrashPolicy::Restart,
        )
        .await;
    let never = world.until_over(never.task).await;
    assert_eq!(reason(&never).as_deref(), Some("attempts_exhausted"));
    assert!(answer(&never).contains("(3); the last attempt ended because its agent stopped"));
    assert!(worker.stop().await);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_turn_is_told_whole() {
    let (world, mark) = (World::start().await, Mark::new());
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("")).await;
    let mut message = Message::new(
        Role::User,
        vec![
            Part::text("turn say=first end=input-required"),
            Part::data(serde_json::json!({"deep": [1]})),
        ],
    );
    message.metadata = Some([("trace".to_owned(), "t-1".into())].into());
    let mut record = world.record("c-1", "a", CrashPolicy::Fail, message).await;
    record.accepted_output_modes = vec!["text/plain".into()];
    record.traceparent = Some("00-1-2-01".into());
    record.deadline = Some(record.submitted + 3_600_000);
    let first = world.submit(record).await;
    let told = turn_line(&world.until_over(first.task).await);
    assert_eq!((&told["type"], &told["version"]), (&"turn".into(), &1.into()));
    assert_eq!(told["turn"]["id"], first.turn.to_string());
    assert_eq!(
        (&told["turn"]["number"], &told["turn"]["attempt"]),
        (&1.into(), &1.into())
    );
    assert!(told["turn"]["epoch"].as_u64() > Some(0));
    assert_eq!(told["turn"]["deadlineMs"], first.deadline.unwrap());
    assert_eq!(told["context"]["id"], "c-1");
    assert_eq!(told["task"]["id"], first.task.to_string());
    assert_eq!(told["message"], serde_json::to_value(&first.message).unwrap());
    assert_eq!(told["message"]["parts"][1]["data"]["deep"][0], 1);
    assert_eq!(told["history"], serde_json::json!([]));
    assert_eq!(told["session"], serde_json::json!({"length": 0, "items": []}));
    assert_eq!(
        told["principal"],
        serde_json::json!({"subject": "", "tenant": "", "scopes": []})
    );
    assert_eq!(told["acceptedOutputModes"], serde_json::json!(["text/plain"]));
    assert_eq!(told["traceparent"], "00-1-2-01");

    let second = world.ask_again(&first, "turn end=completed").await;
    let told = turn_line(&world.until_over(second.task).await);
    assert_eq!(told["turn"]["number"], 2);
    assert_eq!(told["task"]["artifacts"][0]["artifactId"], "turn");
    let history: Vec<&str> = told["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(history, ["ROLE_USER", "ROLE_AGENT"]);
    assert_eq!(told["history"][1]["parts"][0]["text"], "firstover");
    assert_eq!(told["message"]["messageId"], second.message.message_id);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_one_id_are_all_told() {
    let (world, mark) = (World::start().await, Mark::new());
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("")).await;
    let message = |text: &str| Message {
        message_id: "same".to_owned(),
        ..Message::new(Role::User, vec![Part::text(text)])
    };
    let record = world
        .record("c-1", "a", CrashPolicy::Fail, message("end=input-required one"))
        .await;
    let first = world.submit(record).await;
    world.until_over(first.task).await;
    let second = world.say_again(&first, message("turn end=completed two")).await;
    let told = turn_line(&world.until_over(second.task).await);
    let texts: Vec<&str> = told["history"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|m| m["parts"][0]["text"].as_str())
        .collect();
    assert_eq!(texts, ["end=input-required one", "over"]);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_long_for_the_line_fails_the_turn_and_says_so() {
    let (world, mark) = (World::start().await, Mark::new());
    let worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("")).await;
    let turn = world.ask("c-1", &"x".repeat(5 << 20), CrashPolicy::Restart).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(
        (stored.state.clone(), reason(&stored).as_deref()),
        (TaskState::Failed, Some("agent_error"))
    );
    assert!(answer(&stored).contains("at most 4 MiB"), "{}", answer(&stored));
    assert!((worker.metric("relevo_worker_attempts_total", None) - 1.0).abs() < f64::EPSILON);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_line_is_written_in_small_events_and_calls() {
    let (world, mark) = (World::start().await, Mark::new());
    let table = mark.driven("max_line = \"16MiB\"");
    let settings = [("turn.event_bytes", "12KiB")];
    let worker = RunningWorker::start_with(&world.redis.url(), &settings, &table).await;
    let turn = world
        .ask("c-1", "long=8000000 long-end=100000", CrashPolicy::Fail)
        .await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    let said = answer(&stored);
    assert_eq!(
        (said.matches('x').count(), said.matches('y').count()),
        (8_000_000, 100_000)
    );
    let journal = world.journal(turn.task).await;
    assert!(journal.iter().all(|event| event.bytes.len() <= 12 << 10));
    let calls = worker.observed("relevo_store_script_seconds", &["emit"]);
    assert!(calls >= 8_000_000 / (1 << 20), "{calls} calls");
    mark.until_gone().await;
}

fn turn_line(stored: &relevo_shared::store::StoredTask) -> Value {
    match &stored.folded.artifacts[0].parts[0].content {
        a2a::PartContent::Data(value) => value.clone(),
        other => panic!("{other:?}"),
    }
}
