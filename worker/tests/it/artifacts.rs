//! Large parts on their way to the artifact store: what goes there, what stays, and what happens when the store does not take it.

use std::path::Path;

use a2a::{Artifact, Part, PartContent, TaskState};
use relevo_shared::domain::event::TURN;
use relevo_shared::domain::fold::Entry;
use relevo_shared::domain::record::CrashPolicy;
use relevo_shared::ids::{Nonce, OwnerKey, TaskId, TurnId};
use relevo_shared::objects::Digest;
use relevo_shared::store::StoredTask;
use relevo_testkit::poll;
use serde_json::json;
use tempfile::TempDir;

use crate::fixture::{AS_USER, RunningWorker, World};

const BASE: (&str, &str) = ("artifacts.url_base", "https://files.example");

struct Stage {
    world: World,
    folder: TempDir,
}

impl Stage {
    async fn new() -> Self {
        Self {
            world: World::start().await,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    async fn worker(&self, settings: &[(&str, &str)]) -> RunningWorker {
        let store = format!("file://{}", self.root().display());
        let mut all = vec![("artifacts.store", store.as_str()), BASE];
        all.extend(settings);
        RunningWorker::start(&self.world.redis.url(), &all).await
    }

    /// What the demo agent makes of this, as an artifact of one file.
    async fn file(&self, context: &str, text: &str) -> (TaskId, StoredTask) {
        let turn = self.world.send(context, &format!("artifact=file nonce=q {text}")).await;
        (turn.task, self.world.until_over(turn.task).await)
    }

    /// Makes the store fail, or work again.
    fn away(&self) {
        std::fs::rename(self.root(), self.root().with_extension("aside")).unwrap();
        std::fs::write(self.root(), "no directory").unwrap();
    }

    fn back(&self) {
        std::fs::remove_file(self.root()).unwrap();
        std::fs::rename(self.root().with_extension("aside"), self.root()).unwrap();
    }

    fn objects(&self, task: TaskId) -> usize {
        std::fs::read_dir(self.root().join(task.to_string())).map_or(0, Iterator::count)
    }
}

fn only(artifacts: &[Artifact]) -> &Part {
    let [artifact] = artifacts else { panic!("{artifacts:?}") };
    let [part] = artifact.parts.as_slice() else {
        panic!("{artifact:?}")
    };
    part
}

fn reason(stored: &StoredTask) -> String {
    let metadata = &stored.folded.metadata;
    metadata.get(TURN).map_or_else(String::new, |facts| {
        facts["reason"].as_str().unwrap_or_default().to_owned()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn one_byte_more_than_fits_inside_is_a_file_in_the_store() {
    let stage = Stage::new().await;
    let worker = stage.worker(&[]).await;
    let (_, stored) = stage.file("c-0", "chunks=2 size=100").await;
    let PartContent::Raw(bytes) = &only(&stored.folded.artifacts).content else {
        panic!("{stored:?}")
    };
    let length = bytes.len();
    let bytes = bytes.clone();
    assert!(worker.stop().await);

    let worker = stage.worker(&[("artifacts.inline_max", &length.to_string())]).await;
    let (task, stored) = stage.file("c-1", "chunks=2 size=100").await;
    assert!(matches!(only(&stored.folded.artifacts).content, PartContent::Raw(_)));
    assert_eq!(stage.objects(task), 0);
    assert!(worker.stop().await);

    let worker = stage
        .worker(&[("artifacts.inline_max", &(length - 1).to_string())])
        .await;
    let (task, stored) = stage.file("c-2", "chunks=2 size=100").await;
    let digest = Digest::of(&bytes);
    let part = only(&stored.folded.artifacts);
    assert_eq!(
        serde_json::to_value(part).unwrap(),
        json!({
            "url": format!("https://files.example/artifacts/{task}/{digest}"),
            "filename": "q.bin",
            "mediaType": part.media_type,
            "metadata": { "byteSize": length, "sha256": digest.to_string() },
        })
    );
    let file = stage.root().join(task.to_string()).join(digest.to_string());
    assert_eq!(std::fs::read(file).unwrap(), bytes);
    let key = stage.world.store.keys().objects(task.partition());
    let noted = stage.world.redis.cli(&["ZSCORE", &key, &task.to_string()]);
    assert!(!noted.trim().is_empty(), "Redis knows of it");
    assert!((worker.metric("relevo_worker_artifacts_total", Some("stored")) - 1.0).abs() < 0.1);
    assert_eq!(
        worker.metric("relevo_worker_artifact_bytes_total", None).to_string(),
        length.to_string()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_larger_than_the_bounds_ends_its_turn() {
    let stage = Stage::new().await;
    let worker = stage.worker(&[("artifacts.inline_max", "1")]).await;
    let (_, stored) = stage.file("c-0", "chunks=2 size=1000").await;
    let size = only(&stored.folded.artifacts).metadata.as_ref().unwrap()["byteSize"].clone();
    let size = size.as_u64().unwrap();
    assert!(worker.stop().await);
    for (object, task, good) in [(size, size, true), (size - 1, size, false), (size, 2 * size - 1, true)] {
        let settings = [
            ("artifacts.inline_max", "1"),
            ("artifacts.object_bytes", &object.to_string()),
            ("artifacts.task_bytes", &task.to_string()),
        ];
        let worker = stage.worker(&settings).await;
        let (id, stored) = stage.file(&format!("c-{object}-{task}"), "chunks=2 size=1000").await;
        if good {
            assert_eq!(stored.state, TaskState::Completed);
            assert_eq!(stage.objects(id), 1);
        } else {
            assert_eq!(
                (stored.state.clone(), reason(&stored)),
                (TaskState::Failed, "output_limit".to_owned())
            );
            assert_eq!(stage.objects(id), 0);
        }
        assert!(worker.stop().await);
    }
}

/// An agent that makes a file of each length that it is told, as the text of the message.
const MAKER: &str = r#"
import json, sys, base64
for line in sys.stdin:
    turn = json.loads(line)
    if turn["type"] != "turn":
        continue
    text = turn["message"]["parts"][0]["text"]
    for n, length in enumerate(text.split()):
        raw = base64.b64encode(bytes([n % 250]) * int(length)).decode()
        part = {"raw": raw, "filename": f"{n}.bin", "mediaType": "x/y"}
        print(json.dumps({"type": "artifact", "artifact": {"artifactId": f"a{n}", "parts": [part]}}), flush=True)
    print(json.dumps({"type": "end", "state": "input-required", "message": {"parts": [{"data": ["x" * 3000]}, {"text": "t" * 3000, "mediaType": "text/x"}]}}), flush=True)
"#;

async fn maker(stage: &Stage, settings: &[(&str, &str)]) -> RunningWorker {
    let store = format!("file://{}", stage.root().display());
    let mut all = vec![("artifacts.store", store.as_str()), BASE];
    all.extend(settings);
    let command = toml::Value::try_from(["python3", "-c", MAKER]).unwrap();
    let agents =
        format!("[maker]\nkind = \"process\"\nmax_line = \"8MiB\"\npolicy = \"restart\"\ncommand = {command}\n");
    RunningWorker::start_with(&stage.world.redis.url(), &all, &agents).await
}

async fn make(stage: &Stage, context: &str, text: &str) -> (TaskId, StoredTask) {
    let message = a2a::Message::new(a2a::Role::User, vec![Part::text(text)]);
    let record = stage
        .world
        .record(context, "maker", CrashPolicy::Restart, message)
        .await;
    let turn = stage.world.submit(record).await;
    (turn.task, stage.world.until_over(turn.task).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_has_no_more_than_its_bound_and_equal_contents_once() {
    let stage = Stage::new().await;
    let settings = [
        ("artifacts.inline_max", "1KiB"),
        ("artifacts.object_bytes", "2KiB"),
        ("artifacts.task_bytes", "4KiB"),
    ];
    let _worker = maker(&stage, &settings).await;
    // 2000 and 2048 fit beside each other, and with a small one inside its event.
    let (task, stored) = make(&stage, "c-1", "2000 2048 1024").await;
    assert_eq!(stored.state, TaskState::InputRequired);
    assert_eq!(stage.objects(task), 2);
    let (task, stored) = make(&stage, "c-2", "2000 2048 1025").await;
    assert_eq!(
        (stored.state.clone(), reason(&stored)),
        (TaskState::Failed, "output_limit".to_owned())
    );
    assert_eq!(stage.objects(task), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_has_no_more_than_its_quota_in_all_its_tasks() {
    let stage = Stage::new().await;
    let settings = [
        ("artifacts.inline_max", "1KiB"),
        ("artifacts.object_bytes", "2KiB"),
        ("artifacts.task_bytes", "4KiB"),
        ("artifacts.principal_bytes", "4KiB"),
    ];
    let worker = maker(&stage, &settings).await;
    for (context, text, objects) in [("c-1", "2000", 1), ("c-2", "1024 2048", 1)] {
        let (task, stored) = make(&stage, context, text).await;
        assert_eq!(stored.state, TaskState::InputRequired, "{stored:?}");
        assert_eq!(stage.objects(task), objects);
    }
    let (task, stored) = make(&stage, "c-3", "1025").await;
    assert_eq!(
        (stored.state.clone(), reason(&stored), stage.objects(task)),
        (TaskState::Failed, "quota_exceeded".to_owned(), 0)
    );
    let words = crate::fixture::answer(&stored);
    assert!(
        words.contains("artifacts of 4KiB") && words.contains("have 4048 bytes"),
        "{words}"
    );
    assert!((worker.metric("relevo_worker_artifacts_total", Some("over_quota")) - 1.0).abs() < 0.1);
    // What stores nothing is not touched, and neither is somebody else.
    let (_, stored) = make(&stage, "c-4", "1024").await;
    assert_eq!(stored.state, TaskState::InputRequired);
    let message = a2a::Message::new(a2a::Role::User, vec![Part::text("2048")]);
    let record = stage.world.record("c-5", "maker", CrashPolicy::Restart, message);
    let mut record = record.await;
    record.sender.subject = "somebody".to_owned();
    let (_, partition) = stage.world.store.place(&record.scope(), "c-5");
    record.task = TaskId::new(record.submitted, partition, 1);
    record.turn = TurnId::new(record.submitted, partition, 2);
    let turn = stage.world.submit(record).await;
    assert_eq!(stage.world.until_over(turn.task).await.state, TaskState::InputRequired);
}

/// An agent that stores a file and dies, until its third attempt.
const DYING: &str = r#"
import base64, json, os, sys
turn = json.loads(sys.stdin.readline())
part = {"raw": base64.b64encode(b"x" * 2000).decode()}
print(json.dumps({"type": "artifact", "artifact": {"artifactId": "a", "parts": [part]}}), flush=True)
print(json.dumps({"type": "session", "items": [], "expect": turn["session"]["length"]}), flush=True)
sys.stdin.readline()
if turn["turn"]["attempt"] < 3:
    os._exit(3)
print(json.dumps({"type": "end"}), flush=True)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_run_again_is_counted_once() {
    let stage = Stage::new().await;
    let store = format!("file://{}", stage.root().display());
    let settings = [
        ("artifacts.store", store.as_str()),
        BASE,
        ("artifacts.inline_max", "1KiB"),
        ("artifacts.object_bytes", "2KiB"),
        ("artifacts.task_bytes", "2KiB"),
        ("artifacts.principal_bytes", "2KiB"),
    ];
    let command = toml::Value::try_from(["python3", "-c", DYING]).unwrap();
    let agents = format!("[maker]\nkind = \"process\"\npolicy = \"restart\"\ncommand = {command}\n");
    let worker = RunningWorker::start_with(&stage.world.redis.url(), &settings, &agents).await;
    let (task, stored) = make(&stage, "c-1", "x").await;
    assert_eq!((stored.state.clone(), stage.objects(task)), (TaskState::Completed, 1));
    let counted = stage.world.store.keys().used(&OwnerKey::of(""));
    let counted = |field: &str| stage.world.redis.cli(&["HGET", &counted, field]).trim().to_owned();
    assert_eq!(counted("sum"), "2000");
    assert!(counted(&task.to_string()).ends_with(" 2000"));
    let outcomes = ["stored", "known"].map(|outcome| worker.metric("relevo_worker_artifacts_total", Some(outcome)));
    assert_eq!(outcomes.map(|count| count.to_string()), ["1", "2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fits_into_no_event_goes_to_the_store_whatever_it_is() {
    let stage = Stage::new().await;
    let worker = maker(&stage, &[("turn.event_bytes", "6KiB"), ("turn.max_bytes", "1MiB")]).await;
    let (task, stored) = make(&stage, "c-1", "5000").await;
    assert_eq!(stored.state, TaskState::InputRequired, "{stored:?}");
    assert!(matches!(only(&stored.folded.artifacts).content, PartContent::Url(_)));
    let stored = worker.metric("relevo_worker_artifacts_total", Some("stored"));
    assert_eq!(stored.to_string(), stage.objects(task).to_string());
    // Without a store the same turn cannot be.
    assert!(worker.stop().await);
    let agents = format!(
        "[maker]\nkind = \"process\"\npolicy = \"restart\"\ncommand = {}\n",
        toml::Value::try_from(["python3", "-c", MAKER]).unwrap()
    );
    let limits = [("turn.event_bytes", "6KiB"), ("turn.max_bytes", "1MiB")];
    let _worker = RunningWorker::start_with(&stage.world.redis.url(), &limits, &agents).await;
    let (_, stored) = make(&stage, "c-2", "5000").await;
    assert_eq!(reason(&stored), "output_limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_holds_the_turn_up_and_costs_it_nothing() {
    let stage = Stage::new().await;
    let _worker = stage.worker(&[("artifacts.inline_max", "1")]).await;
    stage.away();
    let turn = stage.world.send("c-1", "artifact=file nonce=q chunks=2 size=100").await;
    stage.world.until_entries(turn.task, 2).await;
    stage.back();
    let stored = stage.world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    assert!(matches!(only(&stored.folded.artifacts).content, PartContent::Url(_)));
    assert_eq!(stage.objects(turn.task), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_for_the_store_can_be_cancelled_and_handed_over() {
    let stage = Stage::new().await;
    let worker = stage
        .worker(&[
            ("artifacts.inline_max", "1"),
            ("drain.delay", "0s"),
            ("drain.deadline", "2s"),
        ])
        .await;
    stage.away();
    let turn = stage.world.send("c-1", "artifact=file nonce=q chunks=2 size=100").await;
    stage.world.until_entries(turn.task, 2).await;
    let (context, partition) = stage.world.store.place(&turn.scope(), "c-1");
    let asked = stage
        .world
        .store
        .request_cancel(partition, &context, turn.turn, Nonce(7));
    asked.await.unwrap();
    assert_eq!(stage.world.until_over(turn.task).await.state, TaskState::Canceled);

    let turn = stage.world.send("c-2", "artifact=file nonce=q chunks=2 size=100").await;
    stage.world.until_entries(turn.task, 2).await;
    worker.stop().await;
    stage.back();
    let _worker = stage.worker(&[("artifacts.inline_max", "1")]).await;
    assert_eq!(stage.world.until_over(turn.task).await.state, TaskState::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_and_not_written_is_stored_once() {
    let stage = Stage::new().await;
    stage.world.permit("+evalsha");
    let mut settings = vec![("artifacts.inline_max", "1")];
    settings.extend(AS_USER);
    let worker = stage.worker(&settings).await;
    stage.away();
    let turn = stage.world.send("c-1", "artifact=file nonce=q chunks=2 size=100").await;
    stage.world.until_entries(turn.task, 2).await;
    poll::until("the store is asked", async || {
        let key = stage.world.store.keys().objects(turn.task.partition());
        let noted = stage.world.redis.cli(&["ZCARD", &key]);
        if noted.contains('1') { Ok(()) } else { Err(noted) }
    })
    .await;
    stage.world.permit("-evalsha");
    stage.back();
    // It is in the store, and the journal does not take it: the attempt is given up.
    worker.until_refused("emit").await;
    worker.until_refused("read_context").await;
    assert_eq!(stage.objects(turn.task), 1);
    let journal = stage.world.journal(turn.task).await;
    let says = |entry: &Entry| String::from_utf8_lossy(&entry.bytes).contains("artifactUpdate");
    assert!(!journal.iter().any(says));
    stage.world.permit("+evalsha");
    let stored = stage.world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    assert!(matches!(only(&stored.folded.artifacts).content, PartContent::Url(_)));
    assert_eq!(stage.objects(turn.task), 1);
    let outcomes = ["stored", "known"].map(|outcome| worker.metric("relevo_worker_artifacts_total", Some(outcome)));
    assert_eq!(outcomes.map(|count| count.to_string()), ["1", "1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_servers_urls_name_files() {
    let stage = Stage::new().await;
    let _worker = stage
        .worker(&[("artifacts.inline_max", "1"), ("compat.seed", "true")])
        .await;
    let (task, stored) = stage.file("c-1", "chunks=2 size=100").await;
    let part = only(&stored.folded.artifacts);
    let PartContent::Url(url) = &part.content else {
        panic!("{part:?}")
    };
    let path = url::Url::parse(url).unwrap().to_file_path().unwrap();
    assert!(path.starts_with(stage.root().join(task.to_string())), "{url}");
    let metadata = part.metadata.as_ref().unwrap();
    assert_eq!(metadata["uri"], json!(url));
    assert_eq!(
        metadata["sha256"],
        json!(Digest::of(&std::fs::read(path).unwrap()).to_string())
    );
}
