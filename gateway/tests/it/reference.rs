//! The reference server's rules with a real worker: every row of its error table, and what it once did wrong.

use std::fs;

use relevo_testkit::chat_model::{ChatModel, whole};
use relevo_testkit::{Process, RedisServer, Scratch, binary};
use serde_json::{Value, json};

use crate::binding::{ALL, Binding, Caller};
use crate::client::message;
use crate::gateway::Gateway;

const DEMO: &str = "[agents.iac]\nkind = \"demo\"\nprofile = \"iac-code\"\n";
/// A program that breaks off and tells its operator why.
const BROKEN: &str = "[agents.iac]\nkind = \"process\"\nprofile = \"iac-code\"\n\
    command = [\"sh\", \"-c\", \"read line; echo 'RuntimeError: /srv/secret-path token=s3cr3t' >&2; exit 3\"]\n";
const REQUIRING: &str = "[agents.iac]\nkind = \"demo\"\nprofile = \"strict\"\n[profiles.strict]\nbase = \"iac-code\"\n\
    [[profiles.strict.extensions]]\nuri = \"urn:example:needed:v1\"\nrequired = true\n";
const KEPT: &str = "[principals.ann]\ntoken = \"a-token-of-anns\"\n";

/// A gateway in this process and a worker in one of its own, with the profile of the reference server.
pub struct Cluster {
    pub gateway: Gateway,
    // ORDER: the worker goes before its Redis and its files.
    worker: Process,
    _redis: RedisServer,
    files: Scratch,
}

impl Cluster {
    pub async fn start(agents: &str, settings: &[(&str, &str)]) -> Self {
        let (redis, files) = (RedisServer::start(), Scratch::new("reference"));
        let workspace = files.path().canonicalize().unwrap();
        fs::create_dir(workspace.join("ws")).unwrap();
        let config = workspace.join("relevo.toml");
        let roots = format!("[workspace]\nroots = [\"{}\"]\n", workspace.join("ws").display());
        fs::write(&config, format!("{agents}{roots}")).unwrap();
        let args = ["--config", config.to_str().unwrap(), "--redis", &redis.url()];
        let worker = Process::spawn_with_ready_file(
            binary("relevo-worker"),
            &args,
            &[("RELEVO_ADMIN_LISTEN", "127.0.0.1:0"), ("RELEVO_DRAIN_DELAY", "0s")],
        );
        let gateway = Gateway::start_with(&redis.url(), agents, settings).await;
        worker.ready().await;
        Self {
            gateway,
            worker,
            _redis: redis,
            files,
        }
    }

    /// The demo agent.
    pub async fn demo() -> Self {
        Self::start(DEMO, &[("compat.seed", "true")]).await
    }

    /// A directory that messages may be about.
    pub fn workspace(&self) -> String {
        let workspace = self.files.path().canonicalize().unwrap().join("ws");
        workspace.to_str().unwrap().to_owned()
    }

    fn log(&self) -> String {
        self.worker.log()
    }
}

