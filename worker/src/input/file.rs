//! Files that parts name by a URL: only local ones, only inside the workspace, only whole.
//!
//! What is opened is what was judged: the path is freed of symbolic links first, and the file that was opened is asked where
//! it lies, so that a link put there in between gains nothing. Nothing that is not a regular file is read.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FsWord, OFlags, PROC_SUPER_MAGIC};
use url::Url;

use super::workspace::Roots;
use super::{Unusable, may_exist};

const NOT_LOCAL: Unusable = Unusable::new("A2A file URL parts must use local file:// URLs.");
const OUTSIDE: Unusable = Unusable::new("A2A file URL part is outside the allowed workspace.");
const NO_FILE: Unusable = Unusable::new("A2A file URL part must reference an existing file.");

/// Where files may lie.
pub(super) struct Place<'a> {
    pub(super) workspace: &'a Path,
    pub(super) roots: &'a Roots,
}

/// A file that was opened.
#[derive(Debug)]
pub(super) struct Opened {
    file: File,
    path: PathBuf,
    length: u64,
}

impl Place<'_> {
    /// Opens what a URL names.
    pub(super) fn open(&self, url: &str) -> Result<Opened, Unusable> {
        let path = path_of(url)?;
        let (real, whole) = resolve(&path);
        if !self.holds(&real) {
            return Err(OUTSIDE);
        }
        if !whole {
            return Err(NO_FILE);
        }
        // Without waiting for the other end of a pipe.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits();
        let flags = i32::try_from(flags).map_err(|_wrong| NO_FILE)?;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&real);
        let file = file.map_err(|_wrong| NO_FILE)?;
        let metadata = file.metadata().map_err(|_wrong| NO_FILE)?;
        if !metadata.is_file() || is_the_systems(&file) {
            return Err(NO_FILE);
        }
        let lies = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(|_wrong| NO_FILE)?;
        if !self.holds(&lies) {
            return Err(OUTSIDE);
        }
        Ok(Opened {
            file,
            path: real,
            length: metadata.len(),
        })
    }

    fn holds(&self, path: &Path) -> bool {
        path.starts_with(self.workspace) && self.roots.hold(path)
    }
}

impl Opened {
    /// How long it is, as far as it knows.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Its whole content, if that is at most `most` bytes.
    pub(super) fn read(self, most: u64) -> Option<Vec<u8>> {
        if self.length > most {
            return None;
        }
        let mut content = Vec::new();
        // It may grow while it is read, and some files do not know how long they are.
        self.file.take(most + 1).read_to_end(&mut content).ok()?;
        (content.len() as u64 <= most).then_some(content)
    }

