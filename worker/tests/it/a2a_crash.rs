//! Workers that die, or stand still past their lease, in the middle of a turn on an A2A server: the next attempt goes on with the
//! task that the first one began, and our client sees one honest stream.

use std::time::Duration;

use a2a::{Message, Part, Role, StreamResponse, TaskState};
use relevo_shared::domain::class::Class;
use relevo_shared::domain::record::{CrashPolicy, TurnRecord};
use relevo_shared::store::SCRIPTS;
use relevo_testkit::{FaultProxy, Process, Scratch, poll};
use serde_json::Value;

use crate::a2a_upstream::{PIECES, Upstream, pieces};
use crate::fixture::{World, answer};

/// Workers on one Redis whose agent `a` is one server.
struct Scene {
    world: World,
    upstream: Upstream,
    scratch: Scratch,
}

impl Scene {
    async fn new(knows_keys: bool) -> Self {
        let scene = Self {
            world: World::start().await,
            upstream: Upstream::start(knows_keys),
            scratch: Scratch::new("a2a-crash"),
        };
        let table = format!("[agents.a]\nkind = \"a2a\"\nurl = {:?}\n", scene.upstream.url());
        let config = format!("[lease]\nttl = \"2s\"\n[egress]\nbreaker_failures = 2\nbreaker_pause = \"1h\"\n{table}");
        std::fs::write(scene.scratch.path().join("relevo.toml"), config).unwrap();
        scene
    }

    async fn worker_at(&self, redis: &str) -> Process {
        let config = self.scratch.path().join("relevo.toml");
        let args = [
            "--redis",
            redis,
            "--admin-listen",
            "127.0.0.1:0",
            "--config",
            config.to_str().unwrap(),
        ];
        let worker = Process::spawn_with_ready_file(env!("CARGO_BIN_EXE_relevo-worker"), &args, &[]);
        worker.ready().await;
        worker
    }

    async fn worker(&self) -> Process {
        self.worker_at(&self.world.redis.url()).await
    }

    /// A worker that reaches Redis through a proxy.
    async fn proxied(&self) -> (FaultProxy, Process) {
        let proxy = FaultProxy::start(self.world.redis.upstream());
        let worker = self.worker_at(&proxy.url()).await;
        (proxy, worker)
    }

    /// A turn as the gateway makes it for this agent.
    async fn ask(&self, policy: CrashPolicy) -> TurnRecord {
        let message = Message::new(Role::User, vec![Part::text("hello")]);
        let mut record = self.world.record("c-1", "a", policy, message).await;
        record.stop_after_crash = policy == CrashPolicy::Fail;
        self.world.submit(record.versioned()).await
    }

    fn sha(&self, script: &str) -> String {
        let script = SCRIPTS.iter().find(|known| known.name == script).unwrap();
        self.world.redis.cli(&["SCRIPT", "LOAD", &script.assembled()])
    }

    /// Waits until a session item says which upstream task is this turn's.
    async fn until_remembered(&self, turn: &TurnRecord) {
        let (context, partition) = self.world.store.place(&turn.scope(), &turn.context_id);
        poll::until("the upstream task is remembered", || async {
            let read = self
                .world
                .store
                .read_session_of_attempts(partition, &context, "a", turn.turn);
            let (_, items) = read.await.unwrap();
            if items.is_empty() { Err("no item") } else { Ok(()) }
        })
        .await;
    }

    async fn until_said(&self, turn: &TurnRecord, text: &str) {
        poll::until("so much is said", || async {
            let said = self.said(turn).await.pop().unwrap_or_default();
            if said == text { Ok(()) } else { Err(said) }
        })
        .await;
    }

    /// What was said of the artifact: by each attempt that said anything, as a client that follows the stream sees it.
    async fn said(&self, turn: &TurnRecord) -> Vec<String> {
        let mut said = vec![String::new()];
        for entry in self.world.journal(turn.task).await {
            if entry.kind.class == Class::Boundary {
                said.push(String::new());
            }
            if let StreamResponse::ArtifactUpdate(update) = serde_json::from_slice(&entry.bytes).unwrap() {
                let texts = update.artifact.parts.iter().filter_map(Part::as_text);
                said.last_mut().unwrap().extend(texts);
            }
        }
        said
    }

