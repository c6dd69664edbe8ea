//! Standard error of a process: log lines with the ids of the turn, and the last bytes for the day it crashes. Bounded both ways.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use relevo_shared::domain::record::TurnRecord;
use tokio::io::AsyncBufRead;

use super::lines::{Line, Lines};

/// Longest line in the log; longer ones are cut into several.
const LONGEST: usize = 8 << 10;
/// Most bytes of one turn in the log.
const MOST: usize = 1 << 20;
/// What is kept for the log line of a crash.
const TAIL: usize = 2 << 10;

/// Whose the lines are.
#[derive(Debug, Clone)]
struct Ids {
    task: String,
    turn: String,
    agent: String,
}

/// What is known of a process' standard error.
#[derive(Debug, Default)]
pub(super) struct Log {
    ids: Option<Ids>,
    logged: usize,
    tail: VecDeque<u8>,
}

impl Log {
    /// The lines that follow belong to a turn.
    pub(super) fn begin(&mut self, record: &TurnRecord) {
        self.ids = Some(Ids {
            task: record.task.to_string(),
            turn: record.turn.to_string(),
            agent: record.agent.clone(),
        });
        self.logged = 0;
        self.tail.clear();
    }

    /// Adds a line.
    pub(super) fn add(&mut self, line: &str) {
        self.tail.extend(line.bytes());
        self.tail.push_back(b'\n');
        let excess = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..excess);
        let before = self.logged;
        self.logged = before.saturating_add(line.len() + 1);
        if before > MOST {
            return;
        }
        let ids = self.ids.as_ref();
        let (task, turn, agent) = ids.map_or(("", "", ""), |ids| (&ids.task, &ids.turn, &ids.agent));
        if self.logged > MOST {
            tracing::warn!(
                agent.name = agent,
                task.id = task,
                turn.id = turn,
                "the agent's log is cut here for this turn"
            );
        } else {
            tracing::info!(
                agent.name = agent,
                task.id = task,
                turn.id = turn,
                stderr = line,
                "agent"
            );
        }
    }

    /// The last bytes.
    pub(super) fn tail(&self) -> String {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }
}

/// Reads until the end; what is not UTF-8 is replaced.
pub(super) async fn pump(pipe: impl AsyncBufRead + Unpin, log: Arc<Mutex<Log>>) {
    let mut lines = Lines::new(pipe, LONGEST);
    while let Some(Line::Whole(bytes) | Line::TooLong(bytes) | Line::Half(bytes)) = lines.next().await {
        let line = String::from_utf8_lossy(&bytes);
        log.lock().unwrap_or_else(PoisonError::into_inner).add(line.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_last_bytes_are_kept() {
        let log = Arc::new(Mutex::new(Log::default()));
        let mut text = "x".repeat(3 * LONGEST).into_bytes();
        text.extend(b"\n\xff last\nhalf");
        pump(text.as_slice(), Arc::clone(&log)).await;
        let tail = log.lock().unwrap().tail();
        assert!(tail.len() <= TAIL && tail.ends_with("x\n\u{fffd} last\nhalf"), "{tail}");
    }
}
