//! An A2A server that says what a test wants, behind a worker: what it says, and what it was asked.

use a2a::Part;
use relevo_shared::domain::record::{CrashPolicy, TurnRecord};
use relevo_shared::ids::Nonce;
use relevo_shared::store::StoredTask;
use relevo_testkit::{Reply, Scripted};
use serde_json::{Value, json};

use crate::fixture::{RunningWorker, World};

pub const HERE: [u8; 4] = [127, 0, 0, 1];

/// A card whose interfaces are where the card is.
pub fn card(port_of: &str, streaming: bool) -> Reply {
    let interface = json!([{ "url": port_of, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
    ok(&json!({ "name": "x", "capabilities": { "streaming": streaming }, "supportedInterfaces": interface }))
}

pub fn ok(body: &Value) -> Reply {
    Reply::answer("200 OK", "content-type: application/json\r\n", &body.to_string())
}

pub fn result(body: &Value) -> Reply {
    ok(&json!({ "jsonrpc": "2.0", "id": 1, "result": body }))
}

pub fn fault(code: i32, message: &str) -> Reply {
    ok(&json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": code, "message": message } }))
}

pub fn events(events: &[Value]) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let line = |event: &Value| format!("data: {}\n\n", json!({ "jsonrpc": "2.0", "id": 1, "result": event }));
    let lines: String = events.iter().map(line).collect();
    format!("{head}{lines}").into_bytes()
}

pub fn message(id: &str, text: &str) -> Value {
    json!({ "messageId": id, "role": "ROLE_AGENT", "parts": [{ "text": text }] })
}

pub fn task(state: &str, last: Option<Value>, artifacts: &Value) -> Value {
    let mut status = json!({ "state": state });
    if let Some(last) = last {
        status["message"] = last;
    }
    json!({ "id": "up-1", "contextId": "up-c", "status": status, "artifacts": artifacts })
}

pub fn status(state: &str, last: Option<Value>) -> Value {
    let whole = task(state, last, &json!([]));
    json!({ "statusUpdate": { "taskId": "up-1", "contextId": "up-c", "status": whole["status"] } })
}

pub fn artifact(text: &str, append: bool) -> Value {
    json!({ "artifactUpdate": { "taskId": "up-1", "contextId": "up-c", "append": append,
        "artifact": { "artifactId": "file", "parts": [{ "text": text }] } } })
}

pub struct Scene {
    pub world: World,
    pub server: Scripted,
    pub worker: RunningWorker,
}

impl Scene {
    /// A worker whose agent is a server that first gives its card and then says this.
    pub async fn new(streaming: bool, script: Vec<Reply>, more: &str) -> Self {
        // The card names the server by another name of this machine; the port is not known before it is there.
        Self::with_card(card("http://localhost:PORT/", streaming), script, more).await
    }

    pub async fn with_card(card: Reply, script: Vec<Reply>, more: &str) -> Self {
        Self::with(card, script, more, &[]).await
    }

    pub async fn with(card: Reply, script: Vec<Reply>, more: &str, settings: &[(&str, &str)]) -> Self {
        let server = Scripted::start_with(HERE, |port| {
            let Reply::Bytes(bytes) = &card else {
                panic!("a card is an answer")
            };
            let text = String::from_utf8(bytes.clone()).unwrap();
            let body = text
                .split_once("\r\n\r\n")
                .unwrap()
                .1
                .replace("PORT", &port.to_string());
            [Reply::answer("200 OK", "content-type: application/json\r\n", &body)]
                .into_iter()
                .chain(script)
                .collect()
        });
        let world = World::start().await;
        let table = format!(
            "[a]\nkind = \"a2a\"\nurl = {:?}\nbearer = \"hunter2\"\n{more}\n",
            server.url("/")
        );
        let worker = RunningWorker::start_with(&world.redis.url(), settings, &table).await;
        Self { world, server, worker }
    }

    pub async fn ends(&self, text: &str, policy: CrashPolicy) -> (TurnRecord, StoredTask) {
        let turn = self.world.ask("c-1", text, policy).await;
        let stored = self.world.until_over(turn.task).await;
        (turn, stored)
    }

    /// The methods that the server was asked for, the card's apart.
    pub fn asked(&self) -> Vec<String> {
        let method = |request: &String| body(request)["method"].as_str().unwrap_or("?").to_owned();
        self.server.heard().iter().skip(1).map(method).collect()
    }

    pub async fn cancel(&self, turn: &TurnRecord) -> StoredTask {
        let (context, partition) = self.world.store.place(&turn.scope(), &turn.context_id);
        let canceled = self
            .world
            .store
            .request_cancel(partition, &context, turn.turn, Nonce(7))
            .await;
        canceled.unwrap();
        self.world.until_over(turn.task).await
    }
}

pub fn body(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap_or_default()
}

pub fn artifact_text(stored: &StoredTask) -> String {
    let parts = stored.folded.artifacts.iter().flat_map(|artifact| &artifact.parts);
    parts.filter_map(Part::as_text).collect()
}

pub fn reason(stored: &StoredTask) -> Value {
    stored.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"].clone()
}
