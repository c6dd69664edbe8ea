//! The process agent of the run: this program again, speaking lines of JSON, with the words of the agent `demo`. It writes
//! down each of its starts, which is the only witness of how often it ran.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// The word that makes this program an agent; the file of its starts follows.
pub const ASKED: &str = "--agent";

/// Serves one turn after the other until its input ends.
pub fn serve(starts: &str) {
    let (lines, inbox) = channel();
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            let line: Value = serde_json::from_str(&line).unwrap();
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    let mut starts = File::options().append(true).create(true).open(starts).unwrap();
    while let Ok(line) = inbox.recv() {
        if line["type"] == "turn" {
            answer(&line, &inbox, &mut starts);
        }
    }
}

fn say(line: &Value) {
    // Who listened may be gone; then so is this process soon.
    writeln!(io::stdout(), "{line}").ok();
    io::stdout().flush().ok();
}

fn answer(turn: &Value, inbox: &Receiver<Value>, starts: &mut File) {
    let text = turn["message"]["parts"][0]["text"].as_str().unwrap_or_default();
    let word = |key: &str| {
        let mut words = text.split(' ').filter_map(|word| word.split_once('='));
        words.find(|(name, _)| *name == key).map(|(_, value)| value)
    };
    let number = |key| word(key).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let nonce = word("nonce").unwrap_or_default();
    // One write, so that lines of several processes do not mix.
    starts
        .write_all(format!("{nonce} {}\n", turn["turn"]["epoch"]).as_bytes())
        .unwrap();
    for seq in 0..number("chunks") {
        match inbox.recv_timeout(Duration::from_millis(number("delay"))) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(_cancel) => return say(&json!({ "type": "end", "state": "canceled" })),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        say(&json!({ "type": "status", "message": { "parts": [{ "text": format!("seq={seq} nonce={nonce}\n") }] } }));
    }
    let last = json!({ "parts": [{ "text": format!("done nonce={nonce}") }] });
    match word("suspend") {
        Some(state) => say(&json!({ "type": "suspend", "state": state, "message": last })),
        None => {
            let state = word("end").unwrap_or("completed");
            say(&json!({ "type": "end", "state": state, "message": last }));
        }
    }
}
