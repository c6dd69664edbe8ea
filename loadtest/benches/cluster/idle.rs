//! Memory of the gateway per open stream on which nothing happens, beside a bare axum handler.

use std::net::SocketAddr;

use relevo_testkit::poll;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bare::Bare;
use crate::machine::{Machine, resident};
use crate::rounds::drive_with;
use crate::table::{figure, print};

const STREAMS: usize = 5_000;

/// Opens a stream and waits for its first event.
async fn open(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(5).any(|bytes| bytes == b"data:") {
        let mut bytes = [0; 4_096];
        let read = stream.read(&mut bytes).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&bytes[..read]);
    }
    stream
}

/// Bytes per stream of a process.
async fn measure(pid: u32, address: SocketAddr, request: impl Fn(usize) -> String) -> f64 {
    // What the first streams need is not theirs alone.
    let mut kept = Vec::new();
    for place in 0..100 {
        kept.push(open(address, &request(place)).await);
    }
    let before = resident(pid);
    for place in 0..STREAMS {
        kept.push(open(address, &request(place)).await);
    }
    let mut last = 0.0;
    let after = poll::until("memory to be steady", || {
        let now = resident(pid);
        let steady = (now - last).abs() < 64.0 * 1_024.0;
        last = now;
        async move { if steady { Ok(now) } else { Err(now) } }
    })
    .await;
    drop(kept);
    (after - before) / STREAMS as f64
}

pub async fn run() -> Value {
    let bare = Bare::start();
    let floor = measure(bare.pid(), bare.address, |_| {
        "GET /idle HTTP/1.1\r\nhost: bench\r\naccept: text/event-stream\r\n\r\n".to_owned()
    })
    .await;
    let machine = Machine::start_with(&[("RELEVO_RETENTION_JOURNAL", "1h")]);
    let tasks = idle_tasks(&machine).await;
    let ours = measure(machine.gateway.pid(), machine.ready.listen.unwrap(), |place| {
        let task = &tasks[place % tasks.len()];
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": { "id": task } }).to_string();
        format!(
            "POST / HTTP/1.1\r\nhost: bench\r\na2a-version: 1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    })
    .await;
    print(
        "Memory per idle stream (5,000 open, each on a task of its own)",
        &["", "bytes"],
        &[
            vec!["gateway".to_owned(), figure(ours)],
            vec!["bare axum".to_owned(), figure(floor)],
            vec!["ratio".to_owned(), figure(ours / floor)],
        ],
    );
    json!({ "gateway": ours, "bare": floor })
}

/// Tasks that wait for input.
async fn idle_tasks(machine: &Machine) -> Vec<String> {
    let url = machine.url();
    let flags = format!("--mode send --contexts 64 --turns {STREAMS}");
    drive_with(&url, &flags, "chunks=1 nonce={nonce} end=input-required").await;
    let client = relevo_loadtest::client::Client::new(vec![url]).unwrap();
    let mut tasks = Vec::new();
    let mut token = String::new();
    loop {
        let page: Value = client
            .call(0, "ListTasks", &json!({ "pageSize": 100, "pageToken": token }))
            .await
            .unwrap();
        tasks.extend(
            page["tasks"]
                .as_array()
                .unwrap()
                .iter()
                .map(|task| task["id"].as_str().unwrap().to_owned()),
        );
        page["nextPageToken"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut token);
        if token.is_empty() {
            return tasks;
        }
    }
}
