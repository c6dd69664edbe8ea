//! A private `redis-server` per test.
//!
//! It listens on a unix socket in a scratch directory, so there is no port to clash, nothing to flush and no order
//! between tests; it answers about 15 ms after the start. TCP and cluster mode are there for the tests that need them.
//! Called by every test that needs Redis.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::Signal;

use crate::authority::Certificate;
use crate::child::{self, Guarded};
use crate::fault_proxy::Upstream;
use crate::poll;
use crate::scratch::Scratch;

mod builder;

pub(crate) use builder::MEMBERS;
pub use builder::RedisBuilder;
use builder::socket_in;

/// How often a starting server is asked. A start takes some 10 ms, so this is most of what polling adds to it.
const INTERVAL: Duration = Duration::from_millis(2);

/// A server that answers nothing at all within this time is not going to.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running server. It is killed and its files are removed on drop; when the test fails, its files are kept.
#[derive(Debug)]
pub struct RedisServer {
    // ORDER: fields drop in this order; the directory goes after the server that writes into it.
    child: Mutex<Option<Guarded>>,
    scratch: Scratch,
    args: Vec<String>,
    addr: Option<SocketAddr>,
    /// Where other nodes of a cluster reach it.
    bus: Option<u16>,
    url: String,
}

impl RedisServer {
    /// A server on a unix socket, without persistence.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server on a free TCP port of 127.0.0.1, without persistence.
    #[track_caller]
    pub fn start_tcp() -> Self {
        Self::builder().tcp().start()
    }

    /// A cluster of one node that owns all slots, on TCP. Takes two seconds.
    #[track_caller]
    pub fn start_cluster_node() -> Self {
        Self::builder().cluster_node().start()
    }

    /// For servers with other settings.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    /// What to give to `--redis`: `unix:///path`, `redis://address:port` or `rediss://name:port`.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The unix socket, which every server has.
    pub fn socket(&self) -> PathBuf {
        socket_in(&self.scratch)
    }

    /// Shows another certificate to whoever connects from now on.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    #[track_caller]
    pub fn show(&self, certificate: &Certificate) {
        let (cert, key) = (
            &certificate.cert.display().to_string(),
            &certificate.key.display().to_string(),
        );
        self.cli(&["CONFIG", "SET", "tls-cert-file", cert, "tls-key-file", key]);
    }