    /// The whole of it was said by the last attempt, once and in order; what an earlier one said was its beginning.
    async fn is_whole(&self, turn: &TurnRecord, moment: Moment) {
        let when = format!("{moment:?}");
        let stored = self.world.until_over(turn.task).await;
        assert_eq!(
            (stored.state.clone(), answer(&stored)),
            (TaskState::Completed, "done".to_owned()),
            "{when}"
        );
        let artifacts: Vec<String> = stored.folded.artifacts.iter().map(text).collect();
        assert_eq!(artifacts, [pieces(PIECES)], "{when}");
        let said = self.said(turn).await;
        // An attempt that has written nothing leaves nothing that is void.
        let attempts = if moment == Moment::Unwritten { 1 } else { 2 };
        assert_eq!(said.len(), attempts, "{when}: {said:?}");
        assert_eq!(said.last(), Some(&pieces(PIECES)), "{when}: {said:?}");
        assert!(pieces(PIECES).starts_with(&said[0]), "{when}: {said:?}");
    }
}

fn text(artifact: &a2a::Artifact) -> String {
    artifact.parts.iter().filter_map(Part::as_text).collect()
}

/// Where a turn stands when its worker dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The message is sent, and nothing is heard.
    Unanswered,
    /// The task is heard of, and not written down.
    Unwritten,
    /// The task is written down, and nothing of it is said.
    Remembered,
    /// Some of it is said.
    Streaming,
    /// The server is done, and the end of the turn is not written.
    Finished,
}

impl Moment {
    /// Whether nobody but the server knows the task.
    fn is_unknown(self) -> bool {
        matches!(self, Self::Unanswered | Self::Unwritten)
    }
}

/// Runs a turn to the moment, and says whose worker is to be lost.
async fn come_to(scene: &Scene, moment: Moment, policy: CrashPolicy) -> (TurnRecord, FaultProxy, Process) {
    let (proxy, worker) = scene.proxied().await;
    match moment {
        Moment::Unanswered => scene.upstream.keep_silent(),
        Moment::Unwritten => proxy.swallow_request(scene.sha("emit").as_bytes()),
        Moment::Finished => proxy.swallow_request(scene.sha("finish").as_bytes()),
        Moment::Remembered | Moment::Streaming => {}
    }
    let turn = scene.ask(policy).await;
    match moment {
        Moment::Unanswered => {
            scene.upstream.until_asked("SendStreamingMessage", 1).await;
            scene.world.until_entries(turn.task, 2).await;
        }
        Moment::Unwritten => {
            scene.upstream.until_asked("SendStreamingMessage", 1).await;
            until_held(&proxy).await;
        }
        Moment::Remembered => scene.until_remembered(&turn).await,
        Moment::Streaming => {
            scene.upstream.advance(4);
            scene.until_said(&turn, &pieces(4)).await;
        }
        Moment::Finished => {
            scene.upstream.finish();
            until_held(&proxy).await;
        }
    }
    (turn, proxy, worker)
}

async fn until_held(proxy: &FaultProxy) {
    poll::until("the worker is held up", || async {
        let held = proxy.swallowed();
        if held > 0 { Ok(()) } else { Err(held) }
    })
    .await;
}

fn methods(scene: &Scene) -> Vec<String> {
    scene.upstream.asked().into_iter().map(|asked| asked.method).collect()
}

