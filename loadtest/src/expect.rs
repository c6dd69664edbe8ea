//! What a text asks of the agent `demo`, as far as it can be checked, and what an answer's text says. Pure.
//!
//! The grammar is the demo agent's: words `key=value`, driving when the first of them is a known one.

use a2a::TaskState;

/// How many chunks a driving text gets that names no number.
const DEFAULT_CHUNKS: u64 = 5;

/// What the answer to one turn must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    /// The text that was sent.
    pub text: String,
    /// Marks everything that belongs to the turn.
    pub nonce: String,
    /// Numbers 0 up to this, each once.
    pub chunks: u64,
    /// The state of the task afterwards.
    pub end: TaskState,
}

impl Expect {
    /// Reads a text; `None` when it does not drive, or names no nonce: nothing about its answer could be checked.
    pub fn of(text: &str) -> Option<Self> {
        let mut expect = Self {
            text: text.to_owned(),
            nonce: String::new(),
            chunks: DEFAULT_CHUNKS,
            end: TaskState::Completed,
        };
        let mut words = text.split(' ').filter(|word| !word.is_empty());
        if !expect.take(words.next()?) {
            return None;
        }
        for word in words {
            expect.take(word);
        }
        (!expect.nonce.is_empty()).then_some(expect)
    }

    fn take(&mut self, word: &str) -> bool {
        let Some((key, value)) = word.split_once('=') else {
            return false;
        };
        match (key, value) {
            ("chunks", number) => match number.parse() {
                Ok(number) => self.chunks = number,
                Err(_) => return false,
            },
            ("nonce", nonce) => nonce.clone_into(&mut self.nonce),
            ("end", "completed") => self.end = TaskState::Completed,
            ("end", "failed") => self.end = TaskState::Failed,
            ("end", "rejected") => self.end = TaskState::Rejected,
            ("end" | "suspend", "input-required") => self.end = TaskState::InputRequired,
            ("end" | "suspend", "auth-required") => self.end = TaskState::AuthRequired,
            ("delay" | "size" | "hold" | "artifact", _) => {}
            _ => return false,
        }
        true
    }
}

/// A number that an answer holds, and the nonce beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark<'a> {
    /// Which chunk of its turn.
    pub number: u64,
    /// Which turn.
    pub nonce: &'a str,
}

/// Every `seq=<number> nonce=<nonce>` of a text, in order.
pub fn marks(text: &str) -> impl Iterator<Item = Mark<'_>> {
    text.split("seq=").skip(1).filter_map(|piece| {
        let (number, rest) = piece.split_once(" nonce=")?;
        let end = rest.find([' ', '\n']).unwrap_or(rest.len());
        Some(Mark {
            number: number.parse().ok()?,
            nonce: rest.get(..end)?,
        })
    })
}

/// Whether a text holds the mark of a turn's last message.
pub fn is_last_word(text: &str, nonce: &str) -> bool {
    text.lines().any(|line| line.strip_prefix("done nonce=") == Some(nonce))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driving_text_says_what_it_expects() {
        let expect = Expect::of("chunks=7 delay=1 end=input-required nonce=a-1 what=ever").unwrap();
        assert_eq!(
            (expect.nonce.as_str(), expect.chunks, expect.end),
            ("a-1", 7, TaskState::InputRequired)
        );
        assert_eq!(Expect::of("nonce=q").unwrap().chunks, 5);
        for unchecked in ["hello", "", "chunks=7", "hello nonce=q", "chunks=x nonce=q"] {
            assert_eq!(Expect::of(unchecked), None, "{unchecked}");
        }
    }

    #[test]
    fn marks_are_found_wherever_they_stand() {
        let text = "seq=0 nonce=a\nseq=1 nonce=b xxxx\nseq=x nonce=c\nseq=3\ndone nonce=a";
        let found: Vec<_> = marks(text).map(|mark| (mark.number, mark.nonce)).collect();
        assert_eq!(found, [(0, "a"), (1, "b")]);
        assert!(is_last_word(text, "a") && !is_last_word(text, "b"));
    }
}
