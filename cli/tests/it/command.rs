//! Running `relevo`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use relevo_testkit::{Process, Ready, Scratch, poll};

/// Only a test that is going to fail waits this long.
const LONGEST: Duration = Duration::from_secs(100);

/// The binary under test.
pub fn relevo() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_relevo"))
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    #[track_caller]
    pub fn with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// The value after `name: ` or `name ` on standard error, up to a comma.
    #[track_caller]
    pub fn noted(&self, name: &str) -> String {
        let found = self.stderr.lines().find_map(|line| {
            let rest = line.split(", ").find_map(|part| part.strip_prefix(name))?;
            Some(rest.trim_start_matches([':', ' ']).to_owned())
        });
        found.unwrap_or_else(|| panic!("no {name} in {self:#?}"))
    }
}

/// Starts `relevo`.
pub fn start(args: &[&str]) -> Process {
    Process::spawn(relevo(), args, &[])
}

/// Runs `relevo` to its end.
#[track_caller]
pub fn run(args: &[&str]) -> Ended {
    run_with(args, &[])
}

#[track_caller]
pub fn run_with(args: &[&str], envs: &[(&str, &str)]) -> Ended {
    ended(&Process::spawn(relevo(), args, envs))
}

/// Waits for a command's end.
#[track_caller]
pub fn ended(process: &Process) -> Ended {
    let status = process.wait_exit(LONGEST);
    Ended {
        code: status.code().unwrap_or(-1),
        stdout: process.stdout(),
        stderr: process.stderr(),
    }
}

/// Whether a process runs; one that has ended and waits to be reaped does not.
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// A running `relevo dev`.
pub struct Dev {
    pub process: Process,
    ready: Ready,
    data_dir: String,
}

impl Dev {
    /// On free ports, with its data in `dir`.
    #[track_caller]
    pub fn start(dir: &Path, args: &[&str]) -> Self {
        Self::start_with(dir, args, &[])
    }

    #[track_caller]
    pub fn start_with(dir: &Path, args: &[&str], envs: &[(&str, &str)]) -> Self {
        let data_dir = dir.join("data").display().to_string();
        let all: Vec<&str> = ["dev", "--port", "0", "--data-dir", &data_dir]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        let process = Process::spawn_with_ready_file(relevo(), &all, envs);
        let ready = process.wait_ready();
        Self {
            process,
            ready,
            data_dir,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.ready.listen.unwrap())
    }

    pub fn admin(&self) -> String {
        format!("http://{}", self.ready.admin.unwrap())
    }

    pub fn data_dir(&self) -> &str {
        &self.data_dir
    }

    /// Runs a client command against its first gateway.
    #[track_caller]
    pub fn client(&self, args: &[&str]) -> Ended {
        ended(&self.start_client(args))
    }

    pub fn start_client(&self, args: &[&str]) -> Process {
        let url = self.url();
        let all: Vec<&str> = args.iter().copied().chain(["--url", &url]).collect();
        start(&all)
    }

    /// Runs an operator's command on its data directory.
    #[track_caller]
    pub fn operator(&self, args: &[&str]) -> Ended {
        let all: Vec<&str> = args.iter().copied().chain(["--data-dir", &self.data_dir]).collect();
        run(&all)
    }

    /// The process id of its redis-server.
    pub fn redis_pid(&self) -> u32 {
        let log = std::fs::read_to_string(Path::new(&self.data_dir).join("redis.log")).unwrap();
        let line = log.lines().find(|line| line.contains("ready to accept connections at"));
        let line = line.unwrap_or_else(|| panic!("{log}"));
        line.split(':').next().unwrap().parse().unwrap()
    }

    /// Stops it as Ctrl-C would and waits for its end.
    #[track_caller]
    pub fn stop(self) -> Ended {
        assert!(self.process.sigterm());
        ended(&self.process)
    }
}

/// Waits until a command has printed something.
#[track_caller]
pub fn printed(process: &Process, text: &str) {
    poll::until_sync(&format!("{text:?} to be printed"), || {
        let (stdout, stderr) = (process.stdout(), process.stderr());
        if stdout.contains(text) || stderr.contains(text) {
            Ok(())
        } else {
            Err(format!("stdout {stdout:?}, stderr {stderr:?}"))
        }
    });
}

pub fn scratch() -> Scratch {
    Scratch::new("cli")
}
