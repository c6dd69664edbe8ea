//! A redis-server of one's own: a child on a unix socket in a data directory, append-only, never evicting, not on the network.
//!
//! Owns its arguments, the wait until it answers, and its orderly end. Speaks no Redis beyond one PING; the store does
//! the rest. Called by `dev` and `demo`.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};

use crate::child::{NOT_FOUND, Nursery, Running};
use crate::data_dir::{self, DataDir};
use crate::exit::Problem;

/// How long it may take to read what it kept.
const START: Duration = Duration::from_mins(2);
/// How long it may take to write what it has.
const STOP: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);
/// How much of its log is shown when it does not start.
const SHOWN_LINES: usize = 5;

/// A redis-server that runs.
#[derive(Debug)]
pub(crate) struct Redis {
    child: Running,
    url: String,
}

impl Redis {
    /// Starts it and waits until it answers.
    pub(crate) async fn start(nursery: &Nursery, dir: &DataDir) -> Result<Self, Problem> {
        let url = data_dir::redis_url(dir.path())?;
        let socket = data_dir::socket(dir.path());
        // What a predecessor left that was killed.
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Problem::Failed(
                    anyhow::Error::from(error).context("cannot remove the old socket"),
                ));
            }
            Ok(()) | Err(_) => {}
        }
        let path = dir.path().join("redis.log");
        let log = OpenOptions::new().create(true).write(true).truncate(true).open(&path);
        let log = log.map_err(|error| anyhow::Error::from(error).context("cannot write redis.log"))?;
        let errors = log.try_clone().map_err(anyhow::Error::from)?;
        let claim = dir.share()?;
        let child = nursery.spawn("redis-server", |command| {
            // Paths are relative to the directory: the limit for a socket's path is short.
            command
                .current_dir(dir.path())
                .args(ARGUMENTS)
                .stdin(claim)
                .stdout(log)
                .stderr(errors);
        })?;
        let mut redis = Self { child, url };
        redis.answers(&socket, &path).await?;
        Ok(redis)
    }

    /// Its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Waits until it ends, which it should not.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        self.child.wait().await
    }

    /// Lets it write everything to disk and end.
    pub(crate) async fn stop(self) -> Result<(), Problem> {
        if self.child.stop(STOP).await {
            Ok(())
        } else {
            Err(Problem::failed(format!(
                "redis-server did not end within {} s and was killed",
                STOP.as_secs()
            )))
        }
    }

    async fn answers(&mut self, socket: &Path, log: &Path) -> Result<(), Problem> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.ended() {
                return Err(did_not_start(status, log));
            }
            let seen = match timeout(START, ping(socket)).await {
                Ok(Ok(line)) if line.starts_with("+PONG") => return Ok(()),
                Ok(Ok(line)) => line,
                Ok(Err(error)) => error.to_string(),
                Err(elapsed) => elapsed.to_string(),
            };
            if start.elapsed() >= START {
                self.child.signal(Signal::KILL);
                return Err(Problem::failed(format!(
                    "redis-server does not answer: {seen}{}",
                    end_of(log)
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

const ARGUMENTS: [&str; 20] = [
    "--port",
    "0",
    "--unixsocket",
    "redis.sock",
    "--unixsocketperm",
    "700",
    "--dir",
    ".",
    "--daemonize",
    "no",
    "--save",
    "",
    "--appendonly",
    "yes",
    "--appendfsync",
    "everysec",
    "--maxmemory-policy",
    "noeviction",
    "--loglevel",
    "notice",
];

fn did_not_start(status: ExitStatus, log: &Path) -> Problem {
    if status.code() == Some(i32::from(NOT_FOUND)) {
        return Problem::failed(
            "redis-server is not installed; on Debian and Ubuntu: sudo apt-get install redis-server",
        );
    }
    Problem::failed(format!("redis-server ended at once ({status}){}", end_of(log)))
}

fn end_of(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(SHOWN_LINES)..).unwrap_or_default();
    format!("; the end of {}:\n{}", log.display(), last.join("\n"))
}

/// The first line of the answer to a PING.
async fn ping(socket: &Path) -> io::Result<String> {
    let mut connection = BufReader::new(UnixStream::connect(socket).await?);
    connection.write_all(b"PING\r\n").await?;
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}
