//! The examples of docs/agents.md are run as they stand.

use a2a::{Part, TaskState};
use relevo_shared::domain::record::CrashPolicy;
use relevo_shared::ids::Nonce;

use crate::fixture::{RunningWorker, World, answer};
use crate::process_harness::Mark;

const PYTHON: [&str; 2] = ["python3", "examples/python_agent.py"];
const FILES: [&str; 2] = ["python3", "examples/files_agent.py"];
const NODE: [&str; 2] = ["node", "examples/node_agent.mjs"];

#[test]
fn examples_are_short() {
    for [_, file] in [PYTHON, FILES, NODE] {
        let text = std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(text.lines().count() < 40, "{file}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_of_the_five_minutes_works() {
    let page = std::fs::read_to_string(format!("{}/../docs/agents.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (_, block) = page.split_once("```python\n").unwrap();
    let program: Vec<&str> = block
        .lines()
        .take_while(|line| line.trim() != "```")
        .map(str::trim_start)
        .collect();
    let (world, mark) = (World::start().await, Mark::new());
    let file = mark.path("echo.py");
    std::fs::write(&file, program.join("\n")).unwrap();
    let table = format!(
        "[a]\nkind = \"process\"\ncommand = [\"python3\", \"{}\"]\n",
        file.display()
    );
    let _worker = RunningWorker::start_with(&world.redis.url(), &[], &table).await;
    let turn = world.ask("c-1", "hello", CrashPolicy::Fail).await;
    assert_eq!(answer(&world.until_over(turn.task).await), "You said: hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_example_answers_and_knows_what_was_said() {
    for more in ["", "keep = \"10m\""] {
        let (world, mark) = (World::start().await, Mark::new());
        let worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.table(&PYTHON, more)).await;
        let first = world.ask("c-1", "hello there world", CrashPolicy::Fail).await;
        let stored = world.until_over(first.task).await;
        assert_eq!(
            (stored.state.clone(), answer(&stored)),
            (
                TaskState::Completed,
                "hello there world (message 1 of this task)".to_owned()
            )
        );
        assert_eq!(
            stored.folded.artifacts[0].parts[0],
            Part::data(serde_json::json!({"words": 3}))
        );
        assert!(worker.stop().await);
        mark.until_gone().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_with_files_hands_them_over_before_they_are_gone() {
    for more in ["", "keep = \"10m\""] {
        let (world, mark) = (World::start().await, Mark::new());
        let home = mark.path("home");
        std::fs::create_dir(&home).unwrap();
        let more = format!("cwd = {:?}\n{more}", home.display().to_string());
        let worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.table(&FILES, &more)).await;
        for context in ["c-1", "c-2"] {
            let turn = world.ask(context, "hello there", CrashPolicy::Fail).await;
            let stored = world.until_over(turn.task).await;
            assert_eq!(
                (stored.state.clone(), answer(&stored)),
                (TaskState::Completed, "2 words.".to_owned())
            );
            let part = &stored.folded.artifacts[0].parts[0];
            let report = Part::raw(b"0,hello\n1,there\n".to_vec())
                .with_filename("report.csv")
                .with_media_type("text/csv");
            assert_eq!(*part, report);
        }
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
        assert!(worker.stop().await);
        mark.until_gone().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_example_asks_answers_and_stops() {
    for more in ["", "keep = \"10m\""] {
        let (world, mark) = (World::start().await, Mark::new());
        let worker = RunningWorker::start_with(&world.redis.url(), &[], &mark.table(&NODE, more)).await;
        let first = world.ask("c-1", " ", CrashPolicy::Fail).await;
        let stored = world.until_over(first.task).await;
        assert_eq!(
            (stored.state.clone(), answer(&stored)),
            (TaskState::InputRequired, "Say something.".to_owned())
        );
        let second = world.ask_again(&first, "one two").await;
        let stored = world.until_over(second.task).await;
        assert_eq!(
            (stored.state.clone(), answer(&stored)),
            (TaskState::Completed, "ONE TWO (attempt 1)".to_owned())
        );
        assert_eq!(stored.folded.artifacts[0].parts[0].as_text(), Some("one\ntwo\n"));
        let long = world.ask("c-2", &"word ".repeat(10_000), CrashPolicy::Fail).await;
        world.until_entries(long.task, 5).await;
        let (context, partition) = world.store.place(&long.scope(), "c-2");
        world
            .store
            .request_cancel(partition, &context, long.turn, Nonce(7))
            .await
            .unwrap();
        assert_eq!(world.until_over(long.task).await.state, TaskState::Canceled);
        assert!(worker.stop().await);
        mark.until_gone().await;
    }
}
