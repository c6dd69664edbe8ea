//! Relevo's own binaries as child processes.
//!
//! Owns: finding a binary beside the test executable, its output as files, its ready file, signals, and its end. It
//! does not build binaries: a test run must have done so. Called by every test that looks at processes from outside.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use std::{env, fs, io};

use rustix::process::Signal;
use serde_json::Value;

use crate::child::{self, Guarded};
use crate::poll;
use crate::scratch::Scratch;

const READY_FILE: &str = "ready.json";

/// How much of a log is quoted in a panic message; the whole file is kept.
const QUOTED_LINES: usize = 30;

/// A child process. It is killed and reaped on drop; when the test fails, its output is kept.
#[derive(Debug)]
pub struct Process {
    // ORDER: fields drop in this order; the directory goes after the process that writes into it.
    child: Guarded,
    scratch: Scratch,
    name: String,
}

/// What a process writes to its `--ready-file` once it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// The process id, which equals [`Process::pid`].
    pub pid: u32,
    /// The address that serves clients; workers have none.
    pub listen: Option<SocketAddr>,
    /// The address that serves clients over gRPC, if there is one.
    pub grpc: Option<SocketAddr>,
    /// The address of `/livez`, `/readyz` and `/metrics`.
    pub admin: Option<SocketAddr>,
}

/// The path of a binary of this workspace, in the same `target/<profile>` as the running test.
///
/// # Panics
/// When it was not built; the message has the command that builds it.
pub fn binary(name: &str) -> PathBuf {
    let test = env::current_exe().expect("the test executable has a path");
    // target/<profile>/deps/<test>
    let profile = test
        .ancestors()
        .nth(2)
        .expect("the test executable is in target/<profile>/deps");
    let path = profile.join(name);
    if !path.is_file() {
        let option = match profile.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => String::new(),
            Some("release") => " --release".to_owned(),
            Some(other) => format!(" --profile {other}"),
        };
        panic!(
            "{} does not exist; build it first:\n    cargo build --workspace --bins{option}",
            path.display()
        );
    }
    path
}

impl Process {
    /// Starts `program`. It inherits the environment without `RELEVO_*`, plus `envs`; its working directory is its own
    /// scratch directory, standard input is empty.
    pub fn spawn(program: impl AsRef<Path>, args: &[&str], envs: &[(&str, &str)]) -> Self {
        let program = program.as_ref();
        let name = program
            .file_name()
            .map_or_else(|| "process".to_owned(), |name| name.to_string_lossy().into_owned());
        let scratch = Scratch::new(&name);
        Self::spawn_in(scratch, name, program, args, envs)
    }

    /// [`Process::spawn`] with `--ready-file` added, for [`Process::wait_ready`] and [`Process::ready`].
    pub fn spawn_with_ready_file(program: impl AsRef<Path>, args: &[&str], envs: &[(&str, &str)]) -> Self {
        let program = program.as_ref();
        let name = program
            .file_name()
            .map_or_else(|| "process".to_owned(), |name| name.to_string_lossy().into_owned());
        let scratch = Scratch::new(&name);
        let ready_file = scratch.path().join(READY_FILE).to_string_lossy().into_owned();
        let args: Vec<&str> = args.iter().copied().chain(["--ready-file", &ready_file]).collect();
        Self::spawn_in(scratch, name, program, &args, envs)
    }

