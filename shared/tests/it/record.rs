//! Records the script calls that the store sends, word for word, so that tests can send them again or send them damaged.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use redis::Value;
use relevo_shared::store::{SCRIPTS, ScriptText};
use relevo_testkit::RedisServer;

use crate::probe::Probe;

/// A call of a script as it went over the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub script: &'static str,
    pub key: String,
    pub args: Vec<String>,
}

impl Call {
    /// Sends it again.
    pub fn send(&self, probe: &Probe) -> Value {
        self.send_text(probe, &text_of(self.script).assembled())
    }

    /// Sends it to another text.
    pub fn send_text(&self, probe: &Probe, text: &str) -> Value {
        let mut words = vec!["EVAL", text, "1", &self.key];
        words.extend(self.args.iter().map(String::as_str));
        probe.ask(&words)
    }
}

pub fn text_of(script: &str) -> &'static ScriptText {
    SCRIPTS.iter().find(|s| s.name == script).unwrap()
}

/// Listens to MONITOR.
pub struct Recorder {
    lines: BufReader<UnixStream>,
    names: BTreeMap<String, &'static str>,
    marks: u32,
}

impl Recorder {
    /// Loads all scripts, so that no call is sent twice because its text is unknown.
    pub fn start(redis: &RedisServer, probe: &Probe) -> Self {
        let load = |script: &'static ScriptText| {
            let sha = probe.text(&["SCRIPT", "LOAD", &script.assembled()]).unwrap();
            (sha, script.name)
        };
        let names = SCRIPTS.iter().map(load).collect();
        let mut stream = UnixStream::connect(redis.socket()).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream);
        let mut answer = String::new();
        lines.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim(), "+OK");
        Self { lines, names, marks: 0 }
    }

    /// Every script call since the last look.
    pub fn calls(&mut self, probe: &Probe) -> Vec<Call> {
        self.marks += 1;
        let mark = format!("mark-{}", self.marks);
        probe.ask(&["ECHO", &mark]);
        let mut calls = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "MONITOR ended");
            let words = words(&line);
            match words.first().map(String::as_str) {
                Some("ECHO") if words[1] == mark => return calls,
                Some("EVALSHA") => calls.push(Call {
                    script: self.names[&words[1]],
                    key: words[3].clone(),
                    args: words[4..].to_vec(),
                }),
                _ => {}
            }
        }
    }
}

/// The quoted words of a line of MONITOR.
fn words(line: &str) -> Vec<String> {
    let Some((_, rest)) = line.split_once("] ") else {
        return Vec::new();
    };
    let mut words = Vec::new();
    let mut bytes = rest.bytes();
    let hex = |bytes: &mut std::str::Bytes<'_>| {
        let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
        u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
    };
    while bytes.any(|b| b == b'"') {
        let mut word = Vec::new();
        while let Some(byte) = bytes.next().filter(|b| *b != b'"') {
            word.push(match byte {
                b'\\' => match bytes.next().unwrap() {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    b'x' => hex(&mut bytes),
                    other => other,
                },
                other => other,
            });
        }
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    words
}
