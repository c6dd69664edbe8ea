//! Server-sent events, as text in and frames out. Pure.
//!
//! Owns the line and field rules of the format. It refuses events that never end: what a server sends is not trusted to
//! be bounded. Called by whoever reads the stream of another server: the command line, agents behind a URL.

use std::collections::VecDeque;
use std::time::Duration;

/// Something that a stream said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// An event.
    Event {
        /// Its `id:`, if it had one.
        id: Option<String>,
        /// Its data, lines joined.
        data: String,
    },
    /// A comment: a sign of life.
    Comment,
    /// How long to wait before reconnecting.
    Retry(Duration),
}

/// An event larger than anybody means to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {0} bytes")]
pub struct TooLarge(pub usize);

/// Reads a stream piece by piece.
#[derive(Debug)]
pub struct Parser {
    largest: usize,
    line: Vec<u8>,
    /// The last byte was CR: a LF that follows belongs to it.
    after_cr: bool,
    begun: bool,
    id: Option<String>,
    data: Option<String>,
    frames: VecDeque<Frame>,
}

impl Parser {
    /// A parser of a new stream that refuses events of more bytes than `largest`.
    pub fn new(largest: usize) -> Self {
        Self {
            largest,
            line: Vec::new(),
            after_cr: false,
            begun: false,
            id: None,
            data: None,
            frames: VecDeque::new(),
        }
    }

    /// Takes in what arrived.
    ///
    /// # Errors
    /// [`TooLarge`]; nothing more can be read then.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        for &byte in bytes {
            let lf_of_crlf = byte == b'\n' && self.after_cr;
            self.after_cr = byte == b'\r';
            match byte {
                _ if lf_of_crlf => {}
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.line);
                    self.end_line(&line);
                }
                _ => self.line.push(byte),
            }
        }
        let size = self.line.len() + self.data.as_ref().map_or(0, String::len);
        if size > self.largest {
            Err(TooLarge(self.largest))
        } else {
            Ok(())
        }
    }

    /// The next frame that is complete.
    pub fn frame(&mut self) -> Option<Frame> {
        self.frames.pop_front()
    }

    fn end_line(&mut self, line: &[u8]) {
        let mut line = String::from_utf8_lossy(line);
        if !std::mem::replace(&mut self.begun, true)
            && let Some(rest) = line.strip_prefix('\u{feff}')
        {
            line = rest.to_owned().into();
        }
        if line.is_empty() {
            let id = self.id.take();
            if let Some(data) = self.data.take() {
                self.frames.push_back(Frame::Event { id, data });
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => self.frames.push_back(Frame::Comment),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" => {
                if let Ok(ms) = value.parse() {
                    self.frames.push_back(Frame::Retry(Duration::from_millis(ms)));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(pieces: &[&[u8]]) -> Vec<Frame> {
        let mut parser = Parser::new(1 << 20);
        for piece in pieces {
            parser.feed(piece).unwrap();
        }
        std::iter::from_fn(|| parser.frame()).collect()
    }

    fn event(id: Option<&str>, data: &str) -> Frame {
        Frame::Event {
            id: id.map(str::to_owned),
            data: data.to_owned(),
        }
    }

    #[test]
    fn an_event_is_read_however_it_is_cut_and_whatever_ends_its_lines() {
        let text = "id: t.1-2\ndata: {\"ä\":1}\n\n: ping\n\nretry: 1000\ndata: a\ndata:b\n\n";
        let expected = [
            event(Some("t.1-2"), "{\"ä\":1}"),
            Frame::Comment,
            Frame::Retry(Duration::from_secs(1)),
            event(None, "a\nb"),
        ];
        for ending in ["\n", "\r\n", "\r"] {
            let text = text.replace('\n', ending);
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(frames(&bytes), expected, "{ending:?}");
            assert_eq!(frames(&[text.as_bytes()]), expected, "{ending:?}");
        }
    }

    #[test]
    fn an_event_that_was_cut_is_no_event() {
        assert_eq!(frames(&[b"id: 1\ndata: {\"a\":"]), []);
        assert_eq!(frames(&[b"id: 1\ndata: {}\n"]), []);
    }

    #[test]
    fn unknown_fields_and_a_byte_order_mark_are_passed_over() {
        assert_eq!(
            frames(&["\u{feff}event: x\nwhat\ndata:  a\n\n".as_bytes()]),
            [event(None, " a")]
        );
    }

    #[test]
    fn an_event_without_data_is_passed_over_with_its_id() {
        assert_eq!(frames(&[b"id: 1\n\ndata: a\n\n"]), [event(None, "a")]);
    }

    #[test]
    fn an_event_that_never_ends_is_refused() {
        let mut parser = Parser::new(1 << 20);
        let piece = vec![b'x'; 1 << 18];
        let fed = (0..5).try_for_each(|_| parser.feed(&piece));
        assert_eq!(fed, Err(TooLarge(1 << 20)));
    }
}