    fn spawn_in(scratch: Scratch, name: String, program: &Path, args: &[&str], envs: &[(&str, &str)]) -> Self {
        let file = |name: &str| File::create(scratch.path().join(name)).expect("a log file can be created");
        let mut command = child::command(program);
        for (key, _) in env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with("RELEVO_")) {
            command.env_remove(key);
        }
        command
            .args(args)
            .envs(envs.iter().copied())
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .stdout(file("stdout.log"))
            .stderr(file("stderr.log"));
        Self {
            child: Guarded::spawn(command),
            scratch,
            name,
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its scratch and working directory.
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// What it wrote to standard output so far.
    pub fn stdout(&self) -> String {
        self.read("stdout.log")
    }

    /// What it wrote to standard error so far.
    pub fn stderr(&self) -> String {
        self.read("stderr.log")
    }

    /// Standard error followed by standard output.
    pub fn log(&self) -> String {
        self.stderr() + &self.stdout()
    }

    /// Asks it to drain and end. `false` if it has ended already, as with the other signals.
    pub fn sigterm(&self) -> bool {
        self.child.signal(Signal::TERM)
    }

    /// Kills it. The process may be reaped later; [`Process::kill`] waits for that.
    pub fn sigkill(&self) -> bool {
        self.child.signal(Signal::KILL)
    }

    /// Stops it and returns when every thread of it stands still.
    pub fn sigstop(&self) -> bool {
        self.child.stop()
    }

    /// Lets a stopped process go on.
    pub fn sigcont(&self) -> bool {
        self.child.signal(Signal::CONT)
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&self) {
        self.child.kill();
    }

    /// How it ended, or `None` while it runs.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.child.status()
    }

    /// Waits for its end. Blocks the thread.
    ///
    /// # Panics
    /// When it still runs after `limit`.
    #[track_caller]
    pub fn wait_exit(&self, limit: Duration) -> ExitStatus {
        self.child.wait(&format!("{} to end", self.name), limit)
    }

    /// [`Process::wait_exit`] for async tests whose own tasks must go on meanwhile.
    ///
    /// # Panics
    /// When it still runs after `limit`.
    pub async fn exited(&self, limit: Duration) -> ExitStatus {
        let what = format!("{} to end", self.name);
        poll::within(limit, &what, || async { self.child.status().ok_or("still running") }).await
    }

    /// Waits until the ready file is there. Blocks the thread.
    ///
    /// # Panics
    /// When the process ends first, or was not started by [`Process::spawn_with_ready_file`].
    #[track_caller]
    pub fn wait_ready(&self) -> Ready {
        poll::until_sync(&format!("{} to be ready", self.name), || self.try_ready())
    }

    /// [`Process::wait_ready`] for async tests whose own tasks must go on meanwhile.
    ///
    /// # Panics
    /// When the process ends first, or was not started by [`Process::spawn_with_ready_file`].
    pub async fn ready(&self) -> Ready {
        let what = format!("{} to be ready", self.name);
        poll::until(&what, || async { self.try_ready() }).await
    }

    fn try_ready(&self) -> Result<Ready, String> {
        // The status first: a process that wrote its file and ended is not ready.
        if let Some(status) = self.child.status() {
            panic!(
                "{} ended before it was ready ({status}); the end of its log:\n{}",
                self.name,
                self.log_end()
            );
        }
        let text = match fs::read_to_string(self.scratch.path().join(READY_FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(format!("no ready file; the end of its log:\n{}", self.log_end()));
            }
            Err(error) => panic!("the ready file of {} cannot be read: {error}", self.name),
        };
        let ready =
            Ready::parse(&text).unwrap_or_else(|error| panic!("bad ready file of {}: {error}: {text}", self.name));
        assert_eq!(ready.pid, self.pid(), "the ready file was written by another process");
        Ok(ready)
    }

    fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines
            .get(lines.len().saturating_sub(QUOTED_LINES)..)
            .unwrap_or_default()
            .join("\n")
    }

    fn read(&self, file: &str) -> String {
        let bytes = fs::read(self.scratch.path().join(file)).expect("the log file can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Ready {
    fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let pid = value.get("pid").and_then(Value::as_u64).ok_or("no `pid`")?;
        Ok(Self {
            pid: u32::try_from(pid).map_err(|error| error.to_string())?,
            listen: address(&value, "listen")?,
            grpc: address(&value, "grpc")?,
            admin: address(&value, "admin")?,
        })
    }
}

fn address(value: &Value, key: &str) -> Result<Option<SocketAddr>, String> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => text.parse().map(Some).map_err(|error| format!("`{key}`: {error}")),
        Some(other) => Err(format!("`{key}` is not an address: {other}")),
    }
}
