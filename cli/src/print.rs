//! The only place that writes to the terminal.
//!
//! Owns standard output (what a command is asked for) and standard error (what it has to say about it). A terminal gets no
//! control characters that a remote agent sent; a file or pipe gets the text as it is. A reader that goes away ends the
//! command quietly.

use std::cell::Cell;
use std::io::{self, ErrorKind, IsTerminal as _, Write};

use crate::exit::Problem;

/// Something to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Out {
    /// To standard output, as it is.
    Text(String),
    /// A line of its own to standard error.
    Note(String),
}

/// Standard output and standard error of this process.
#[derive(Debug)]
pub(crate) struct Screen {
    terminal: bool,
    /// Whether a terminal shows a line that has not ended.
    unfinished: Cell<bool>,
}

impl Screen {
    /// The process' own.
    pub(crate) fn new() -> Self {
        Self {
            terminal: io::stdout().is_terminal(),
            unfinished: Cell::new(false),
        }
    }

    /// Writes several things in order.
    pub(crate) fn all(&self, outs: Vec<Out>) -> Result<(), Problem> {
        outs.into_iter().try_for_each(|out| match out {
            Out::Text(text) => self.text(&text),
            Out::Note(line) => {
                self.note(&line);
                Ok(())
            }
        })
    }

    /// Text to standard output, at once.
    pub(crate) fn text(&self, text: &str) -> Result<(), Problem> {
        let mut stdout = io::stdout().lock();
        let cleaned = if self.terminal { clean(text) } else { text.to_owned() };
        if let Some(last) = text.chars().next_back() {
            self.unfinished.set(self.terminal && last != '\n');
        }
        let written = stdout.write_all(cleaned.as_bytes()).and_then(|()| stdout.flush());
        written.map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => Problem::Closed,
            _ => Problem::Failed(anyhow::Error::from(error).context("cannot write the output")),
        })
    }

    /// A line to standard output.
    pub(crate) fn line(&self, line: &str) -> Result<(), Problem> {
        self.text(&format!("{line}\n"))
    }

    /// A line to standard error. One that cannot be written is lost.
    pub(crate) fn note(&self, line: &str) {
        if self.unfinished.take() {
            let _ = writeln!(io::stdout().lock());
        }
        let _ = writeln!(io::stderr().lock(), "{}", clean(line));
    }

    /// JSON for machines.
    pub(crate) fn json(&self, value: &serde_json::Value) -> Result<(), Problem> {
        // Any `Value` can be written.
        self.line(&serde_json::to_string_pretty(value).unwrap_or_default())
    }

    /// Rows under a head, columns as wide as they need to be.
    pub(crate) fn table(&self, head: &[&str], rows: &[Vec<String>]) -> Result<(), Problem> {
        self.text(&table(head, rows))
    }
}

/// `text` without what moves a cursor or changes colours.
fn clean(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && !matches!(c, '\n' | '\t') {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |text: &str| clean(text).replace(['\n', '\t'], " ");
    let head: Vec<String> = head.iter().map(|title| cell(title)).collect();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|text| cell(text)).collect())
        .collect();
    let width = |column: usize| {
        let cells = std::iter::once(&head).chain(&rows).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in std::iter::once(&head).chain(&rows) {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A duration for people: two units at the most.
pub(crate) fn age(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..60 => format!("{}.{}s", seconds, ms % 1_000 / 100),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The beginning of a text, on one line.
pub(crate) fn excerpt(text: &str, longest: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let short: String = line.chars().take(longest).collect();
    let cut = short.len() < text.trim().len();
    if cut { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_remote_agent_sends_cannot_steer_a_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\tc\nd\r"), "a\u{fffd}[2Jb\tc\nd\u{fffd}");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["ä".to_owned(), "x\ny".to_owned()],
            vec!["bbb".to_owned(), String::new()],
        ];
        assert_eq!(table(&["A", "B"], &rows), "A    B\nä    x y\nbbb\n");
    }

    #[test]
    fn an_age_has_two_units() {
        for (ms, text) in [
            (0, "0.0s"),
            (1_250, "1.2s"),
            (61_000, "1m 1s"),
            (3_660_000, "1h 1m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(age(ms), text);
        }
    }

    #[test]
    fn an_excerpt_is_one_line() {
        assert_eq!(excerpt(" abc\n", 10), "abc");
        assert_eq!(excerpt("abc\ndef", 10), "abc…");
        assert_eq!(excerpt("abcdef", 3), "abc…");
    }
}
