//! The ready file: where a process says that it is ready and what it listens on, so that nobody parses logs.
//!
//! Owns one file. It is complete whenever it exists (written beside, then renamed) and goes when the process ends
//! cleanly. Called from each process' `app.rs` once /readyz is true.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyInfo {
    /// The process.
    pub pid: u32,
    /// Where it serves A2A; null for a worker.
    pub listen: Option<SocketAddr>,
    /// Where it serves A2A over gRPC; null where it does not.
    pub grpc: Option<SocketAddr>,
    /// Where its admin listener is.
    pub admin: SocketAddr,
}

/// A ready file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the ready file {}", path.display())]
pub struct ReadyFileError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// A written ready file; dropping it removes the file.
#[derive(Debug)]
#[must_use = "the file is removed when this is dropped"]
pub struct ReadyFile {
    path: PathBuf,
    content: String,
}

impl ReadyFile {
    /// Writes what this process says. `listen` and `grpc` are where it serves A2A.
    ///
    /// # Errors
    /// When the folder is missing or cannot be written.
    pub fn write(
        path: &Path,
        listen: Option<SocketAddr>,
        grpc: Option<SocketAddr>,
        admin: SocketAddr,
    ) -> Result<Self, ReadyFileError> {
        let failed = |source: io::Error| ReadyFileError {
            path: path.to_owned(),
            source,
        };
        let info = ReadyInfo {
            pid: std::process::id(),
            listen,
            grpc,
            admin,
        };
        let content = serde_json::to_string(&info).map_err(|error| failed(error.into()))?;
        let beside = beside(path, info.pid);
        let written = fs::write(&beside, &content).and_then(|()| fs::rename(&beside, path));
        if let Err(source) = written {
            let _ = fs::remove_file(&beside);
            return Err(failed(source));
        }
        Ok(Self {
            path: path.to_owned(),
            content,
        })
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        // A successor may have written its own there already.
        if fs::read_to_string(&self.path).is_ok_and(|content| content == self.content) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// In the same folder, since a rename is atomic only within a file system.
fn beside(path: &Path, pid: u32) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{pid}.tmp"));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMIN: SocketAddr = crate::platform::config::GATEWAY_ADMIN;

    #[test]
    fn the_file_says_who_is_ready_and_where_and_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ready.json");
        let listen = SocketAddr::from(([127, 0, 0, 1], 5));
        let grpc = SocketAddr::from(([127, 0, 0, 1], 6));
        let file = ReadyFile::write(&path, Some(listen), Some(grpc), ADMIN).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let pid = std::process::id();
        assert_eq!(
            text,
            format!(r#"{{"pid":{pid},"listen":"127.0.0.1:5","grpc":"127.0.0.1:6","admin":"127.0.0.1:41243"}}"#)
        );
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_file_of_a_successor_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ready.json");
        let file = ReadyFile::write(&path, None, None, ADMIN).unwrap();
        fs::write(&path, "another's").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
    }

    #[test]
    fn a_missing_folder_is_reported_with_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing").join("ready.json");
        let error = ReadyFile::write(&path, None, None, ADMIN).unwrap_err();
        assert!(error.to_string().contains("missing/ready.json"));
    }
}
