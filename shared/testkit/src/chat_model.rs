//! A chat model's server that says what a test wants, byte by byte, and remembers what it was asked.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

/// What the server does with a request, one after the other.
#[derive(Debug, Clone)]
pub enum Act {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Says nothing more until the client goes away.
    Hang,
    /// Closes the connection.
    Close,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its first line and headers.
    pub head: String,
    /// Its body.
    pub body: Value,
}

impl Asked {
    /// A header of it.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// What the model was told and asked, as pairs of role and text.
    pub fn messages(&self) -> Vec<(String, String)> {
        let text = |message: &Value, key: &str| {
            let text = message.get(key).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let all = self
            .body
            .get("messages")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        all.map(|message| (text(message, "role"), text(message, "content")))
            .collect()
    }
}

#[derive(Debug, Default)]
struct Seen {
    asked: Mutex<Vec<Asked>>,
    connections: AtomicUsize,
    gone: AtomicUsize,
}

/// The server. Its threads end with the test process.
#[derive(Debug, Clone)]
pub struct ChatModel {
    address: SocketAddr,
    seen: Arc<Seen>,
}

impl ChatModel {
    /// Starts one. `answer` is given the number of the request, from 0, and its body.
    pub fn start(answer: impl Fn(usize, &Value) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), answer)
    }

    /// Starts one at an address.
    pub fn start_at(address: SocketAddr, answer: impl Fn(usize, &Value) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let (seen, answer) = (Arc::new(Seen::default()), Arc::new(answer));
        let all = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                all.connections.fetch_add(1, Ordering::SeqCst);
                let (seen, answer) = (Arc::clone(&all), Arc::clone(&answer));
                std::thread::spawn(move || {
                    if serve(stream, &seen, &*answer).is_none() {
                        seen.gone.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        Self { address, seen }
    }

    /// The base of its endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.seen.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// How many clients went away in the middle of an answer.
    pub fn gone(&self) -> usize {
        self.seen.gone.load(Ordering::SeqCst)
    }
}

/// Serves a connection; `None` when the client goes away in the middle of an answer.
fn serve(mut stream: TcpStream, seen: &Seen, answer: &dyn Fn(usize, &Value) -> Vec<Act>) -> Option<()> {
    while let Some(asked) = read(&mut stream) {
        let body = asked.body.clone();
        let number = {
            let mut all = seen.asked.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(asked);
            all.len() - 1
        };
        for act in answer(number, &body) {
            match act {
                Act::Send(bytes) => stream.write_all(&bytes).ok()?,
                Act::Close => return Some(()),
                Act::Hang => {
                    // A client that waits sends nothing: whatever comes is its end.
                    drop(stream.read(&mut [0; 1]));
                    return None;
                }
            }
        }
    }
    Some(())
}

fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut request = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        let end = request.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(request.get(..end)?).into_owned();
            let body = request.get(end + 4..)?;
            let mut asked = Asked {
                head,
                body: Value::Null,
            };
            let length: usize = asked.header("content-length")?.parse().ok()?;
            if body.len() >= length {
                asked.body = serde_json::from_slice(body).ok()?;
                return Some(asked);
            }
        }
        match stream.read(&mut piece) {
            Ok(read) if read > 0 => request.extend_from_slice(piece.get(..read)?),
            _ => return None,
        }
    }
}

/// An answer with a body of this length, which is its whole.
pub fn whole(status: &str, headers: &str, body: &str) -> Act {
    let length = body.len();
    Act::Send(format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}").into_bytes())
}

/// The head of a stream.
pub fn head() -> Act {
    Act::Send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec())
}

/// A piece of a stream.
pub fn piece(text: &str) -> Act {
    Act::Send(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes())
}

/// A piece with text of the model.
pub fn delta(text: &str) -> Act {
    piece(&format!(
        "data: {}\n\n",
        json!({"choices": [{"index": 0, "delta": {"content": text}}]})
    ))
}

/// The end of a stream.
pub fn end() -> Act {
    Act::Send(b"0\r\n\r\n".to_vec())
}

/// A whole stream of these texts.
pub fn says(texts: &[&str]) -> Vec<Act> {
    let first = json!({"model": "m-1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]});
    let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}});
    let mut acts = vec![head(), piece(&format!("data: {first}\n\n"))];
    acts.extend(texts.iter().map(|text| delta(text)));
    acts.push(piece(&format!("data: {stop}\n\ndata: {usage}\n\ndata: [DONE]\n\n")));
    acts.push(end());
    acts
}
