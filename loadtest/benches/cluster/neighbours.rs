//! A reader that does not keep up with a long stream, and what those beside it feel of it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::machine::Machine;
use crate::rounds::{drive, ms};
use crate::table::print;

/// What the slow reader reads in a second.
const PACE: usize = 20 << 10;
const LONG: &str = "chunks=10000 size=200 nonce=long";

pub async fn run(machine: &Machine, length: Duration) -> Value {
    let url = machine.url();
    let flags = format!(
        "--mode stream --contexts 8 --rate 20 --duration {}ms",
        length.as_millis()
    );
    drive(&url, "--contexts 8 --duration 1s").await;
    let alone = drive(&url, &flags).await;
    let slow = tokio::spawn(read_slowly(machine.ready.listen.unwrap().to_string()));
    let beside = drive(&url, &flags).await;
    slow.abort();
    let again = drive(&url, &flags).await;
    let row = |name: &str, report: &Value| {
        let ms = |what, quantile| ms(report, what, quantile);
        vec![
            name.to_owned(),
            ms("first_event_ms", "p50"),
            ms("first_event_ms", "p99"),
            ms("turn_ms", "p50"),
            ms("turn_ms", "p90"),
            ms("turn_ms", "p99"),
        ]
    };
    print(
        "20 turns/s beside a reader that takes 20 KiB/s of 10,000 updates",
        &["", "first event p50 ms", "p99", "turn p50 ms", "p90", "p99"],
        &[
            row("alone", &alone),
            row("beside it", &beside),
            row("alone again", &again),
        ],
    );
    json!({ "alone": alone, "beside": beside, "again": again })
}

async fn read_slowly(address: String) {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage",
        "params": { "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": LONG }] } },
    })
    .to_string();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: bench\r\na2a-version: 1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let mut bytes = vec![0; PACE / 10];
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        ticks.tick().await;
        if stream.read(&mut bytes).await.unwrap() == 0 {
            return;
        }
    }
}