    /// Its name.
    pub(super) fn name(&self) -> String {
        self.path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// Where it is, as a URL.
    pub(super) fn url(&self) -> String {
        Url::from_file_path(&self.path).map(String::from).unwrap_or_default()
    }
}

/// Whether a file is a view into the system or its processes, such as `/proc/self/environ`: whatever the roots are, that is nobody's
/// workspace.
fn is_the_systems(file: &File) -> bool {
    const SYSFS: FsWord = 0x6265_6572;
    match rustix::fs::fstatfs(file) {
        Ok(found) => [PROC_SUPER_MAGIC, SYSFS].contains(&found.f_type),
        Err(_) => true,
    }
}

/// `file:///path`, and nothing of another host.
fn path_of(url: &str) -> Result<PathBuf, Unusable> {
    let parsed = Url::parse(url).map_err(|_wrong| NOT_LOCAL)?;
    let rest = url.get(5..).unwrap_or_default();
    // The parser takes `file:x` for `file:///x` and `file://localhost/x` for no host at all.
    if parsed.scheme() != "file" || !rest.starts_with("///") || parsed.host().is_some() {
        return Err(NOT_LOCAL);
    }
    let path = parsed.to_file_path().map_err(|()| NOT_LOCAL)?;
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(OUTSIDE);
    }
    if !may_exist(&path) {
        return Err(NO_FILE);
    }
    Ok(path)
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
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn refused(place: &Place<'_>, url: &str) -> &'static str {
        place.open(url).unwrap_err().words
    }

    #[test]
    fn only_regular_files_of_the_workspace_are_opened() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (workspace, beside) = (root.join("ws"), root.join("ws-2"));
        std::fs::create_dir(&workspace).unwrap();
        std::fs::create_dir(&beside).unwrap();
        std::fs::write(workspace.join("a b.txt"), "inside").unwrap();
        std::fs::write(beside.join("secret"), "outside").unwrap();
        symlink(beside.join("secret"), workspace.join("link")).unwrap();
        symlink(&beside, workspace.join("dir")).unwrap();
        symlink(workspace.join("a b.txt"), workspace.join("good")).unwrap();
        symlink(workspace.join("loop"), workspace.join("loop")).unwrap();
        mknodat(CWD, workspace.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let roots = Roots::new(&[root.display().to_string()]);
        let place = Place {
            workspace: &workspace,
            roots: &roots,
        };
        let at = |name: &str| format!("file://{}/{name}", workspace.display());
        let opened = place.open(&at("a%20b.txt")).unwrap();
        assert_eq!(opened.name(), "a b.txt");
        assert!(opened.url().ends_with("/a%20b.txt"));
        assert_eq!(opened.read(6).unwrap(), b"inside");
        assert!(place.open(&at("good")).unwrap().read(5).is_none());
        for outside in [
            "link",
            "dir/secret",
            "dir/none",
            "../ws-2/secret",
            "..%2Fws-2%2Fsecret",
            "none/../../x",
            "%2e%2e/x",
        ] {
            assert_eq!(refused(&place, &at(outside)), OUTSIDE.words, "{outside}");
        }
        for none in ["missing", "missing/deep", "pipe", "", "loop", "a%20b.txt/x"] {
            assert_eq!(refused(&place, &at(none)), NO_FILE.words, "{none}");
        }
        let disk = Place {
            workspace: Path::new("/"),
            roots: &Roots::new(&["/".to_owned()]),
        };
        // Neither is looked for on the disk, whatever they stand below.
        for long in ["b/".repeat(1 << 20), "x".repeat(256)] {
            assert_eq!(refused(&place, &at(&long)), NO_FILE.words);
            assert_eq!(refused(&place, &format!("file:///none/{long}")), NO_FILE.words);
        }
        assert_eq!(refused(&place, &at(&"b/".repeat(1_000))), NO_FILE.words);
        assert_eq!(refused(&place, &at(&"x".repeat(255))), NO_FILE.words);
        for system in [
            "file:///proc/self/environ",
            "file:///proc/self/cmdline",
            "file:///sys/kernel/uevent_seqnum",
        ] {
            assert_eq!(refused(&disk, system), NO_FILE.words, "{system}");
        }
        assert!(
            disk.open("file:///etc/passwd").is_ok(),
            "who opens the disk has opened it"
        );
        assert_eq!(refused(&place, "file:///etc/passwd"), OUTSIDE.words);
        assert_eq!(refused(&place, "file:///proc/self/environ"), OUTSIDE.words);
        assert_eq!(refused(&place, &at("a%00b")), OUTSIDE.words);
        for foreign in [
            "http://example.com/a",
            "https://127.0.0.1/a",
            "file://host/a",
            "file://localhost/a",
            "file:/a",
            "file:a",
            "FILE:a",
            "/etc/passwd",
            "data:,x",
            "",
        ] {
            assert_eq!(refused(&place, foreign), NOT_LOCAL.words, "{foreign}");
        }
    }

    #[test]
    fn paths_and_names_are_looked_for_up_to_what_the_system_opens() {
        let root = tempfile::tempdir().unwrap();
        let workspace = root.path().canonicalize().unwrap();
        let (fits, over) = ("n".repeat(255), "n".repeat(256));
        std::fs::write(workspace.join(&fits), "x").unwrap();
        let roots = Roots::new(&[workspace.display().to_string()]);
        let place = Place {
            workspace: &workspace,
            roots: &roots,
        };
        let at = |name: &str| format!("file://{}/{name}", workspace.display());
        assert!(place.open(&at(&fits)).is_ok());
        assert_eq!(refused(&place, &at(&over)), NO_FILE.words);
        assert!(!may_exist(Path::new(&over)));
        let path = |length: usize| PathBuf::from(format!("/{}", "d/".repeat(2_100)).split_at(length).0);
        assert!(may_exist(&path(4095)));
        assert!(!may_exist(&path(4096)));
    }
}
