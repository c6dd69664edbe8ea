//! Files that somebody names by a path and that the worker reads: only regular ones, only where they may lie.
//!
//! What is opened is what was judged: the path is freed of symbolic links first, the file that it led to is asked where it lies and
//! what it is, and only then opened for reading, by its descriptor: a link or a device put there in between gains nothing, and the
//! other end of a pipe is not waited for. What is read of it, and how much, is the caller's.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, FsWord, Mode, OFlags, PROC_SUPER_MAGIC};

/// Longest path that the system opens, and longest name in it.
const LONGEST_PATH: usize = 4095;
const LONGEST_NAME: usize = 255;

/// Why a file is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It lies elsewhere.
    Outside,
    /// Nothing is there.
    Missing,
    /// There is no regular file that may be read.
    NoFile,
}

/// A file that was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    /// Where it is, without symbolic links.
    pub(crate) path: PathBuf,
    /// How long it is, as far as it knows.
    pub(crate) length: u64,
}

/// Whether something may exist under a path of this length. Where nothing can, nothing is looked for: that costs its components
/// times its length.
pub(crate) fn may_exist(path: &Path) -> bool {
    let short = |name: Component<'_>| name.as_os_str().len() <= LONGEST_NAME;
    path.as_os_str().len() <= LONGEST_PATH && path.components().all(short)
}

/// Opens a file for which `holds` says, of its path without symbolic links, that it may be read.
pub(crate) fn open(path: &Path, holds: impl Fn(&Path) -> bool) -> Result<Opened, Refused> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(Refused::Outside);
    }
    if !may_exist(path) {
        return Err(Refused::NoFile);
    }
    let (real, whole) = resolve(path);
    if !holds(&real) {
        return Err(Refused::Outside);
    }
    if !whole {
        let missing = real
            .symlink_metadata()
            .is_err_and(|error| error.kind() == ErrorKind::NotFound);
        return Err(if missing { Refused::Missing } else { Refused::NoFile });
    }
    // Opens nothing yet: a device would notice.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(CWD, &real, flags, Mode::empty()).map_err(|_wrong| Refused::NoFile)?;
    let facts = rustix::fs::fstat(&found).map_err(|_wrong| Refused::NoFile)?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile || is_the_systems(&found) {
        return Err(Refused::NoFile);
    }
    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
    let lies = std::fs::read_link(&link).map_err(|_wrong| Refused::NoFile)?;
    if !holds(&lies) {
        return Err(Refused::Outside);
    }
    // Neither does it wait for whoever has a lease on the file.
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::CLOEXEC).bits()).map_err(|_wrong| Refused::NoFile)?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&link);
    let file = file.map_err(|_wrong| Refused::NoFile)?;
    let length = file.metadata().map_err(|_wrong| Refused::NoFile)?.len();
    Ok(Opened {
        file,
        path: real,
        length,
    })
}

/// Whether a file is a view into the system or its processes, such as `/proc/self/environ`: whatever may be read, that is nobody's
/// workspace.
fn is_the_systems(file: impl AsFd) -> bool {
    const SYSFS: FsWord = 0x6265_6572;
    match rustix::fs::fstatfs(file) {
        Ok(found) => [PROC_SUPER_MAGIC, SYSFS].contains(&found.f_type),
        Err(_) => true,
    }
}

/// A path without symbolic links, as far as it exists, and whether all of it does.
fn resolve(path: &Path) -> (PathBuf, bool) {
    if let Ok(real) = path.canonicalize() {
        return (real, true);
    }
    let mut missing = Vec::new();
    for ancestor in path.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            let mut whole = real;
            for component in missing.into_iter().rev() {
                whole.push(component);
            }
            return (whole, false);
        }
        match ancestor.components().next_back() {
            Some(Component::Normal(name)) => missing.push(name.to_owned()),
            // Up from where nothing is: nowhere.
            _ => return (PathBuf::new(), false),
        }
    }
    (PathBuf::new(), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names_are_looked_for_up_to_what_the_system_opens() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (fits, over) = ("n".repeat(255), "n".repeat(256));
        std::fs::write(root.join(&fits), "x").unwrap();
        let open = |name: &str| open(&root.join(name), |path| path.starts_with(&root)).map(drop);
        assert_eq!(open(&fits), Ok(()));
        assert_eq!(open(&over), Err(Refused::NoFile));
        assert_eq!(open("a\0b"), Err(Refused::Outside));
        assert!(!may_exist(Path::new(&over)));
        let path = |length: usize| PathBuf::from(format!("/{}", "d/".repeat(2_100)).split_at(length).0);
        assert!(may_exist(&path(4095)));
        assert!(!may_exist(&path(4096)));
    }

    #[test]
    fn what_is_swapped_between_the_looks_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (inside, outside, place) = (root.join("in"), root.join("out"), root.join("in/a"));
        for folder in [&inside, &outside] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("a"), "x").unwrap();
        }
        let looks = std::cell::Cell::new(0);
        let swapping = |path: &Path| {
            if looks.replace(looks.get() + 1) == 0 {
                // Whoever owns the workspace does it right after the first look.
                std::fs::rename(&inside, root.join("aside")).unwrap();
                std::os::unix::fs::symlink(&outside, &inside).unwrap();
            }
            path.starts_with(&inside)
        };
        assert_eq!(open(&place, swapping).map(drop), Err(Refused::Outside));
        assert_eq!(looks.get(), 2);
    }
}
