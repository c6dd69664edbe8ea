//! The directory that a message is about: `cwd` in the profile's metadata, of the message or else of the request.

use std::path::{Path, PathBuf};

use relevo_shared::domain::record::TurnRecord;
use serde_json::Value;

use super::Unusable;
use crate::files::may_exist;

/// For everything that is wrong with it: which it is would tell the sender what the disk holds.
const fn invalid(why: &'static str) -> Unusable {
    Unusable {
        words: "Invalid A2A workspace metadata.",
        why,
    }
}

const NO_PATH: Unusable = invalid("`cwd` is no absolute path that may exist");
const MISSING: Unusable = invalid("`cwd` is no directory on this machine, or may not be read");
const OUTSIDE: Unusable = invalid("`cwd` lies outside of workspace.roots");
const NOT_NAMED: Unusable =
    invalid("there is no `cwd`, and the worker's own directory lies outside of workspace.roots");

/// Below which directories workspaces may lie, and which is meant when none is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Roots {
    /// As they are written.
    named: Vec<PathBuf>,
    allowed: Vec<PathBuf>,
    default: PathBuf,
}

impl Roots {
    /// `configured` directories; without any, the process' own and the one for temporary files. Those that do not exist
    /// allow nothing. A process that was started in `/`, as services are, does not mean the whole disk by that.
    pub(crate) fn new(configured: &[String]) -> Self {
        Self::of(configured, std::env::current_dir().ok())
    }

    fn of(configured: &[String], own: Option<PathBuf>) -> Self {
        let own = own
            .filter(|own| own.parent().is_some())
            .unwrap_or_else(std::env::temp_dir);
        let named: Vec<PathBuf> = if configured.is_empty() {
            vec![own.clone(), std::env::temp_dir()]
        } else {
            configured.iter().map(PathBuf::from).collect()
        };
        Self {
            allowed: named.iter().filter_map(|path| path.canonicalize().ok()).collect(),
            named,
            default: own.canonicalize().unwrap_or(own),
        }
    }

    /// Every directory that is known by this, in all its spellings.
    pub(crate) fn known(&self) -> impl Iterator<Item = PathBuf> {
        let all = self.named.iter().chain(&self.allowed).chain([&self.default]);
        all.cloned()
    }

    /// Whether messages that name no directory can be used.
    pub(crate) fn hold_default(&self) -> bool {
        self.hold(&self.default)
    }

    /// Whether a path without symbolic links lies in one of them.
    pub(super) fn hold(&self, path: &Path) -> bool {
        self.allowed.iter().any(|root| path.starts_with(root))
    }
}

/// Where a turn works.
pub(super) fn of(record: &TurnRecord, namespace: Option<&str>, roots: &Roots) -> Result<PathBuf, Unusable> {
    let wanted = match namespace.and_then(|namespace| cwd(record, namespace)) {
        None if !roots.hold_default() => return Err(NOT_NAMED),
        None => roots.default.clone(),
        Some(Value::String(path)) if is_usable(path) => PathBuf::from(path),
        Some(_) => return Err(NO_PATH),
    };
    let found = wanted.canonicalize().map_err(|_wrong| MISSING)?;
    match (found.is_dir(), roots.hold(&found)) {
        (true, true) => Ok(found),
        (_, false) => Err(OUTSIDE),
        (false, true) => Err(MISSING),
    }
}

fn is_usable(path: &str) -> bool {
    let named = Path::new(path);
    named.is_absolute() && !path.contains('\0') && may_exist(named)
}

/// The message's own word, else the request's.
fn cwd<'a>(record: &'a TurnRecord, namespace: &str) -> Option<&'a Value> {
    let message = record
        .message
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.get(namespace));
    let request = record.metadata.get(namespace);
    let said = |facts: &'a Value| facts.get("cwd").filter(|cwd| !cwd.is_null());
    message.and_then(said).or_else(|| request.and_then(said))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;
    use crate::fixture::record;

    fn asked(message: Value, request: Value) -> TurnRecord {
        let mut record = record();
        record.message.metadata = Some(HashMap::from([("iac_code".to_owned(), message)]));
        record.metadata.insert("iac_code".to_owned(), request);
        record
    }

    fn at(path: &Path) -> Value {
        json!({ "cwd": path })
    }

    #[test]
    fn the_messages_word_wins_and_must_lie_in_a_root() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        std::fs::create_dir(&a).unwrap();
        std::fs::create_dir(&b).unwrap();
        std::fs::write(root.path().join("file"), "").unwrap();
        symlink(&a, root.path().join("to-a")).unwrap();
        symlink(outside.path(), root.path().join("out")).unwrap();
        let roots = Roots::new(&[root.path().display().to_string(), "/nonexistent".to_owned()]);
        let of = |message: Value, request: Value| of(&asked(message, request), Some("iac_code"), &roots).ok();
        let real = |path: &Path| Some(path.canonicalize().unwrap());
        assert_eq!(of(at(&a), at(&b)), real(&a));
        assert_eq!(of(json!({}), at(&b)), real(&b));
        assert_eq!(of(json!({ "cwd": null }), at(&b)), real(&b));
        assert_eq!(of(at(&root.path().join("to-a")), json!(1)), real(&a));
        assert_eq!(of(at(&root.path().join("b/../a/.")), json!(1)), real(&a));
        assert_eq!(of(at(root.path()), json!(1)), real(root.path()));
        for hostile in [
            at(outside.path()),
            at(&root.path().join("out")),
            at(&root.path().join("a/../..")),
            at(&root.path().join("missing")),
            at(&root.path().join("file")),
            json!({ "cwd": "a" }),
            json!({ "cwd": "" }),
            json!({ "cwd": 1 }),
            json!({ "cwd": ["/"] }),
            json!({ "cwd": "/\u{0}" }),
            // It ends in a root, by way of more than a system call takes.
            json!({ "cwd": format!("{}{}", root.path().display(), "/.".repeat(4096)) }),
            json!({ "cwd": "/" }),
            // The default is the process' own directory, which is in none of these roots.
            json!({}),
        ] {
            assert_eq!(of(hostile.clone(), json!({})), None, "{hostile}");
        }
    }

    #[test]
    fn without_configuration_the_processes_own_directory_is_meant() {
        let roots = Roots::new(&[]);
        let own = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(of(&record(), Some("iac_code"), &roots), Ok(own.clone()));
        assert_eq!(of(&record(), None, &roots), Ok(own));
        assert!(roots.hold(&std::env::temp_dir().canonicalize().unwrap().join("x")));
        assert!(!roots.hold(Path::new("/etc")));
    }

    #[test]
    fn a_process_that_was_started_at_the_root_does_not_open_the_disk() {
        for own in [Some(PathBuf::from("/")), None] {
            let roots = Roots::of(&[], own);
            assert!(!roots.hold(Path::new("/etc")) && !roots.hold(Path::new("/proc/self")));
            let temporary = std::env::temp_dir().canonicalize().unwrap();
            assert_eq!(of(&record(), None, &roots), Ok(temporary));
        }
        // Who wants that must say so.
        assert!(Roots::of(&["/".to_owned()], None).hold(Path::new("/etc")));
    }

    #[test]
    fn a_sibling_whose_name_begins_alike_is_outside() {
        let root = tempfile::tempdir().unwrap();
        let (inside, beside) = (root.path().join("ws"), root.path().join("ws-2"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&beside).unwrap();
        let roots = Roots::new(&[inside.display().to_string()]);
        assert!(!roots.hold(&beside.canonicalize().unwrap()));
        assert!(roots.hold(&inside.canonicalize().unwrap()));
    }
}
