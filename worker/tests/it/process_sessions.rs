//! What an agent remembers in a context: given to every turn of it, on any worker, word for word.

use a2a::TaskState;
use relevo_shared::domain::record::CrashPolicy;
use relevo_testkit::poll;
use serde_json::{Value, json};

use crate::fixture::{AS_USER, RunningWorker, World};
use crate::process_harness::Mark;

fn session(stored: &relevo_shared::store::StoredTask) -> Value {
    match &stored.folded.artifacts[0].parts[0].content {
        a2a::PartContent::Data(turn) => turn["session"].clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_moves_over_workers_with_its_session() {
    let (world, mark) = (World::start().await, Mark::new());
    let mut turn: Option<relevo_shared::domain::record::TurnRecord> = None;
    let mut said: Vec<String> = Vec::new();
    for n in 0..5 {
        let worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("")).await;
        let words = format!("turn say=x remember=a{n} say=y remember=b{n} end=input-required");
        let record = match &turn {
            None => world.ask("c-1", &words, CrashPolicy::Fail).await,
            Some(before) => world.ask_again(before, &words).await,
        };
        let stored = world.until_over(record.task).await;
        assert_eq!(stored.state, TaskState::InputRequired);
        assert_eq!(session(&stored), json!({"length": said.len(), "items": said}));
        said.extend([format!("a{n}"), format!("b{n}")]);
        turn = Some(record);
        assert!(worker.stop().await);
    }
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crashed_attempt_remembered_is_void() {
    let (world, mark) = (World::start().await, Mark::new());
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("policy = \"restart\"")).await;
    let first = world
        .ask("c-1", "remember=kept end=input-required", CrashPolicy::Restart)
        .await;
    world.until_over(first.task).await;
    let second = world
        .ask_again(&first, "turn remember=again exit-before=3 end=input-required")
        .await;
    let stored = world.until_over(second.task).await;
    assert_eq!(session(&stored), json!({"length": 1, "items": ["kept"]}));
    let third = world.ask_again(&first, "turn end=completed").await;
    let stored = world.until_over(third.task).await;
    assert_eq!(session(&stored), json!({"length": 2, "items": ["kept", "again"]}));
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_length_and_too_much_fail_the_turn() {
    let (world, mark) = (World::start().await, Mark::new());
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("")).await;
    for (context, words) in [
        ("1", r#"line={"type":"session","items":[1],"expect":1} hold=60"#),
        ("2", r#"line={"type":"session","items":[1],"expect":10000} hold=60"#),
        ("3", r#"line={"type":"session","items":[1]} hold=60"#),
    ] {
        let turn = world.ask(context, words, CrashPolicy::Fail).await;
        let stored = world.until_over(turn.task).await;
        let facts = &stored.folded.metadata["urn:relevo:a2a:turn:v1"];
        assert_eq!(
            (stored.state, &facts["reason"]),
            (TaskState::Failed, &json!("agent_error")),
            "{words}"
        );
    }
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_the_worker_may_not_read_is_waited_for() {
    let (world, mark) = (World::start().await, Mark::new());
    world.permit("-lrange");
    let worker = RunningWorker::start_with(&world.redis.url(), &AS_USER, &mark.driven("policy = \"restart\"")).await;
    let turn = world.ask("c-1", "end=completed", CrashPolicy::Restart).await;
    poll::until("Redis refuses", || async {
        let log = world.redis.cli(&["ACL", "LOG"]);
        if log.contains("lrange") { Ok(()) } else { Err(log) }
    })
    .await;
    world.permit("+lrange");
    assert_eq!(world.until_over(turn.task).await.state, TaskState::Completed);
    assert!(worker.stop().await);
    mark.until_gone().await;
}
