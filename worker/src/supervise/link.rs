//! The control socket between worker and supervisor, and worker and warden: whole messages (SEQPACKET), never blocking, closed when either dies.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use relevo_shared::ids::{Epoch, TurnId};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown, socketpair,
};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::tree::{Marks, Root};

/// Longest message.
const LONGEST: usize = 512;

/// Until when a tree of processes may live, by the boot clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline {
    /// It is told to stop.
    pub(crate) term: Duration,
    /// It is killed.
    pub(crate) kill: Duration,
}

/// A supervisor that somebody else watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watched {
    pub(crate) supervisor: Root,
    /// How long its tree may take to stop, once told.
    pub(crate) grace: Duration,
    /// When nothing of the tree may be left, by the boot clock.
    pub(crate) kill: Duration,
    /// What the tree is known by, should the supervisor die before it.
    pub(crate) marks: Marks,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// What is said over the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Say {
    /// To the supervisor, with the read end of the command's standard input: run it.
    Start(Deadline),
    /// To the supervisor: the lease was renewed.
    Deadline(Deadline),
    /// To the supervisor: SIGTERM now, SIGKILL after this.
    Stop(Duration),
    /// From the supervisor: the command runs under this process id.
    Started(i32),
    /// From the supervisor: it does not, and why.
    Failed(String),
    /// From the supervisor: the command ended; what it left behind is being stopped.
    Exited(Exit),
    /// From the supervisor: nothing of the tree is left.
    Gone,
    /// To the warden: this supervisor is there, with this time left.
    Watch(Watched),
    /// To the warden: this supervisor has done its work.
    Forget(Pid),
}

impl Say {
    fn text(&self) -> String {
        let ms = |time: &Duration| time.as_millis();
        match self {
            Self::Start(at) => format!("start {} {}", ms(&at.term), ms(&at.kill)),
            Self::Deadline(at) => format!("deadline {} {}", ms(&at.term), ms(&at.kill)),
            Self::Stop(within) => format!("stop {}", ms(within)),
            Self::Started(pid) => format!("started {pid}"),
            Self::Failed(why) => format!("failed {why}").chars().take(LONGEST / 4).collect(),
            Self::Exited(exit) => format!("exited {exit}"),
            Self::Gone => "gone".to_owned(),
            Self::Watch(Watched {
                supervisor: Root { pid, born },
                grace,
                kill,
                marks: Marks { turn, epoch },
            }) => {
                let (grace, kill) = (ms(grace), ms(kill));
                format!(
                    "watch {} {born} {grace} {kill} {turn} {}",
                    pid.as_raw_nonzero(),
                    epoch.0
                )
            }
            Self::Forget(pid) => format!("forget {}", pid.as_raw_nonzero()),
        }
    }

    fn read(text: &str) -> Option<Self> {
        if let Some(why) = text.strip_prefix("failed ") {
            return Some(Self::Failed(why.to_owned()));
        }
        let words: Vec<&str> = text.split(' ').collect();
        let ms = |word: &str| word.parse().ok().map(Duration::from_millis);
        let deadline = |term, kill| {
            Some(Deadline {
                term: ms(term)?,
                kill: ms(kill)?,
            })
        };
        match *words.as_slice() {
            ["start", term, kill] => deadline(term, kill).map(Self::Start),
            ["deadline", term, kill] => deadline(term, kill).map(Self::Deadline),
            ["stop", within] => ms(within).map(Self::Stop),
            ["started", pid] => pid.parse().ok().map(Self::Started),
            ["exited", "code", code] => code.parse().ok().map(|code| Self::Exited(Exit::Code(code))),
            ["exited", "signal", signal] => signal.parse().ok().map(|signal| Self::Exited(Exit::Signal(signal))),
            ["gone"] => Some(Self::Gone),
            ["watch", pid, born, grace, kill, turn, epoch] => Some(Self::Watch(Watched {
                supervisor: Root {
                    pid: Pid::from_raw(pid.parse().ok()?)?,
                    born: born.parse().ok()?,
                },
                grace: ms(grace)?,
                kill: ms(kill)?,
                marks: Marks {
                    turn: TurnId::parse(turn)?,
                    epoch: Epoch(epoch.parse().ok()?),
                },
            })),
            ["forget", pid] => Pid::from_raw(pid.parse().ok()?).map(Self::Forget),
            _ => None,
        }
    }
}

/// One end. Sending never waits and may be done from any thread. The type of the runtime's streams only watches the socket here:
/// all that is sent and received are whole messages.
#[derive(Debug)]
pub(crate) struct Link(UnixStream);