/// What a row of the table comes to.
enum Outcome {
    /// These parts, about this directory, end the task FAILED with these words.
    Failed(Value, Option<&'static str>, &'static str),
    /// These parts are refused with this reason.
    Refused(Value, &'static str),
    /// On a gateway with this configuration, with these headers.
    Elsewhere(&'static str, &'static [(&'static str, &'static str)], &'static str),
    /// The worker's program breaks off.
    Broken,
    /// The server of the worker's model refuses its credentials, and quotes them.
    Keyless,
    /// Nothing here can come to it.
    Impossible(&'static str),
}

/// The table as it stands in the reference, row by row.
fn table() -> [(&'static str, Vec<Outcome>); 10] {
    use Outcome::{Broken, Elsewhere, Failed, Impossible, Keyless, Refused};
    let text_only = "A2A server currently accepts text input only.";
    let invalid = "Invalid A2A workspace metadata.";
    let of = |part: Value| json!([part]);
    [
        (
            "Entrada de texto vacía",
            vec![
                Failed(of(json!({ "text": "" })), None, text_only),
                Failed(of(json!({ "text": " \n" })), None, text_only),
            ],
        ),
        (
            "Tipo de medio no soportado",
            vec![
                Refused(
                    of(json!({ "text": "a", "mediaType": "video/mp4" })),
                    "CONTENT_TYPE_NOT_SUPPORTED",
                ),
                Failed(
                    of(json!({ "text": "a", "mediaType": "image/png" })),
                    None,
                    "A2A part has unsupported media type.",
                ),
            ],
        ),
        (
            "Parte de URL remota",
            vec![Failed(
                of(json!({ "url": "https://example.com/a.txt", "mediaType": "text/plain" })),
                None,
                "A2A file URL parts must use local file:// URLs.",
            )],
        ),
        (
            "URL de archivo fuera del espacio de trabajo permitido",
            vec![Failed(
                of(json!({ "url": "file:///etc/passwd", "mediaType": "text/plain" })),
                None,
                "A2A file URL part is outside the allowed workspace.",
            )],
        ),
        (
            "Extensión A2A requerida ausente",
            vec![Elsewhere(REQUIRING, &[], "EXTENSION_SUPPORT_REQUIRED")],
        ),
        (
            "Metadatos de espacio de trabajo no válidos",
            vec![
                Failed(of(json!({ "text": "a" })), Some("/etc"), invalid),
                Failed(of(json!({ "text": "a" })), Some("not/absolute"), invalid),
                Failed(of(json!({ "text": "a" })), Some("/nowhere/at/all"), invalid),
            ],
        ),
        (
            "Autenticación ausente o no válida",
            vec![
                Elsewhere(KEPT, &[], "UNAUTHENTICATED"),
                Elsewhere(KEPT, &[("authorization", "Bearer another")], "UNAUTHENTICATED"),
            ],
        ),
        (
            "Dependencias del servidor A2A ausentes",
            vec![Impossible(
                "the server is one program with nothing to install beside it",
            )],
        ),
        ("Credenciales de proveedor ausentes", vec![Keyless]),
        ("Error inesperado de runtime", vec![Broken]),
    ]
}

fn sent(parts: Value, cwd: &str) -> Value {
    let mut params = message("");
    params["message"]["parts"] = parts;
    params["message"]["metadata"] = json!({ "iac_code": { "cwd": cwd } });
    params
}

fn end(answer: &Value) -> (&str, &str) {
    let status = &answer["task"]["status"];
    let text = &status["message"]["parts"][0]["text"];
    (status["state"].as_str().unwrap(), text.as_str().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_of_the_error_table_comes_to_what_it_says() {
    let cluster = Cluster::demo().await;
    let workspace = cluster.workspace();
    for (scenario, outcomes) in table() {
        for outcome in outcomes {
            for binding in ALL {
                comes_to(&cluster, binding, scenario, &outcome, &workspace).await;
            }
        }
    }
}

async fn comes_to(cluster: &Cluster, binding: Binding, scenario: &str, outcome: &Outcome, workspace: &str) {
    let caller = Caller::new(binding, &cluster.gateway);
    match outcome {
        Outcome::Failed(parts, cwd, words) => {
            let answer = caller
                .result("SendMessage", sent(parts.clone(), cwd.unwrap_or(workspace)))
                .await;
            assert_eq!(end(&answer), ("TASK_STATE_FAILED", *words), "{binding:?} {scenario}");
        }
        Outcome::Refused(parts, reason) => {
            let refusal = caller
                .call("SendMessage", sent(parts.clone(), workspace))
                .await
                .unwrap_err();
            assert_eq!(refusal.reason, *reason, "{binding:?} {scenario}");
        }
        Outcome::Elsewhere(file, headers, reason) => {
            let redis = RedisServer::start();
            let gateway = Gateway::start_with(&redis.url(), file, &[]).await;
            let caller = Caller::with_headers(binding, &gateway, headers);
            if *reason == "UNAUTHENTICATED" && binding != Binding::Grpc {
                let request = match binding {
                    Binding::JsonRpc => caller.client.request("SendMessage", &message("hi")),
                    _ => caller.rest("SendMessage", message("hi")),
                };
                let answer = request.send().await.unwrap();
                assert_eq!(answer.status(), 401, "{scenario}");
                assert_eq!(
                    answer.text().await.unwrap(),
                    r#"{"error":"Unauthorized"}"#,
                    "{scenario}"
                );
                return;
            }
            let refusal = caller.call("SendMessage", message("hi")).await.unwrap_err();
            assert_eq!(refusal.reason, *reason, "{binding:?} {scenario}");
        }
        Outcome::Broken => {
            let log = fails_in_private(binding, scenario, BROKEN, "").await;
            assert!(log.contains("RuntimeError"), "the operator is told");
        }
        Outcome::Keyless => {
            let model = ChatModel::start(|_, _| {
                let body = r#"{"error":{"message":"RuntimeError: no key s3cr3t, see /srv/secret-path"}}"#;
                vec![whole("401 Unauthorized", "content-type: application/json\r\n", body)]
            });
            let agents = format!(
                "[agents.iac]\nkind = \"openai\"\nprofile = \"iac-code\"\nurl = \"{}\"\nmodel = \"m\"\n",
                model.url()
            );
            let words = "The model's server refuses the credentials of this agent (HTTP 401).";
            fails_in_private(binding, scenario, &agents, words).await;
        }
        Outcome::Impossible(why) => assert!(!why.is_empty(), "{scenario}"),
    }
}

/// A task FAILED, with these words if there are any, that says nothing which is not its sender's. Returns what the worker logged.
async fn fails_in_private(binding: Binding, scenario: &str, agents: &str, words: &str) -> String {
    let cluster = Cluster::start(agents, &[]).await;
    let caller = Caller::new(binding, &cluster.gateway);
    let parts = json!([{ "text": "hi" }]);
    let answer = caller.result("SendMessage", sent(parts, &cluster.workspace())).await;
    let (state, said) = end(&answer);
    assert_eq!(state, "TASK_STATE_FAILED", "{binding:?} {scenario}");
    assert!(words.is_empty() || said == words, "{binding:?} {scenario}: {said}");
    let told = answer["task"]["status"].to_string() + &answer["task"]["metadata"].to_string();
    for private in ["RuntimeError", "secret-path", "s3cr3t", "sh -c"] {
        assert!(!told.contains(private), "{binding:?} {scenario}: {told}");
    }
    cluster.log()
}

/// Whoever has seen INPUT_REQUIRED is never told that the task is working, however quickly the next message comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_at_the_instant_of_the_end_is_taken() {
    let cluster = Cluster::demo().await;
    let workspace = cluster.workspace();
    let client = cluster.gateway.client();
    let mut params = sent(json!([{ "text": "chunks=1 end=input-required" }]), &workspace);
    for round in 0..25 {
        let mut stream = client.stream("SendStreamingMessage", params.clone()).await;
        let opening = stream.event().await.result();
        assert_eq!(
            opening["task"]["status"]["state"], "TASK_STATE_SUBMITTED",
            "round {round}: {opening}"
        );
        let mut state = String::new();
        while state != "INPUT_REQUIRED" {
            state = stream.event().await.state();
            assert_ne!(state, "FAILED", "round {round}");
        }
        // The stream is not read to its end: its client is quicker. Every other message begins a new task of the context.
        params["message"]["contextId"] = opening["task"]["contextId"].clone();
        params["message"]["taskId"] = opening["task"]["id"].clone();
        if round % 2 == 1 {
            params["message"].as_object_mut().unwrap().remove("taskId");
        }
    }
}

/// A cancel is told once, to everyone who listens, and no message has the id of another.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_is_one_event() {
    let cluster = Cluster::demo().await;
    let params = sent(json!([{ "text": "chunks=2 hold=600" }]), &cluster.workspace());
    for binding in ALL {
        let caller = Caller::new(binding, &cluster.gateway);
        let mut feed = caller
            .open("SendStreamingMessage", params.clone(), None)
            .await
            .ok()
            .unwrap();
        let (opening, _) = feed.next().await.unwrap();
        let id = opening["task"]["id"].clone();
        let mut events = Vec::new();
        // SUBMITTED came first; then WORKING and the two chunks.
        for _ in 0..3 {
            events.push(feed.next().await.unwrap().0);
        }
        let mut beside = caller
            .open("SubscribeToTask", json!({ "id": id }), None)
            .await
            .ok()
            .unwrap();
        beside.next().await.unwrap();
        let canceled = caller.result("CancelTask", json!({ "id": id })).await;
        assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED", "{binding:?}");
        events.extend(feed.rest().await.into_iter().map(|(event, _)| event));
        let seen: Vec<Value> = beside.rest().await.into_iter().map(|(event, _)| event).collect();
        for events in [&events, &seen] {
            let ends = events
                .iter()
                .filter(|event| event["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED");
            assert_eq!(ends.count(), 1, "{binding:?} {events:?}");
            assert_eq!(
                events.last().unwrap()["statusUpdate"]["status"]["state"],
                "TASK_STATE_CANCELED"
            );
        }
        let task = caller.result("GetTask", json!({ "id": id })).await;
        let history = task["history"].as_array().unwrap().iter();
        let messages = history.chain([&task["status"]["message"]]);
        let mut ids: Vec<String> = messages
            .filter_map(|message| message["messageId"].as_str().map(str::to_owned))
            .collect();
        let all = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), all, "{binding:?} {task}");
    }
}
