//! The directory where a cluster keeps its Redis, in use by one process at a time.
//!
//! Owns the directory, the file that says who uses it, and the name of the socket. The claim is held by an open file that
//! redis-server inherits: as long as one of the two lives, nobody else starts a redis-server on the same files.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use reqwest::Url;
use tokio::time::Instant;

use crate::exit::Problem;

/// Where `relevo dev` keeps its data unless told otherwise.
pub(crate) const DEFAULT: &str = ".relevo";
/// The longest path that a unix socket can have.
const LONGEST_SOCKET: usize = 107;
/// How long the redis-server of a process that was killed may take to follow it.
const LEFTOVER: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// A directory that this process uses.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    claim: File,
}

impl DataDir {
    /// Creates the directory if need be and claims it.
    pub(crate) async fn claim(path: &Path) -> Result<Self, Problem> {
        let failed = |error: std::io::Error| {
            let text = format!("cannot use the data directory {}", path.display());
            Problem::Failed(anyhow::Error::from(error).context(text))
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(path).map_err(failed)?;
        let path = fs::canonicalize(path).map_err(failed)?;
        let mut claim = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join("in-use"))
            .map_err(failed)?;
        let start = Instant::now();
        loop {
            match claim.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) => {}
            }
            let user = user(&mut claim);
            if is_alive(&user) || start.elapsed() >= LEFTOVER {
                let by = if user.is_empty() {
                    String::new()
                } else {
                    format!(" by process {user}")
                };
                let hint = "stop it, or choose another --data-dir and --port";
                return Err(Problem::failed(format!("{} is in use{by}: {hint}", path.display())));
            }
            tokio::time::sleep(LOOK).await;
        }
        claim.set_len(0).map_err(failed)?;
        claim.rewind().map_err(failed)?;
        write!(claim, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { path, claim })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The claim as the standard input of a child that shares it. Nothing reads it.
    pub(crate) fn share(&self) -> Result<Stdio, Problem> {
        let shared = self.claim.try_clone().map_err(anyhow::Error::from)?;
        Ok(Stdio::from(shared))
    }
}

fn user(claim: &mut File) -> String {
    let mut text = String::new();
    let read = claim.rewind().and_then(|()| claim.read_to_string(&mut text));
    if read.is_ok() { text } else { String::new() }
}

fn is_alive(pid: &str) -> bool {
    pid.parse::<u32>()
        .is_ok_and(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

/// The socket of the Redis in a data directory.
pub(crate) fn socket(dir: &Path) -> PathBuf {
    dir.join("redis.sock")
}

/// The address of the Redis in a data directory.
pub(crate) fn redis_url(dir: &Path) -> Result<String, Problem> {
    let socket = socket(dir);
    if socket.as_os_str().len() > LONGEST_SOCKET {
        let why = format!("a socket's path has at most {LONGEST_SOCKET} bytes");
        return Err(Problem::Usage(format!(
            "{} is too long: {why}; choose a shorter --data-dir",
            socket.display()
        )));
    }
    let odd = || Problem::Usage(format!("{} cannot be written as a URL", socket.display()));
    // A file URL has the path escaped as a socket URL needs it.
    let url = Url::from_file_path(&socket).map_err(|()| odd())?;
    Ok(url.as_str().replacen("file:", "unix:", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_a_url_whatever_its_directory_is_called() {
        assert_eq!(
            redis_url(Path::new("/a b/%?#")).unwrap(),
            "unix:///a%20b/%25%3F%23/redis.sock"
        );
        assert!(redis_url(Path::new(&format!("/{}", "x".repeat(100)))).is_err());
        assert!(redis_url(Path::new("relative")).is_err());
    }
}