    /// The TCP address, if it has one.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.addr
    }

    /// The port at which other nodes of a cluster reach it, if it is one.
    pub(crate) fn bus(&self) -> Option<u16> {
        self.bus
    }

    /// This server as the far side of a [`crate::FaultProxy`]. It stays valid across [`RedisServer::restart`].
    pub fn upstream(&self) -> Upstream {
        Upstream::Unix(self.socket())
    }

    /// Its working directory.
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// The log of the present and earlier runs.
    pub fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("redis.log")).unwrap_or_default()
    }

    /// The process id.
    ///
    /// # Panics
    /// When it was killed and not restarted.
    pub fn pid(&self) -> u32 {
        self.child().as_ref().map(Guarded::id).expect("the server was killed")
    }

    /// SIGKILL, and waits until it is gone. Files stay for [`RedisServer::restart`].
    pub fn kill(&self) {
        if let Some(child) = self.child().take() {
            child.kill();
        }
    }

    /// SIGSTOP: connections stay open and nothing is answered. Returns when it stands still.
    ///
    /// # Panics
    /// When it was killed and not restarted, as with [`RedisServer::cont`].
    pub fn stop(&self) {
        assert!(
            self.child().as_ref().is_some_and(Guarded::stop),
            "the server does not run"
        );
    }

    /// Lets a stopped server go on.
    ///
    /// # Panics
    /// When it was killed and not restarted.
    pub fn cont(&self) {
        assert!(
            self.child().as_ref().is_some_and(|child| child.signal(Signal::CONT)),
            "the server does not run"
        );
    }

    /// Starts it again with the same settings, socket, port and files; kills it first if it runs.
    ///
    /// # Panics
    /// When it does not answer. With TCP another process may have taken the port; put a [`crate::FaultProxy`] before a
    /// unix socket where a test needs an address that is sure to survive.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        poll::within_sync(PATIENCE, "redis-server to start again", || self.launch());
    }

    /// The lines of a section of INFO, as names and values.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    #[track_caller]
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        let text = self.cli(&["INFO", section]);
        let pair = |line: &str| {
            line.split_once(':')
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        };
        text.lines().filter_map(pair).collect()
    }

    /// Bytes that it holds.
    ///
    /// # Panics
    /// As [`RedisServer::cli`].
    #[track_caller]
    pub fn used_memory(&self) -> u64 {
        let info = self.info("memory");
        let used = info.get("used_memory").and_then(|bytes| bytes.parse().ok());
        used.expect("INFO says how much memory is used")
    }

    /// Runs `redis-cli` against it and returns what it prints, without the last line break. Options of redis-cli may
    /// come first, such as `-a` and a password.
    ///
    /// # Panics
    /// When redis-cli fails or the server answers with an error.
    #[track_caller]
    pub fn cli(&self, args: &[&str]) -> String {
        self.try_cli(args)
            .unwrap_or_else(|error| panic!("redis-cli {args:?}: {error}"))
    }

    /// The same for a question that may be answered with an error.
    ///
    /// # Errors
    /// What redis-cli printed.
    pub fn try_cli(&self, args: &[&str]) -> Result<String, String> {
        let mut command = child::command("redis-cli");
        // -e: an error reply is an exit code, not just text.
        command.arg("-e").arg("-s").arg(self.socket()).args(args);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = child::spawn(command)
            .wait_with_output()
            .expect("redis-cli can be waited for");
        let text = String::from_utf8_lossy(&output.stdout)
            .trim_end_matches('\n')
            .to_owned();
        if output.status.success() {
            return Ok(text);
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        Err(format!("{}: {text}{complaint}", output.status))
    }

    fn launch(&self) -> Result<(), String> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.scratch.path().join("redis.log"));
        let log = log.expect("the log file can be opened");
        let mut command = child::command("redis-server");
        command
            .args(&self.args)
            .current_dir(self.scratch.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file handle can be copied"))
            .stderr(log);
        let child = Guarded::spawn(command);
        let start = Instant::now();
        loop {
            // The socket is in a directory of our own, so whoever answers there is this child.
            let seen = match ping(&self.socket()) {
                // A server with a password answers, which is all that is asked here.
                Ok(reply) if reply.starts_with("+PONG") || reply.starts_with("-NOAUTH") => break,
                Ok(reply) => reply,
                Err(error) => error.to_string(),
            };
            if let Some(status) = child.status() {
                let mut message = format!("redis-server ended ({status}); its log:\n{}", self.log());
                if status.code() == Some(127) {
                    write!(message, "\ninstall it: apt-get install redis-server").expect("a string can be written");
                }
                return Err(message);
            }
            if start.elapsed() > PATIENCE {
                return Err(format!(
                    "redis-server does not answer: {seen}; its log:\n{}",
                    self.log()
                ));
            }
            thread::sleep(INTERVAL);
        }
        *self.child() = Some(child);
        Ok(())
    }

    fn form_cluster(&self) {
        self.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        poll::until_sync("the cluster to be usable", || {
            let info = self.cli(&["CLUSTER", "INFO"]);
            if info.lines().any(|line| line.trim_end() == "cluster_state:ok") {
                Ok(())
            } else {
                Err(info)
            }
        });
    }

    fn child(&self) -> MutexGuard<'_, Option<Guarded>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One PING; the reply's first line, which is an error reply while data is loaded.
fn ping(socket: &Path) -> io::Result<String> {
    let mut connection = UnixStream::connect(socket)?;
    connection.set_read_timeout(Some(Duration::from_secs(1)))?;
    connection.write_all(b"PING\r\n")?;
    let mut reply = Vec::new();
    let mut byte = [0];
    while !reply.ends_with(b"\r\n") && connection.read(&mut byte)? == 1 {
        reply.extend_from_slice(&byte);
    }
    Ok(String::from_utf8_lossy(&reply).into_owned())
}
