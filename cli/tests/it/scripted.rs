//! A server that plays a part: it serves a card, then answers each POST with the next reply of its script, and remembers
//! what it was asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

type Headers = Vec<(String, String)>;

/// A POST that came.
#[derive(Debug, Clone)]
pub struct Asked {
    pub headers: Headers,
    pub body: Value,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap()
    }
}

/// How it answers.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A JSON-RPC result.
    Result(Value),
    /// A JSON-RPC error with an HTTP status.
    Error(u16, Value),
    /// An HTTP status and nothing else.
    Status(u16),
    /// A stream, closed in good order.
    Stream(Vec<String>),
    /// A stream that is cut in the middle of what follows.
    Cut(Vec<String>),
    /// A stream that stays open.
    Open(Vec<String>),
}

/// A frame of a stream.
pub fn frame(id: &str, result: &Value) -> String {
    let id = if id.is_empty() {
        String::new()
    } else {
        format!("id: {id}\n")
    };
    format!(
        "{id}data: {}\n\n",
        json!({ "jsonrpc": "2.0", "id": 1, "result": result })
    )
}

#[derive(Default)]
struct Part {
    script: Vec<Reply>,
    asked: Vec<Asked>,
}

/// The server.
pub struct Scripted {
    url: String,
    part: Arc<Mutex<Part>>,
}

impl Scripted {
    /// Starts it. Replies come in the order given; a POST too many is answered 500.
    pub fn start(script: Vec<Reply>) -> Self {
        Self::with_interface(
            script,
            json!({ "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }),
        )
    }

    /// With an interface of its own in the card; its `url` is filled in when it has none.
    pub fn with_interface(script: Vec<Reply>, mut interface: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        if interface.get("url").is_none() {
            interface["url"] = json!(format!("{url}/rpc"));
        }
        let card = json!({
            "name": "scripted", "description": "Plays a part.", "version": "1",
            "supportedInterfaces": [
                { "url": "grpc.example:1", "protocolBinding": "GRPC", "protocolVersion": "1.0" },
                interface,
            ],
            "capabilities": { "streaming": true },
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{ "id": "s", "name": "s", "description": "Does things.", "tags": ["s"], "examples": ["do it"] }],
        });
        let part = Arc::new(Mutex::new(Part {
            script: script.into_iter().rev().collect(),
            asked: Vec::new(),
        }));
        let serving = Arc::clone(&part);
        // It ends with the test process.
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (card, part) = (card.clone(), Arc::clone(&serving));
                thread::spawn(move || serve(connection.unwrap(), &card, &part));
            }
        });
        Self { url, part }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Every POST so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.part.lock().unwrap().asked.clone()
    }
}

fn serve(mut connection: TcpStream, card: &Value, part: &Mutex<Part>) {
    let Some((line, headers, body)) = read(&connection) else {
        return;
    };
    if line.starts_with("GET /.well-known/agent-card.json ") {
        plain(&mut connection, 200, &card.to_string());
        return;
    }
    assert!(line.starts_with("POST /rpc "), "{line}");
    let reply = {
        let mut part = part.lock().unwrap();
        part.asked.push(Asked { headers, body });
        part.script.pop().unwrap_or(Reply::Status(500))
    };
    let answer = |key: &str, value: &Value| json!({ "jsonrpc": "2.0", "id": 1, key: value }).to_string();
    match reply {
        Reply::Result(result) => plain(&mut connection, 200, &answer("result", &result)),
        Reply::Error(status, error) => plain(&mut connection, status, &answer("error", &error)),
        Reply::Status(status) => plain(&mut connection, status, ""),
        Reply::Stream(frames) => {
            stream(&mut connection, &frames);
            connection.write_all(b"0\r\n\r\n").unwrap();
        }
        Reply::Cut(frames) => {
            stream(&mut connection, &frames);
            connection.write_all(b"ff\r\nid: nothing\ndata: {\"half").unwrap();
            connection.shutdown(Shutdown::Both).unwrap();
        }
        Reply::Open(frames) => {
            stream(&mut connection, &frames);
            // Until the other side goes.
            let _ = connection.read(&mut [0]);
        }
    }
}

fn read(connection: &TcpStream) -> Option<(String, Headers, Value)> {
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else {
            break;
        };
        headers.push((name.to_owned(), value.to_owned()));
    }
    let length = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some((line, headers, serde_json::from_slice(&body).unwrap_or_default()))
}

fn plain(connection: &mut TcpStream, status: u16, body: &str) {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
}

fn stream(connection: &mut TcpStream, frames: &[String]) {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    connection.write_all(head.as_bytes()).unwrap();
    for frame in frames {
        connection
            .write_all(format!("{:x}\r\n{frame}\r\n", frame.len()).as_bytes())
            .unwrap();
    }
}

/// Events of one task.
pub mod events {
    use serde_json::{Value, json};

    pub const TASK: &str = "018bcfe5-6800-7007-8000-00000000002a";
    pub const RESUME: &str = "urn:relevo:a2a:resume:v1";

    pub fn cursor(seq: u64) -> String {
        format!("{TASK}.{seq}-7")
    }

    pub fn message(text: &str) -> Value {
        json!({ "messageId": "m.0", "role": "ROLE_AGENT", "parts": [{ "text": text }] })
    }

    pub fn task(state: &str, text: &str) -> Value {
        let mut task = json!({ "id": TASK, "contextId": "c-1", "status": { "state": format!("TASK_STATE_{state}") } });
        if !text.is_empty() {
            task["status"]["message"] = message(text);
        }
        task
    }

    pub fn opening() -> Value {
        json!({ "task": task("SUBMITTED", "") })
    }

    pub fn status(state: &str, text: &str) -> Value {
        let mut update = task(state, text);
        update.as_object_mut().unwrap().remove("id");
        update["taskId"] = json!(TASK);
        json!({ "statusUpdate": update })
    }

    pub fn boundary(attempt: u64, valid: u64) -> Value {
        let mut update = status("WORKING", "");
        let facts = json!({ "boundary": true, "attempt": attempt, "validThrough": cursor(valid) });
        update["statusUpdate"]["metadata"] = json!({ RESUME: facts });
        update
    }

    pub fn gap(text: &str) -> Value {
        let mut task = task("WORKING", text);
        task["metadata"] = json!({ RESUME: { "gap": true, "requested": cursor(2), "cursor": cursor(9) } });
        json!({ "task": task })
    }
}
