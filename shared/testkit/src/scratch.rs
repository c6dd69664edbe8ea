//! Scratch directories: one folder per fixture under one folder per test process.
//!
//! A fixture that is dropped while its test fails leaves its folder behind; the common parent is printed once, so a
//! failing test with five processes prints one path. Called by the other fixtures, and by tests that need a folder.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{env, fs, thread};

/// `sockaddr_un` holds 108 bytes; a longer temporary folder than this leaves no room for
/// `/relevo-XXXXXX/name-NN/x.sock`.
const LONGEST_TEMP_DIR: usize = 48;

/// The parent of every scratch folder of this test process. Each fixture removes it if it is empty.
static ROOT: OnceLock<PathBuf> = OnceLock::new();
static NEXT: AtomicU64 = AtomicU64::new(1);
static TOLD: AtomicBool = AtomicBool::new(false);

/// A private directory, removed on drop unless the test is failing.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates an empty directory whose name starts with `name`.
    pub fn new(name: &str) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = root().join(format!("{name}-{number}"));
        // The root may have been removed by the last fixture of an earlier test of this process.
        fs::create_dir_all(&path).expect("a scratch directory can be created");
        Self { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if thread::panicking() {
            tell_once();
            return;
        }
        // Best effort: a directory left in the temporary folder fails nothing.
        if fs::remove_dir_all(&self.path).is_ok() {
            fs::remove_dir(root()).ok();
        }
    }
}

fn root() -> &'static Path {
    ROOT.get_or_init(|| {
        let mut base = env::temp_dir();
        if base.as_os_str().len() > LONGEST_TEMP_DIR {
            base = PathBuf::from("/tmp");
        }
        tempfile::Builder::new()
            .prefix("relevo-")
            .tempdir_in(base)
            .expect("a temporary directory can be created")
            .keep()
    })
}

#[expect(
    clippy::print_stderr,
    reason = "the path is for the person who reads the failed test"
)]
fn tell_once() {
    if !TOLD.swap(true, Ordering::Relaxed) {
        eprintln!("files of the failed test are kept in {}", root().display());
    }
}
