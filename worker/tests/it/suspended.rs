//! Turns whose agents suspend them: what a program is told when it goes on, wherever that is, and what is void by then.

use a2a::{Message, Part, PartContent, Role, TaskState};
use relevo_shared::domain::record::CrashPolicy;
use relevo_shared::store::StoredTask;
use serde_json::{Value, json};

use crate::fixture::{RunningWorker, World, answer};
use crate::process_harness::Mark;

fn words(text: &str) -> Message {
    Message::new(Role::User, vec![Part::text(text)])
}

/// The turn's line, as the driven agent has said it.
fn line(stored: &StoredTask) -> Value {
    match &stored.folded.artifacts[0].parts[0].content {
        PartContent::Data(line) => line.clone(),
        other => panic!("{other:?}"),
    }
}

fn reason(stored: &StoredTask) -> Value {
    stored.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_suspended_for_longer_than_its_worker_lives() {
    for (policy, word) in [(CrashPolicy::Fail, "fail"), (CrashPolicy::Restart, "restart")] {
        let (world, mark) = (World::start().await, Mark::new());
        let table = mark.driven(&format!("policy = {word:?}"));
        let first = RunningWorker::start_with(&world.redis.url(), &[], &table).await;
        let asked = "say=before remember=kept turn suspend=auth-required";
        let turn = world.ask("c-1", asked, policy).await;
        let stored = world.until_suspended(turn.task).await;
        assert_eq!(
            (stored.state.clone(), answer(&stored)),
            (TaskState::AuthRequired, "beforeasks".to_owned())
        );
        assert_eq!(
            stored.folded.metadata["urn:relevo:a2a:turn:v1"],
            json!({ "suspended": true })
        );
        let before = line(&stored);
        assert_eq!(before["turn"]["resumed"], json!(null));
        mark.until_gone().await;
        assert!(first.stop().await, "nothing is left to give back");
        assert!(world.until_suspended(turn.task).await.suspended);

        let second = RunningWorker::start_with(&world.redis.url(), &[], &table).await;
        world.answer(&turn, words("turn say=after end=completed")).await;
        let stored = world.until_over(turn.task).await;
        assert_eq!(
            (stored.state.clone(), answer(&stored)),
            (TaskState::Completed, "afterover".to_owned())
        );
        let after = line(&stored);
        for name in ["id", "number", "attempt"] {
            assert_eq!(after["turn"][name], before["turn"][name], "{name}");
        }
        assert_eq!(after["turn"]["resumed"], 1);
        assert!(after["turn"]["epoch"].as_u64() > before["turn"]["epoch"].as_u64());
        assert_eq!(after["session"], json!({ "length": 1, "items": ["kept"] }));
        assert_eq!(after["message"]["parts"][0]["text"], "turn say=after end=completed");
        let history: Vec<&Value> = after["history"].as_array().unwrap().iter().collect();
        assert_eq!(history.len(), 2, "what was asked, and the question: {history:?}");
        assert_eq!(history[1]["parts"][0]["text"], "beforeasks");
        let asked = history[1]["messageId"].as_str().unwrap();
        let answered = &stored.folded.status.message.as_ref().unwrap().message_id;
        assert_ne!(asked, answered, "no two messages of a turn have one id");
        assert!(second.stop().await);
        mark.until_gone().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_the_answer_goes_on_from_the_answer() {
    let (world, mark) = (World::start().await, Mark::new());
    let table = mark.driven("policy = \"restart\"");
    let worker = RunningWorker::start_with(&world.redis.url(), &[], &table).await;
    let turn = world
        .ask(
            "c-1",
            "say=before remember=kept suspend=input-required",
            CrashPolicy::Restart,
        )
        .await;
    let resumed = "remember=void say=void exit-before=2 turn say=after end=completed";
    world.answer(&turn, words(resumed)).await;
    let stored = world.until_over(turn.task).await;
    let told = line(&stored);
    assert_eq!(
        (&told["turn"]["attempt"], &told["turn"]["resumed"]),
        (&json!(2), &json!(1))
    );
    // What the driven agent has remembered since is in its own line.
    assert_eq!(told["session"]["items"], json!(["kept"]));
    assert_eq!(answer(&stored), "voidafterover", "said by the second attempt");
    let said: Vec<&str> = stored.history.iter().filter_map(|message| message.text()).collect();
    assert_eq!(said[1..], ["beforeasks", resumed]);
    assert!(worker.stop().await);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_process_goes_on_with_the_turn_that_it_suspended() {
    let (world, mark) = (World::start().await, Mark::new());
    let worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("keep = \"1m\"")).await;
    let turn = world.ask("c-1", "pid suspend=input-required", CrashPolicy::Fail).await;
    let asked = answer(&world.until_suspended(turn.task).await);
    let pid = asked.strip_suffix("asks").unwrap();
    world.answer(&turn, words("pid suspend=input-required")).await;
    // It asks again; the first question is history by then.
    relevo_testkit::poll::until("it asks again", || async {
        let stored = world.until_suspended(turn.task).await;
        if stored.number == 2 { Ok(()) } else { Err(stored.number) }
    })
    .await;
    world.answer(&turn, words("pid end=completed")).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(answer(&stored), format!("{pid}over"), "one process did it all");
    assert!(worker.stop().await);
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_states_that_wait_for_someone_suspend_a_turn() {
    let (world, mark) = (World::start().await, Mark::new());
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.driven("")).await;
    for (context, words) in [("1", "suspend=completed hold=60"), ("2", "suspend=working hold=60")] {
        let turn = world.ask(context, words, CrashPolicy::Fail).await;
        let stored = world.until_over(turn.task).await;
        assert_eq!(
            (&stored.state, reason(&stored)),
            (&TaskState::Failed, json!("agent_error"))
        );
    }
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_used_leaves_the_turn_suspended() {
    let world = World::start().await;
    let root = tempfile::tempdir().unwrap();
    let roots = root.path().display().to_string();
    let settings = [("workspace.roots", roots.as_str())];
    let file = "[agents.demo]\nkind = \"demo\"\nprofile = \"iac-code\"\n";
    let _worker = RunningWorker::start_file(&world.redis.url(), &settings, file).await;
    let sent = |text: &str| {
        let mut message = words(text);
        let facts = json!({ "cwd": root.path() });
        message.metadata = Some([("iac_code".to_owned(), facts)].into());
        message
    };
    let message = sent("chunks=1 suspend=input-required");
    let turn = world.record("c-1", "demo", CrashPolicy::Restart, message).await;
    let turn = world.submit(turn).await;
    world.until_suspended(turn.task).await;
    world.answer(&turn, sent(" ")).await;
    let stored = relevo_testkit::poll::until("it is suspended again", || async {
        let stored = world.until_suspended(turn.task).await;
        if stored.number == 2 {
            Ok(stored)
        } else {
            Err(stored.number)
        }
    })
    .await;
    assert_eq!(stored.state, TaskState::InputRequired);
    assert_eq!(answer(&stored), "A2A server currently accepts text input only.");
    world.answer(&turn, sent("yes")).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(answer(&stored), "yes");
}
