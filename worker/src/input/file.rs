//! Files that parts name by a URL: only local ones, only inside the workspace, only whole.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use url::Url;

use super::Unusable;
use super::workspace::Roots;
use crate::files::{self, Refused};

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
pub(super) struct Opened(files::Opened);

impl Place<'_> {
    /// Opens what a URL names.
    pub(super) fn open(&self, url: &str) -> Result<Opened, Unusable> {
        let holds = |path: &Path| path.starts_with(self.workspace) && self.roots.hold(path);
        match files::open(&path_of(url)?, holds) {
            Ok(opened) => Ok(Opened(opened)),
            Err(Refused::Outside) => Err(OUTSIDE),
            Err(Refused::Missing | Refused::NoFile) => Err(NO_FILE),
        }
    }
}

impl Opened {
    /// How long it is, as far as it knows.
    pub(super) fn length(&self) -> u64 {
        self.0.length
    }

    /// Its whole content, if that is at most `most` bytes.
    pub(super) fn read(self, most: u64) -> Option<Vec<u8>> {
        if self.0.length > most {
            return None;
        }
        let mut content = Vec::new();
        // It may grow while it is read, and some files do not know how long they are.
        self.0.file.take(most + 1).read_to_end(&mut content).ok()?;
        (content.len() as u64 <= most).then_some(content)
    }

    /// Its name.
    pub(super) fn name(&self) -> String {
        let name = self.0.path.file_name();
        name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Where it is, as a URL.
    pub(super) fn url(&self) -> String {
        Url::from_file_path(&self.0.path).map(String::from).unwrap_or_default()
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
    parsed.to_file_path().map_err(|()| NOT_LOCAL)
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
}
