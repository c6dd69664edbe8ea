//! Server-sent events: pieces of bytes in, frames out. Pure.
//!
//! Owns the rules of lines and fields. It refuses events that never end. Called by [`crate::client`].

/// The largest event that is read: far above what a gateway sends (1 MiB and an envelope).
const LARGEST: usize = 64 << 20;

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
    /// Milliseconds to wait before reconnecting.
    Retry(u64),
}

/// The bytes are no event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// An event is larger than anybody means to send.
    #[error("an event is larger than 64 MiB")]
    TooLarge,
    /// A line is not UTF-8.
    #[error("a line is not UTF-8")]
    NotText,
}

/// Reads a stream piece by piece.
#[derive(Debug, Default)]
pub struct Parser {
    buffer: Vec<u8>,
    /// Up to here `buffer` was read.
    read: usize,
    /// Up to here `buffer` holds no end of a line.
    searched: usize,
    id: Option<String>,
    data: Option<String>,
}

impl Parser {
    /// Takes in what arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.read > 0 {
            self.buffer.drain(..self.read);
            self.searched -= self.read;
            self.read = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame that is complete.
    ///
    /// # Errors
    /// [`SseError`] when the bytes are no event stream.
    pub fn frame(&mut self) -> Result<Option<Frame>, SseError> {
        loop {
            let Some((end, next)) = self.line_end() else {
                let size = self.buffer.len() - self.read + self.data.as_ref().map_or(0, String::len);
                return if size > LARGEST {
                    Err(SseError::TooLarge)
                } else {
                    Ok(None)
                };
            };
            let line = self.buffer.get(self.read..end).unwrap_or_default();
            let line = std::str::from_utf8(line).map_err(|_invalid| SseError::NotText)?;
            let frame = end_line(line, &mut self.id, &mut self.data);
            self.read = next;
            self.searched = next;
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }

    /// Where the present line ends and the next begins. A CR at the end of the buffer may be half of a CRLF: it waits.
    fn line_end(&mut self) -> Option<(usize, usize)> {
        let rest = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(found) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + found;
        match (self.buffer.get(end), self.buffer.get(end + 1)) {
            (Some(b'\r'), None) => {
                self.searched = end;
                None
            }
            (Some(b'\r'), Some(b'\n')) => Some((end, end + 2)),
            _ => Some((end, end + 1)),
        }
    }
}

fn end_line(line: &str, id: &mut Option<String>, data: &mut Option<String>) -> Option<Frame> {
    if line.is_empty() {
        let id = id.take();
        return data.take().map(|data| Frame::Event { id, data });
    }
    let (field, value) = line.split_once(':').unwrap_or((line, ""));
    let value = value.strip_prefix(' ').unwrap_or(value);
    match field {
        "" => return Some(Frame::Comment),
        "data" => match data {
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
            None => *data = Some(value.to_owned()),
        },
        "id" if !value.contains('\0') => *id = (!value.is_empty()).then(|| value.to_owned()),
        "retry" => return value.parse().ok().map(Frame::Retry),
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(pieces: &[&[u8]]) -> Result<Vec<Frame>, SseError> {
        let mut parser = Parser::default();
        let mut frames = Vec::new();
        for piece in pieces {
            parser.feed(piece);
            while let Some(frame) = parser.frame()? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    fn event(id: Option<&str>, data: &str) -> Frame {
        Frame::Event {
            id: id.map(str::to_owned),
            data: data.to_owned(),
        }
    }

    const TEXT: &str =
        "id: t.1-2\ndata: {\"ä\":1}\n\n: ping\n\nretry: 1000\nwhat\nevent: x\ndata: a\ndata:b\n\nid: 7\n\ndata:  c\n\n";

    fn expected() -> Vec<Frame> {
        vec![
            event(Some("t.1-2"), "{\"ä\":1}"),
            Frame::Comment,
            Frame::Retry(1000),
            event(None, "a\nb"),
            event(None, " c"),
        ]
    }

    #[test]
    fn an_event_that_was_cut_is_no_event() {
        assert_eq!(frames(&[b"id: 1\ndata: {\"a\":"]), Ok(vec![]));
        assert_eq!(frames(&[b"id: 1\ndata: {}\n"]), Ok(vec![]));
    }

    #[test]
    fn what_is_no_event_stream_is_refused() {
        assert_eq!(frames(&[b"data: \xff\n"]), Err(SseError::NotText));
        let piece = vec![b'x'; 33 << 20];
        assert_eq!(frames(&[&piece, &piece]), Err(SseError::TooLarge));
    }

    proptest! {
        #[test]
        fn an_event_is_read_however_it_is_cut_and_whatever_ends_its_lines(
            cuts in prop::collection::vec(0_usize..200, 0..20),
            ending in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        ) {
            let mut text = TEXT.replace('\n', ending).into_bytes();
            if ending == "\r" {
                // The last CR of a stream may be half of a CRLF; something must follow it.
                text.push(b':');
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % text.len()).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(frames(&pieces), Ok(expected()));
        }
    }
}
