//! Files that a program names: what is taken of them, and how, and what a hostile one does not get.

use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use a2a::{Message, Part, PartContent, Role, TaskState};
use relevo_shared::domain::event::TURN;
use relevo_shared::domain::record::CrashPolicy;
use relevo_shared::ids::{Nonce, OwnerKey, TaskId};
use relevo_shared::objects::Digest;
use relevo_shared::store::StoredTask;
use relevo_testkit::{Process, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixture::{RunningWorker, World, answer};

/// Makes an artifact of the parts that its message lists; `then` is run in Python first.
const NAMER: &str = r#"
import json, os, sys, threading
for line in sys.stdin:
    turn = json.loads(line)
    if turn["type"] != "turn":
        continue
    wish = json.loads(turn["message"]["parts"][0]["text"])
    exec(wish.get("then", ""))
    print(json.dumps({"type": "artifact", "artifact": {"artifactId": "a", "parts": wish["parts"]}}), flush=True)
    print(json.dumps({"type": "end", "message": {"parts": [{"text": "done"}]}}), flush=True)
"#;

const BASE: (&str, &str) = ("artifacts.url_base", "https://files.example");

struct Stage {
    world: World,
    store: TempDir,
    home: TempDir,
}

impl Stage {
    async fn new() -> Self {
        Self {
            world: World::start().await,
            store: tempfile::tempdir().unwrap(),
            home: tempfile::tempdir().unwrap(),
        }
    }

    fn home(&self) -> PathBuf {
        self.home.path().canonicalize().unwrap()
    }

    /// A worker with a store, and the agent in its workspace.
    async fn worker(&self, more: &[(&str, &str)]) -> RunningWorker {
        let store = format!("file://{}", self.store.path().display());
        let mut settings = vec![("artifacts.store", store.as_str()), BASE];
        settings.extend(more);
        self.worker_in(&self.home(), &settings).await
    }

    async fn worker_in(&self, home: &Path, settings: &[(&str, &str)]) -> RunningWorker {
        let command = toml::Value::try_from(["python3", "-c", NAMER]).unwrap();
        let agents = format!(
            "[a]\nkind = \"process\"\nmax_line = \"16MiB\"\ncommand = {command}\ncwd = {:?}\n",
            home.display().to_string()
        );
        RunningWorker::start_with(&self.world.redis.url(), settings, &agents).await
    }

    async fn make(&self, context: &str, wish: &Value) -> (TaskId, StoredTask) {
        let turn = self.world.ask(context, &wish.to_string(), CrashPolicy::Fail).await;
        (turn.task, self.world.until_over(turn.task).await)
    }

    fn objects(&self, task: TaskId) -> Vec<PathBuf> {
        let Ok(found) = std::fs::read_dir(self.store.path().join(task.to_string())) else {
            return Vec::new();
        };
        found.map(|entry| entry.unwrap().path()).collect()
    }

    /// Whether no event says where anything lies.
    async fn says_no_directory(&self, task: TaskId) -> bool {
        let home = self.home().display().to_string();
        let journal = self.world.journal(task).await;
        // The first repeats the message, which is the client's.
        !journal[1..]
            .iter()
            .any(|entry| String::from_utf8_lossy(&entry.bytes).contains(&home))
    }
}

fn reason(stored: &StoredTask) -> &str {
    let facts = stored.folded.metadata.get(TURN);
    facts.and_then(|facts| facts["reason"].as_str()).unwrap_or_default()
}

fn parts(stored: &StoredTask) -> &[Part] {
    stored.folded.artifacts.first().map_or(&[], |artifact| &artifact.parts)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_kept_in_the_store_and_named_by_their_content() {
    let stage = Stage::new().await;
    let worker = stage.worker(&[]).await;
    let home = stage.home();
    std::fs::create_dir(home.join("out")).unwrap();
    // More than one piece, and of a length that ends none.
    let large: Vec<u8> = (0..=250).cycle().take((9 << 20) + 7).collect();
    let contents = [
        ("out/plan.pdf", b"plan".to_vec()),
        ("large", large),
        ("empty.txt", Vec::new()),
    ];
    for (name, content) in &contents {
        std::fs::write(home.join(name), content).unwrap();
    }
    symlink("out/plan.pdf", home.join("link.md")).unwrap();
    let wish = json!({ "parts": [
        { "file": "out/plan.pdf", "metadata": { "sha256": "mine", "k": 1 } },
        { "text": "between" },
        { "file": home.join("large"), "filename": "big.tar", "mediaType": "x/y" },
        { "file": "./out/../empty.txt" },
        { "file": "link.md" },
    ] });
    let (task, stored) = stage.make("c-1", &wish).await;
    assert_eq!(
        (stored.state.clone(), answer(&stored)),
        (TaskState::Completed, "done".to_owned())
    );
    let expected = |content: &[u8], filename: &str, media_type: &str| {
        let digest = Digest::of(content).to_string();
        json!({
            "url": format!("https://files.example/artifacts/{task}/{digest}"),
            "filename": filename,
            "mediaType": media_type,
            "metadata": { "byteSize": content.len(), "sha256": digest },
        })
    };
    let found: Vec<Value> = parts(&stored)
        .iter()
        .map(|part| serde_json::to_value(part).unwrap())
        .collect();
    let mut plan = expected(&contents[0].1, "plan.pdf", "application/pdf");
    plan["metadata"]["k"] = json!(1);
    assert_eq!(
        found,
        [
            plan,
            json!({ "text": "between" }),
            expected(&contents[1].1, "big.tar", "x/y"),
            expected(&contents[2].1, "empty.txt", "text/plain"),
            expected(&contents[0].1, "link.md", "text/markdown"),
        ]
    );
    let objects = stage.objects(task);
    assert_eq!(objects.len(), 3);
    for object in objects {
        let content = std::fs::read(&object).unwrap();
        assert_eq!(
            object.file_name().unwrap().to_str().unwrap(),
            Digest::of(&content).to_string()
        );
    }
    assert!(stage.says_no_directory(task).await);
    let outcomes = ["stored", "known"].map(|outcome| worker.metric("relevo_worker_artifacts_total", Some(outcome)));
    assert_eq!(outcomes.map(|count| count.to_string()), ["3", "1"]);
}

const OUTSIDE: &str = "lies outside of the workspace";
const NO_FILE: &str = "is no regular file that the worker may read";
const MISSING: &str = "does not exist";
const HOLES: &str = "has 4398046511104 bytes; artifacts.object_bytes is 64KiB";
const LARGE: &str = "has 65537 bytes; artifacts.object_bytes is 64KiB";

/// What is named, what of it clients are told, what is wrong with it, and the reason.
const REFUSED: [(&str, &str, &str, &str); 15] = [
    ("link", "link", OUTSIDE, "agent_error"),
    ("folder/secret", "secret", OUTSIDE, "agent_error"),
    ("../x", "x", OUTSIDE, "agent_error"),
    ("/etc/passwd", "passwd", OUTSIDE, "agent_error"),
    ("environ", "environ", OUTSIDE, "agent_error"),
    ("zero", "zero", OUTSIDE, "agent_error"),
    ("a\0b", "a\\0b", OUTSIDE, "agent_error"),
    ("loop", "loop", NO_FILE, "agent_error"),
    ("dir", "dir", NO_FILE, "agent_error"),
    ("pipe", "pipe", NO_FILE, "agent_error"),
    ("socket", "socket", NO_FILE, "agent_error"),
    ("missing", "missing", MISSING, "agent_error"),
    ("closed/x", "x", NO_FILE, "agent_error"),
    ("holes", "holes", HOLES, "output_limit"),
    ("more", "more", LARGE, "output_limit"),
];

/// Puts everything there that a hostile program would name.
fn furnish(home: &Path, outside: &Path) {
    std::fs::write(outside.join("secret"), "outside").unwrap();
    for (to, name) in [
        (outside.join("secret"), "link"),
        (outside.to_owned(), "folder"),
        ("/proc/self/environ".into(), "environ"),
        ("/dev/zero".into(), "zero"),
        ("loop".into(), "loop"),
    ] {
        symlink(to, home.join(name)).unwrap();
    }
    std::fs::create_dir(home.join("dir")).unwrap();
    mknodat(CWD, home.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    drop(std::os::unix::net::UnixListener::bind(home.join("socket")).unwrap());
    let holes = std::fs::File::create(home.join("holes")).unwrap();
    holes.set_len(4 << 40).unwrap();
    for (name, length) in [
        ("closed", 1),
        ("most", 64 << 10),
        ("more", (64 << 10) + 1),
        ("half", 40 << 10),
    ] {
        std::fs::write(home.join(name), vec![1; length]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_file_of_the_workspace_is_refused_with_its_name_only() {
    let stage = Stage::new().await;
    let limits = [("artifacts.object_bytes", "64KiB"), ("artifacts.task_bytes", "100KiB")];
    let worker = stage.worker(&limits).await;
    let outside = tempfile::tempdir().unwrap();
    furnish(&stage.home(), outside.path());
    for (n, (file, name, what, why)) in REFUSED.into_iter().enumerate() {
        let (task, stored) = stage
            .make(&format!("c-{n}"), &json!({ "parts": [{ "file": file }] }))
            .await;
        assert_eq!(
            (stored.state.clone(), reason(&stored), answer(&stored)),
            (TaskState::Failed, why, format!("The agent's file \"{name}\" {what}."))
        );
        assert_eq!(stage.objects(task), Vec::<PathBuf>::new(), "{name}");
        assert!(stage.says_no_directory(task).await, "{name}");
    }
    let both = json!({ "parts": [{ "file": "most" }, { "file": "half" }] });
    let (task, stored) = stage.make("both", &both).await;
    assert_eq!(reason(&stored), "output_limit");
    assert!(
        answer(&stored).contains("artifacts.task_bytes, 100KiB"),
        "{}",
        answer(&stored)
    );
    assert_eq!(stage.objects(task).len(), 1);
    // A part with two contents is no line of the protocol.
    let two = json!({ "parts": [{ "file": "most", "text": "x" }] });
    let (_, stored) = stage.make("two", &two).await;
    assert_eq!(
        (stored.state.clone(), reason(&stored)),
        (TaskState::Failed, "agent_error")
    );
    assert!(worker.metric("relevo_worker_artifacts_total", Some("refused")) > 12.5);
    assert!(worker.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_all_the_time_is_taken_as_it_was_or_not_at_all() {
    let stage = Stage::new().await;
    let worker = stage.worker(&[("artifacts.principal_bytes", "1GiB")]).await;
    let counted = stage.world.store.keys().used(&OwnerKey::of(""));
    let mut kept = 0;
    std::fs::write(stage.home().join("a"), vec![0; 12 << 20]).unwrap();
    let then = "
file = open('a', 'r+b', buffering=0)
def flip():
    n = 0
    while True:
        n += 1
        file.seek(n * 4096 % (12 << 20)); file.write(bytes([n % 251]))
threading.Thread(target=flip, daemon=True).start()
";
    for n in 0..4 {
        let (task, stored) = stage
            .make(&format!("c-{n}"), &json!({ "then": then, "parts": [{ "file": "a" }] }))
            .await;
        if stored.state == TaskState::Failed {
            assert_eq!(answer(&stored), "The agent's file \"a\" changed while it was read.");
        }
        for object in stage.objects(task) {
            let content = std::fs::read(&object).unwrap();
            let name = object.file_name().unwrap().to_str().unwrap().to_owned();
            // What was given up may be on its way out.
            if !name.contains('#') {
                assert_eq!(name, Digest::of(&content).to_string());
                kept += content.len();
            }
        }
        // What was not taken is not charged for; a turn that stored nothing may have counted nothing.
        let sum = stage.world.redis.cli(&["HGET", &counted, "sum"]);
        assert_eq!(sum.trim().parse().unwrap_or(0), kept);
    }
    assert!(worker.stop().await);
    for folder in std::fs::read_dir(stage.store.path()).unwrap() {
        for object in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let name = object.unwrap().file_name();
            assert!(!name.to_string_lossy().contains('#'), "{name:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_store_a_file_is_inside_its_event_as_far_as_it_fits() {
    let stage = Stage::new().await;
    let settings = [("turn.event_bytes", "16KiB"), ("turn.max_bytes", "64KiB")];
    let _worker = stage.worker_in(&stage.home(), &settings).await;
    // An event's envelope has 4 KiB; three bytes are four of base64.
    let most = ((16 << 10) - (4 << 10)) / 4 * 3;
    std::fs::write(stage.home().join("most"), vec![1; most]).unwrap();
    std::fs::write(stage.home().join("more"), vec![2; most + 1]).unwrap();
    let (task, stored) = stage.make("c-1", &json!({ "parts": [{ "file": "most" }] })).await;
    assert_eq!(stored.state, TaskState::Completed, "{}", answer(&stored));
    assert_eq!(parts(&stored)[0].content, PartContent::Raw(vec![1; most]));
    assert_eq!(parts(&stored)[0].filename.as_deref(), Some("most"));
    assert!(stage.says_no_directory(task).await);
    let (_, stored) = stage.make("c-2", &json!({ "parts": [{ "file": "more" }] })).await;
    assert_eq!(reason(&stored), "output_limit");
    let text = answer(&stored);
    assert!(
        text.contains(&format!("{} bytes", most + 1)) && text.contains("turn.event_bytes"),
        "{text}"
    );
    // Any number of them is no more in memory than the turn may produce.

    let (_, stored) = stage
        .make(
            "c-3",
            &json!({ "then": "wish['parts'] *= 1000", "parts": [{ "file": "most" }] }),
        )
        .await;
    assert_eq!(reason(&stored), "output_limit");
    assert!(answer(&stored).contains("turn.max_bytes"), "{}", answer(&stored));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directory_of_the_context_counts_where_there_is_one() {
    let stage = Stage::new().await;
    let workspace = tempfile::tempdir().unwrap();
    let workspace = workspace.path().canonicalize().unwrap();
    std::fs::write(workspace.join("there"), "there").unwrap();
    std::fs::write(stage.home().join("here"), "here").unwrap();
    let command = toml::Value::try_from(["python3", "-c", NAMER]).unwrap();
    let agents = format!(
        "[a]\nkind = \"process\"\nprofile = \"iac-code\"\ncommand = {command}\ncwd = {:?}\n",
        stage.home().display().to_string()
    );
    let roots = workspace.display().to_string();
    let settings = [("workspace.roots", roots.as_str())];
    let _worker = RunningWorker::start_with(&stage.world.redis.url(), &settings, &agents).await;
    for (context, file, good) in [("c-1", "there", true), ("c-2", "here", false)] {
        let file = if good {
            file.to_owned()
        } else {
            stage.home().join(file).display().to_string()
        };
        let wish = json!({ "parts": [{ "file": file }] });
        let mut message = Message::new(Role::User, vec![Part::text(wish.to_string())]);
        let cwd = json!({ "cwd": workspace });
        message.metadata = Some([("iac_code".to_owned(), cwd)].into());
        let record = stage.world.record(context, "a", CrashPolicy::Fail, message).await;
        let turn = stage.world.submit(record).await;
        let stored = stage.world.until_over(turn.task).await;
        assert_eq!(parts(&stored).len(), usize::from(good), "{}", answer(&stored));
        assert_eq!(reason(&stored), if good { "" } else { "agent_error" });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_in_the_root_directory_has_no_workspace() {
    let stage = Stage::new().await;
    let _worker = stage.worker_in(Path::new("/"), &[]).await;
    let (_, stored) = stage.make("c-1", &json!({ "parts": [{ "file": "etc/passwd" }] })).await;
    assert_eq!(
        (stored.state.clone(), reason(&stored)),
        (TaskState::Failed, "agent_error")
    );
    assert_eq!(parts(&stored), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_cut_in_the_middle_of_a_file_leaves_nothing_half_written_and_its_next_attempt_stores_it() {
    let stage = Stage::new().await;
    let settings = [("drain.delay", "0s"), ("drain.deadline", "2s")];
    let store = format!("file://{}", stage.store.path().display());
    let mut all = vec![("artifacts.store", store.as_str()), BASE];
    all.extend(settings);
    let command = toml::Value::try_from(["python3", "-c", NAMER]).unwrap();
    let agents = format!(
        "[a]\nkind = \"process\"\npolicy = \"restart\"\ncommand = {command}\ncwd = {:?}\n",
        stage.home().display().to_string()
    );
    let worker = RunningWorker::start_with(&stage.world.redis.url(), &all, &agents).await;
    std::fs::write(stage.home().join("a"), vec![7; 9 << 20]).unwrap();
    // The store does not take it now.
    std::fs::rename(stage.store.path(), stage.store.path().with_extension("aside")).unwrap();
    std::fs::write(stage.store.path(), "no directory").unwrap();
    let wish = json!({ "parts": [{ "file": "a" }] }).to_string();
    let cancelled = stage.world.ask("c-1", &wish, CrashPolicy::Restart).await;
    let moved = stage.world.ask("c-2", &wish, CrashPolicy::Restart).await;
    for turn in [&cancelled, &moved] {
        stage.world.until_entries(turn.task, 2).await;
    }
    let (context, partition) = stage.world.store.place(&cancelled.scope(), "c-1");
    let asked = stage
        .world
        .store
        .request_cancel(partition, &context, cancelled.turn, Nonce(7));
    asked.await.unwrap();
    assert_eq!(stage.world.until_over(cancelled.task).await.state, TaskState::Canceled);
    worker.stop().await;
    std::fs::remove_file(stage.store.path()).unwrap();
    std::fs::rename(stage.store.path().with_extension("aside"), stage.store.path()).unwrap();
    assert_eq!(stage.objects(cancelled.task).len() + stage.objects(moved.task).len(), 0);
    let _worker = RunningWorker::start_with(&stage.world.redis.url(), &all, &agents).await;
    let stored = stage.world.until_over(moved.task).await;
    assert_eq!((stored.state.clone(), parts(&stored).len()), (TaskState::Completed, 1));
    assert_eq!(stage.objects(moved.task).len(), 1);
}

/// The system kills the worker with a signal as soon as what it stores is larger than the limit: in the middle of it, always.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_killed_in_the_middle_of_a_file_has_left_goes_with_the_task() {
    let stage = Stage::new().await;
    let command = toml::Value::try_from(["python3", "-c", NAMER]).unwrap();
    let config = stage.home().join("relevo.toml");
    let text = format!(
        "[lease]\nttl = \"2s\"\n[retention]\ntask = \"1s\"\nidle = \"1s\"\njournal = \"1s\"\nidempotency = \"1s\"\n[artifacts]\nstore = \"file://{}\"\nurl_base = {:?}\n\
         [agents.a]\nkind = \"process\"\npolicy = \"restart\"\ncommand = {command}\ncwd = {:?}\n",
        stage.store.path().display(),
        BASE.1,
        stage.home(),
    );
    std::fs::write(&config, text).unwrap();
    std::fs::write(stage.home().join("a"), vec![7; 12 << 20]).unwrap();
    let (url, config) = (stage.world.redis.url(), config.display().to_string());
    let args = ["--redis", &url, "--admin-listen", "127.0.0.1:0", "--config", &config];
    let worker = || Process::spawn_with_ready_file(env!("CARGO_BIN_EXE_relevo-worker"), &args, &[]);
    let first = worker();
    first.ready().await;
    let pid = Pid::from_raw(first.pid().cast_signed()).unwrap();
    for (resource, most) in [(Resource::Fsize, 10 << 20), (Resource::Core, 0)] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        prlimit(Some(pid), resource, limit).unwrap();
    }
    let wish = json!({ "parts": [{ "file": "a" }] }).to_string();
    let turn = stage.world.ask("c-1", &wish, CrashPolicy::Restart).await;
    let ended = first.exited(Duration::from_mins(1)).await;
    assert_eq!(ended.signal(), Some(Signal::XFSZ.as_raw()), "{}", first.log());
    let half = stage.objects(turn.task);
    assert_eq!(half.len(), 1);
    assert!(half[0].metadata().unwrap().len() < 12 << 20);
    let second = worker();
    second.ready().await;
    let stored = stage.world.until_over(turn.task).await;
    assert_eq!((stored.state.clone(), parts(&stored).len()), (TaskState::Completed, 1));
    poll::until("nothing of the task is left", || async {
        let left = stage.objects(turn.task);
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
}