async fn killed_at(moment: Moment) {
    let scene = Scene::new(true).await;
    let (turn, _proxy, worker) = come_to(&scene, moment, CrashPolicy::Restart).await;
    worker.kill();
    let _second = scene.worker().await;
    scene.upstream.speak();
    let when = format!("{moment:?}");
    if moment.is_unknown() {
        // Only the server can tell that it is the same message.
        scene.upstream.until_asked("SendStreamingMessage", 2).await;
    } else {
        scene.upstream.until_asked("GetTask", 1).await;
    }
    scene.upstream.finish();
    scene.is_whole(&turn, moment).await;
    assert_eq!(scene.upstream.begun(), 1, "{when}");
    let sent: Vec<_> = scene
        .upstream
        .asked()
        .into_iter()
        .filter(|asked| asked.method == "SendStreamingMessage")
        .collect();
    assert_eq!(sent.len(), if moment.is_unknown() { 2 } else { 1 }, "{when}");
    let id = turn.turn.to_string();
    assert!(
        sent.iter().all(|sent| sent.message == id && sent.key == id),
        "{when}: {sent:?}"
    );
    assert_eq!(scene.upstream.count("CancelTask"), 0, "{when}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_server_answers() {
    killed_at(Moment::Unanswered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_task_is_written_down() {
    killed_at(Moment::Unwritten).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_when_the_task_is_written_down() {
    killed_at(Moment::Remembered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_streams() {
    killed_at(Moment::Streaming).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_when_the_server_is_done_and_the_end_is_not_written() {
    killed_at(Moment::Finished).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_twice_the_third_attempt_still_finds_the_task() {
    let scene = Scene::new(true).await;
    let (turn, _proxy, first) = come_to(&scene, Moment::Streaming, CrashPolicy::Restart).await;
    first.kill();
    let second = scene.worker().await;
    scene.upstream.until_asked("SubscribeToTask", 1).await;
    scene.upstream.advance(7);
    scene.until_said(&turn, &pieces(7)).await;
    second.kill();
    let _third = scene.worker().await;
    scene.upstream.until_asked("SubscribeToTask", 2).await;
    scene.upstream.finish();
    let stored = scene.world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    assert_eq!(scene.said(&turn).await, [pieces(4), pieces(7), pieces(PIECES)]);
    assert_eq!(
        (scene.upstream.begun(), scene.upstream.count("SendStreamingMessage")),
        (1, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_attempt_waits_for_a_server_that_is_away() {
    let scene = Scene::new(true).await;
    let (turn, _proxy, worker) = come_to(&scene, Moment::Streaming, CrashPolicy::Restart).await;
    scene.upstream.leave();
    worker.kill();
    let second = scene.worker().await;
    // More often than the turn has attempts.
    scene.upstream.until_missed(5).await;
    scene.upstream.come_back();
    scene.upstream.finish();
    scene.is_whole(&turn, Moment::Streaming).await;
    assert_eq!(
        (scene.upstream.begun(), scene.upstream.count("SendStreamingMessage")),
        (1, 1)
    );
    assert_eq!(second.log().matches("an upstream server gives no answer").count(), 1);
    // The turn that waited has shut out no other.
    let other = scene.world.ask("c-2", "go", CrashPolicy::Fail).await;
    let stored = scene.world.until_over(other.task).await;
    assert_eq!(stored.state, TaskState::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_knows_no_keys_does_twice_what_was_lost_before_its_answer() {
    let scene = Scene::new(false).await;
    let (turn, _proxy, worker) = come_to(&scene, Moment::Unanswered, CrashPolicy::Restart).await;
    worker.kill();
    let _second = scene.worker().await;
    scene.upstream.until_asked("SendStreamingMessage", 2).await;
    scene.upstream.speak();
    scene.upstream.finish();
    scene.is_whole(&turn, Moment::Unanswered).await;
    assert_eq!(scene.upstream.begun(), 2, "what docs/agents.md says of such a server");
}

/// Waits until a worker that stood still knows that the turn is not its own any more.
async fn until_late(worker: &Process) {
    poll::until("the worker knows that it is too late", || async {
        let log = worker.log();
        if log.contains("turn over") { Ok(()) } else { Err(log) }
    })
    .await;
}

async fn stands_still_at(moment: Moment) {
    let scene = Scene::new(true).await;
    let (turn, _proxy, first) = come_to(&scene, moment, CrashPolicy::Restart).await;
    assert!(first.sigstop());
    let _second = scene.worker().await;
    if moment.is_unknown() {
        scene.upstream.until_asked("SendStreamingMessage", 2).await;
    } else {
        scene.upstream.until_asked("SubscribeToTask", 1).await;
    }
    scene.upstream.speak();
    scene.upstream.finish();
    let when = format!("{moment:?}");
    scene.is_whole(&turn, moment).await;
    let before = methods(&scene);
    // What the first one does when it wakes is of no consequence: to our client, nor to the server.
    assert!(first.sigcont());
    until_late(&first).await;
    assert!(first.sigterm());
    first.exited(Duration::from_secs(30)).await;
    scene.is_whole(&turn, moment).await;
    assert_eq!(scene.upstream.begun(), 1, "{when}");
    let after = methods(&scene);
    let harmless = |method: &String| method == "GetTask" || method == "SubscribeToTask";
    assert!(after[before.len()..].iter().all(harmless), "{when}: {after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stood_still_before_the_answer_does_nothing_twice() {
    stands_still_at(Moment::Unanswered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stood_still_while_it_streamed_does_nothing_twice() {
    stands_still_at(Moment::Streaming).await;
}

/// The facts of a turn that ended after its worker was lost under `policy = "fail"`.
async fn stopped_after(scene: &Scene, turn: &TurnRecord, when: &str) -> Value {
    let stored = scene.world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Failed, "{when}");
    let facts = &stored.folded.metadata["urn:relevo:a2a:turn:v1"];
    assert_eq!(facts["reason"], "attempts_exhausted", "{when}");
    let said = answer(&stored);
    assert!(
        said.ends_with("or its worker was lost, and this agent is never run twice."),
        "{said}"
    );
    assert_eq!(
        (scene.upstream.begun(), scene.upstream.count("SendStreamingMessage")),
        (1, 1),
        "{when}"
    );
    facts["stopped"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_not_run_twice_is_stopped_on_the_server_when_its_worker_is_lost() {
    let scene = Scene::new(true).await;
    let (turn, _proxy, worker) = come_to(&scene, Moment::Streaming, CrashPolicy::Fail).await;
    worker.kill();
    let _second = scene.worker().await;
    assert_eq!(stopped_after(&scene, &turn, "killed").await, "acknowledged");
    assert_eq!(scene.upstream.count("CancelTask"), 1);
    // What was said stays.
    let stored = scene.world.until_over(turn.task).await;
    let artifacts: Vec<String> = stored.folded.artifacts.iter().map(text).collect();
    assert_eq!((artifacts, scene.said(&turn).await), (vec![pieces(4)], vec![pieces(4)]));
    assert_eq!(scene.world.redis.cli(&["KEYS", "*dead*"]).lines().count(), 1);
    // The context is free.
    let next = scene.ask(CrashPolicy::Fail).await;
    scene.upstream.until_asked("SendStreamingMessage", 2).await;
    assert_eq!(scene.world.until_over(next.task).await.state, TaskState::Canceled);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_stopped_on_the_server_is_said_to_be_abandoned() {
    // Nobody knows the task; or the server has an error.
    for moment in [Moment::Unanswered, Moment::Streaming] {
        let scene = Scene::new(true).await;
        scene.upstream.refuse_cancels();
        let (turn, _proxy, worker) = come_to(&scene, moment, CrashPolicy::Fail).await;
        worker.kill();
        let _second = scene.worker().await;
        let when = format!("{moment:?}");
        assert_eq!(stopped_after(&scene, &turn, &when).await, "abandoned", "{when}");
        let asked = usize::from(moment == Moment::Streaming);
        assert_eq!(scene.upstream.count("CancelTask"), asked, "{when}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stood_still_changes_nothing_of_an_end_under_fail() {
    let scene = Scene::new(true).await;
    let (turn, _proxy, first) = come_to(&scene, Moment::Streaming, CrashPolicy::Fail).await;
    assert!(first.sigstop());
    let _second = scene.worker().await;
    assert_eq!(stopped_after(&scene, &turn, "stopped").await, "acknowledged");
    let before = scene.world.journal(turn.task).await.len();
    assert!(first.sigcont());
    until_late(&first).await;
    assert!(first.sigterm());
    first.exited(Duration::from_secs(30)).await;
    assert_eq!(stopped_after(&scene, &turn, "awake").await, "acknowledged");
    assert_eq!(scene.world.journal(turn.task).await.len(), before);
}
