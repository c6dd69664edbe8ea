//! An HTTP server that says what it is told to, byte by byte: for clients that must bear whatever a server does.
//!
//! One reply per request, in the order of the script; the last one is repeated. It remembers what it was asked.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// What is said to one request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// These bytes; the connection stays open for the next request.
    Bytes(Vec<u8>),
    /// These bytes, then the connection is closed.
    Close(Vec<u8>),
    /// These bytes, then nothing; the connection stays open.
    Hang(Vec<u8>),
}

impl Reply {
    /// A whole answer.
    pub fn answer(status: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::Bytes(format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}").into_bytes())
    }
}

/// The server. Its threads end with the test process.
#[derive(Debug)]
pub struct Scripted {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    /// Starts one on an address of the loopback network, with a port of its own.
    pub fn start(host: [u8; 4], script: Vec<Reply>) -> Self {
        Self::start_with(host, |_port| script)
    }

    /// Starts one whose script names its port.
    pub fn start_with(host: [u8; 4], script: impl FnOnce(u16) -> Vec<Reply>) -> Self {
        Self::on(
            TcpListener::bind(SocketAddr::from((host, 0))).expect("a free port"),
            script,
        )
    }

    /// Starts one on a port that is taken already.
    pub fn on(listener: TcpListener, script: impl FnOnce(u16) -> Vec<Reply>) -> Self {
        let address = listener.local_addr().expect("a bound address");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(script(address.port()));
        let all = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, heard) = (Arc::clone(&script), Arc::clone(&all));
                std::thread::spawn(move || serve(stream, &script, &heard));
            }
        });
        Self { address, heard }
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL of it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far, heads and bodies.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(mut stream: TcpStream, script: &[Reply], heard: &Mutex<Vec<String>>) {
    while let Some(request) = read(&mut stream) {
        let place = {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.push(request);
            heard.len() - 1
        };
        let Some(reply) = script.get(place).or_else(|| script.last()) else {
            return;
        };
        let (Reply::Bytes(bytes) | Reply::Close(bytes) | Reply::Hang(bytes)) = reply;
        if stream.write_all(bytes).is_err() || matches!(reply, Reply::Close(_)) {
            return;
        }
        if matches!(reply, Reply::Hang(_)) {
            // Until the client goes away.
            drop(stream.read(&mut [0; 1]));
            return;
        }
    }
}

/// A whole request, or `None` when the client is gone.
fn read(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.trim().parse().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text.into_owned());
            }
        }
        match stream.read(&mut piece) {
            Ok(read) if read > 0 => request.extend_from_slice(piece.get(..read)?),
            _ => return None,
        }
    }
}