/// The other end of a new socket, for the child's standard input.
pub(crate) fn pair() -> io::Result<(Link, OwnedFd)> {
    let (mine, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok((Link::new(mine)?, theirs))
}

impl Link {
    /// Takes an end over.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Self(UnixStream::from_std(socket)?))
    }

    /// Says something.
    pub(crate) fn say(&self, what: &Say) -> io::Result<()> {
        self.send(what, &[])
    }

    /// Says something and passes a descriptor.
    pub(crate) fn say_with(&self, what: &Say, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.send(what, &[descriptor])
    }

    fn send(&self, what: &Say, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = what.text();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut extra = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !extra.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("no room for a descriptor"));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.0, &[IoSlice::new(text.as_bytes())], &mut extra, flags)?;
        Ok(())
    }

    /// The next message, with the descriptor that came along; `None` when the other end is gone. Cancel-safe.
    pub(crate) async fn hear(&self) -> Option<(Say, Option<OwnedFd>)> {
        loop {
            self.0.readable().await.ok()?;
            match self.0.try_io(Interest::READABLE, || receive(self.0.as_fd())) {
                Ok(heard) => return heard,
                // A reset comes once, before what the other end still said: it went without reading everything.
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionReset) => {}
                Err(_) => return None,
            }
        }
    }

    /// Every message that is there by now, whatever the reactor has noticed; a last `None`: the other end is gone.
    pub(crate) fn heard(&self) -> Vec<Option<Say>> {
        let mut all = Vec::new();
        loop {
            match receive(self.0.as_fd()) {
                Ok(Some((what, _))) => all.push(Some(what)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return all,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
                    ) => {}
                Ok(None) | Err(_) => {
                    all.push(None);
                    return all;
                }
            }
        }
    }

    /// Ends the conversation, whoever else holds this end.
    pub(crate) fn close(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

/// One message; `None` at the end. What is not understood ends the conversation: both ends are one binary.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Say, Option<OwnedFd>)>> {
    let mut bytes = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut extra = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut extra, flags)?;
    let descriptor = extra.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let text = bytes.get(..got.bytes).and_then(|bytes| std::str::from_utf8(bytes).ok());
    Ok(text.and_then(Say::read).map(|what| (what, descriptor)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use relevo_shared::ids::Partition;

    use super::*;

    const DEADLINE: Deadline = Deadline {
        term: Duration::from_millis(1_500),
        kill: Duration::from_millis(2_500),
    };

    #[test]
    fn messages_read_back_as_written() {
        for what in [
            Say::Start(DEADLINE),
            Say::Deadline(DEADLINE),
            Say::Stop(Duration::from_secs(2)),
            Say::Started(7),
            Say::Failed("no such file".to_owned()),
            Say::Exited(Exit::Code(3)),
            Say::Exited(Exit::Signal(9)),
            Say::Gone,
            Say::Watch(Watched {
                supervisor: Root {
                    pid: Pid::INIT,
                    born: 7,
                },
                grace: Duration::from_secs(2),
                kill: Duration::from_millis(2_500),
                marks: Marks {
                    turn: TurnId::new(7, Partition(0), 0),
                    epoch: Epoch(9),
                },
            }),
            Say::Forget(Pid::INIT),
        ] {
            assert_eq!(Say::read(&what.text()), Some(what));
        }
        for other in [
            "",
            "start 1",
            "stop x",
            "exited code",
            "gone now",
            "watch 0 1 2 3",
            "forget 0",
        ] {
            assert_eq!(Say::read(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn a_descriptor_travels_with_its_message_and_the_end_is_heard() {
        let (mine, theirs) = pair().unwrap();
        let theirs = Link::new(theirs).unwrap();
        let (mut reader, mut writer) = io::pipe().unwrap();
        mine.say_with(&Say::Start(DEADLINE), writer.as_fd()).unwrap();
        mine.say(&Say::Stop(Duration::ZERO)).unwrap();
        writer.write_all(b"mine ").unwrap();
        drop(writer);
        let (what, passed) = theirs.hear().await.unwrap();
        assert_eq!(what, Say::Start(DEADLINE));
        io::PipeWriter::from(passed.unwrap()).write_all(b"theirs").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "mine theirs");
        assert_eq!(theirs.hear().await.unwrap().0, Say::Stop(Duration::ZERO));
        mine.close();
        assert!(theirs.hear().await.is_none());
    }

    #[tokio::test]
    async fn last_words_are_heard_of_an_end_that_did_not_listen() {
        let (mine, theirs) = pair().unwrap();
        let theirs = Link::new(theirs).unwrap();
        mine.say(&Say::Deadline(DEADLINE)).unwrap();
        theirs.say(&Say::Gone).unwrap();
        drop(theirs);
        assert_eq!(mine.hear().await.unwrap().0, Say::Gone);
        assert!(mine.hear().await.is_none());
    }

    #[tokio::test]
    async fn a_message_to_nobody_is_an_error_and_no_signal() {
        let (mine, theirs) = pair().unwrap();
        drop(theirs);
        assert!(mine.say(&Say::Gone).is_err());
    }
}
