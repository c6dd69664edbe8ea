//! Lines out of a pipe, never more of one in memory than the limit.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, BufReader};

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, without its end.
    Whole(Vec<u8>),
    /// The first bytes of a line that is longer than the limit; its rest comes as lines of their own.
    TooLong(Vec<u8>),
    /// The last bytes before the end, without a line end after them.
    Half(Vec<u8>),
}

/// Reads lines.
#[derive(Debug)]
pub(super) struct Lines<R> {
    pipe: R,
    limit: usize,
    begun: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(super) fn new(pipe: R, limit: usize) -> Self {
        Self {
            pipe,
            limit,
            begun: Vec::new(),
        }
    }

    /// The next line; `None` at the end, which an unreadable pipe is too. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Line> {
        loop {
            let room = self.limit - self.begun.len();
            let Ok(bytes) = self.pipe.fill_buf().await else {
                return self.end();
            };
            if bytes.is_empty() {
                return self.end();
            }
            let found = bytes.iter().position(|byte| *byte == b'\n');
            let taken = found.unwrap_or(bytes.len());
            if taken > room {
                self.begun.extend(bytes.iter().take(room));
                self.pipe.consume(room);
                return Some(Line::TooLong(std::mem::take(&mut self.begun)));
            }
            self.begun.extend(bytes.iter().take(taken));
            self.pipe.consume(taken + usize::from(found.is_some()));
            if found.is_some() {
                return Some(Line::Whole(std::mem::take(&mut self.begun)));
            }
        }
    }

    fn end(&mut self) -> Option<Line> {
        (!self.begun.is_empty()).then(|| Line::Half(std::mem::take(&mut self.begun)))
    }
}

impl<R: AsFd + AsyncRead + Unpin> Lines<BufReader<R>> {
    /// Whether nothing is there to be read: no byte of a line, and no end.
    pub(super) fn is_silent(&self) -> bool {
        let mut pipe = [PollFd::new(self.pipe.get_ref(), PollFlags::IN)];
        self.begun.is_empty()
            && self.pipe.buffer().is_empty()
            && matches!(poll(&mut pipe, Some(&Timespec::default())), Ok(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(bytes: &[u8], limit: usize, buffer: usize) -> Vec<Line> {
        let mut lines = Lines::new(BufReader::with_capacity(buffer, bytes), limit);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await {
            all.push(line);
        }
        all
    }

    #[tokio::test]
    async fn lines_are_whole_however_they_arrive() {
        for buffer in [1, 3, 100] {
            let whole = |text: &str| Line::Whole(text.into());
            assert_eq!(
                all(b"one\n\ntwo\nrest", 10, buffer).await,
                [whole("one"), whole(""), whole("two"), Line::Half("rest".into())]
            );
        }
    }

    #[tokio::test]
    async fn a_line_of_the_limit_fits_and_a_longer_one_does_not() {
        for buffer in [1, 3, 100] {
            assert_eq!(all(b"12345\n", 5, buffer).await, [Line::Whole("12345".into())]);
            assert_eq!(
                all(b"123456\n", 5, buffer).await,
                [Line::TooLong("12345".into()), Line::Whole("6".into())]
            );
        }
    }
    #[tokio::test]
    async fn a_pipe_is_silent_until_a_byte_or_its_end_is_there() {
        use tokio::net::unix::pipe;
        for (before, line) in [("", None), ("whole\n", Some(Line::Whole("whole".into())))] {
            for after in [Some(&b"x"[..]), None] {
                let (write, read) = pipe::pipe().unwrap();
                let write = write.into_blocking_fd().unwrap();
                rustix::io::write(&write, before.as_bytes()).unwrap();
                let mut lines = Lines::new(BufReader::new(read), 10);
                if line.is_some() {
                    assert_eq!(lines.next().await, line);
                }
                assert!(lines.is_silent());
                match after {
                    Some(bytes) => drop(rustix::io::write(&write, bytes).unwrap()),
                    None => drop(write),
                }
                assert!(!lines.is_silent());
            }
        }
    }

    #[tokio::test]
    async fn what_has_been_read_already_is_not_silence() {
        let (write, read) = tokio::net::unix::pipe::pipe().unwrap();
        let write = write.into_blocking_fd().unwrap();
        let mut lines = Lines::new(BufReader::new(read), 10);
        rustix::io::write(&write, b"one\ntwo\nth").unwrap();
        for line in ["one", "two"] {
            assert_eq!(lines.next().await, Some(Line::Whole(line.into())));
            assert!(!lines.is_silent());
        }
        assert!(futures_util::FutureExt::now_or_never(lines.next()).is_none());
        assert!(!lines.is_silent());
    }
}
