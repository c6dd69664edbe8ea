//! An A2A server that works as far as a test lets it, and remembers what it was asked: for workers that die.
//!
//! Every task of it is the same work: pieces of one artifact, then a message.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use relevo_testkit::poll;
use serde_json::{Value, json};

/// How many pieces the artifact has.
pub const PIECES: usize = 10;

/// What was asked: the method, and of messages their id and their key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub method: String,
    pub message: String,
    pub key: String,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
struct State {
    asked: Vec<Asked>,
    /// The messages that began a task, in their order.
    begun: Vec<String>,
    /// Whether it does a message once that it is sent twice.
    knows_keys: bool,
    /// Whether messages get no answer yet.
    mute: bool,
    pieces: usize,
    finished: bool,
    canceled: bool,
    /// Whether it has an error for whoever wants to cancel.
    refuses: bool,
    /// Whether new connections are closed at once, and how many were.
    away: bool,
    missed: usize,
}

/// The server. Its threads end with the test process.
#[derive(Clone)]
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<(Mutex<State>, Condvar)>,
}

/// The first pieces of the artifact.
pub fn pieces(count: usize) -> String {
    (0..count).map(piece).collect()
}

fn piece(n: usize) -> String {
    format!("{n} ")
}

impl Upstream {
    /// `knows_keys`: it begins one task for a message, however often that is sent.
    pub fn start(knows_keys: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let upstream = Self {
            address: listener.local_addr().unwrap(),
            shared: Arc::default(),
        };
        upstream.state().knows_keys = knows_keys;
        let served = upstream.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if served.misses() {
                    continue;
                }
                let upstream = served.clone();
                std::thread::spawn(move || upstream.serve(stream));
            }
        });
        upstream
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Messages get no answer until [`Upstream::speak`].
    pub fn keep_silent(&self) {
        self.state().mute = true;
    }

    pub fn speak(&self) {
        self.change(|state| state.mute = false);
    }

    /// So many pieces are done.
    pub fn advance(&self, pieces: usize) {
        self.change(|state| state.pieces = pieces);
    }

    /// All is done.
    pub fn finish(&self) {
        self.change(|state| (state.pieces, state.finished) = (PIECES, true));
    }

    /// A cancel is answered with an error.
    pub fn refuse_cancels(&self) {
        self.state().refuses = true;
    }

    /// It is there for nobody.
    pub fn leave(&self) {
        self.state().away = true;
    }

    pub fn come_back(&self) {
        self.state().away = false;
    }

    pub async fn until_missed(&self, count: usize) {
        poll::until("the upstream server is missed", || async {
            let missed = self.state().missed;
            if missed >= count { Ok(()) } else { Err(missed) }
        })
        .await;
    }

    fn misses(&self) -> bool {
        let mut state = self.state();
        state.missed += usize::from(state.away);
        state.away
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    /// How often it was asked this.
    pub fn count(&self, method: &str) -> usize {
        self.asked().iter().filter(|asked| asked.method == method).count()
    }

    /// How many tasks it has begun.
    pub fn begun(&self) -> usize {
        self.state().begun.len()
    }

    pub async fn until_asked(&self, method: &str, count: usize) {
        poll::until("the upstream server is asked", || async {
            let now = self.count(method);
            if now >= count {
                Ok(())
            } else {
                Err(format!("{method}: {now}"))
            }
        })
        .await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.shared.1.notify_all();
    }

    /// Waits for something, and says what it is then.
    fn wait<T>(&self, ready: impl Fn(&State) -> Option<T>) -> T {
        let mut state = self.state();
        loop {
            if let Some(value) = ready(&state) {
                return value;
            }
            state = self.shared.1.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        while let Some((head, body)) = read(&mut stream) {
            if self.answer(&mut stream, &head, &body).is_none() {
                return;
            }
        }
    }

    /// `None`: the connection is of no further use.
    fn answer(&self, stream: &mut TcpStream, head: &str, body: &Value) -> Option<()> {
        if head.starts_with("GET ") {
            let interface = json!([{ "url": self.url(), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
            let card = json!({ "name": "x", "capabilities": { "streaming": true }, "supportedInterfaces": interface });
            return whole(stream, &card);
        }
        let text = |pointer: &str| {
            body.pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (method, message) = (text("/method"), text("/params/message/messageId"));
        self.state().asked.push(Asked {
            method: method.clone(),
            message: message.clone(),
            key: header(head, "idempotency-key"),
        });
        let task = text("/params/id");
        match method.as_str() {
            "SendStreamingMessage" => {
                let task = self.begin(message);
                self.wait(|state| (!state.mute).then_some(()));
                self.stream(stream, &task, 0)
            }
            "SubscribeToTask" => {
                let done = self.state().pieces;
                self.stream(stream, &task, done)
            }
            "CancelTask" if self.state().refuses => {
                let error = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(error.as_bytes()).ok()
            }
            "CancelTask" => {
                self.change(|state| state.canceled = true);
                self.tell(stream, &task)
            }
            _ => self.tell(stream, &task),
        }
    }

    fn begin(&self, message: String) -> String {
        let mut state = self.state();
        let known = state
            .begun
            .iter()
            .position(|known| state.knows_keys && *known == message);
        let place = known.unwrap_or_else(|| {
            state.begun.push(message);
            state.begun.len() - 1
        });
        format!("up-{place}")
    }

    fn tell(&self, stream: &mut TcpStream, task: &str) -> Option<()> {
        let done = self.state().pieces;
        let result = self.task(task, done);
        whole(stream, &json!({ "jsonrpc": "2.0", "id": 1, "result": result }))
    }

    /// The task with so many pieces, and then what is done later.
    fn stream(&self, stream: &mut TcpStream, task: &str, mut told: usize) -> Option<()> {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).ok()?;
        event(stream, &json!({ "task": self.task(task, told) }))?;
        loop {
            let (done, over) = self.wait(|state| {
                let over = state.finished || state.canceled;
                (state.pieces > told || over).then_some((state.pieces, over))
            });
            for n in told..done {
                let artifact = json!({ "artifactId": "out", "parts": [{ "text": piece(n) }] });
                let update = json!({ "taskId": task, "contextId": "up-c", "append": n > 0, "artifact": artifact });
                event(stream, &json!({ "artifactUpdate": update }))?;
            }
            told = done;
            if over {
                let status = self.task(task, told)["status"].clone();
                return event(
                    stream,
                    &json!({ "statusUpdate": { "taskId": task, "contextId": "up-c", "status": status } }),
                )
                .and(None);
            }
        }
    }

    fn task(&self, id: &str, done: usize) -> Value {
        let state = self.state();
        let done = if state.finished { state.pieces } else { done };
        let status = if state.canceled {
            json!({ "state": "TASK_STATE_CANCELED" })
        } else if state.finished {
            let last = json!({ "messageId": "last", "role": "ROLE_AGENT", "parts": [{ "text": "done" }] });
            json!({ "state": "TASK_STATE_COMPLETED", "message": last })
        } else {
            json!({ "state": "TASK_STATE_WORKING" })
        };
        let artifacts = if done > 0 {
            json!([{ "artifactId": "out", "parts": [{ "text": pieces(done) }] }])
        } else {
            json!([])
        };
        json!({ "id": id, "contextId": "up-c", "status": status, "artifacts": artifacts })
    }
}

fn whole(stream: &mut TcpStream, body: &Value) -> Option<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()
}

fn event(stream: &mut TcpStream, result: &Value) -> Option<()> {
    let event = json!({ "jsonrpc": "2.0", "id": 1, "result": result });
    stream.write_all(format!("data: {event}\n\n").as_bytes()).ok()
}

fn header(head: &str, name: &str) -> String {
    let value = head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    });
    value.unwrap_or_default()
}

fn read(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request[..end]).into_owned();
            let body = &request[end + 4..];
            if body.len() >= header(&head, "content-length").parse().unwrap_or(0) {
                let body = serde_json::from_slice(body).unwrap_or_default();
                return Some((head, body));
            }
        }
        match stream.read(&mut piece) {
            Ok(read) if read > 0 => request.extend_from_slice(&piece[..read]),
            _ => return None,
        }
    }
}
