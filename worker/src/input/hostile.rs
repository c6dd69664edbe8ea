//! Hostile messages for a profile that makes one text of them: whatever its parts name, nothing outside of the workspace is read.

use std::collections::HashMap;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use a2a::{Message, Part, PartContent, Role};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use relevo_shared::agents::Profiles;
use relevo_testkit::hostile::json;
use serde_json::json;

use super::{Roots, prompt};
use crate::fixture::record;

/// What lies beside the workspace and must not be read.
const CANARY: &str = "the canary of another directory";

/// Pieces of URLs. `WS` stands for the workspace.
const PIECES: &[&str] = &[
    "file://",
    "file:///",
    "FILE:///",
    "file://localhost/",
    "file:",
    "https://example.com/",
    "WS",
    "/",
    "//",
    "..",
    "../",
    "%2e%2e/",
    "..%2f",
    "%00",
    "%2f",
    "\\",
    "~",
    ".",
    "a.txt",
    "link",
    "dir",
    "loop",
    "beside",
    "secret",
    "?a=b",
    "#x",
    " ",
    "\u{202e}",
];
const MEMBERS: &[&str] = &["bytes", "base64", "filename", "cwd", "a"];
const TEXTS: &[&str] = &["", "YWJj", "!", "/", "..", "../x", "a.png", "a\nb", "WS", "/etc"];
const TYPES: &[&str] = &[
    "",
    "text/plain",
    "TEXT/markdown; charset=utf-8",
    "application/json",
    "image/png",
    "video/mp4",
    "/",
    ";",
    "text/",
];

/// A directory with a workspace and something beside it, and links out of the one to the other.
struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = Self { folder };
        let (ws, beside) = (disk.root().join("ws"), disk.root().join("beside"));
        std::fs::create_dir(&ws).unwrap();
        std::fs::create_dir(&beside).unwrap();
        std::fs::write(ws.join("a.txt"), "inside").unwrap();
        std::fs::write(beside.join("secret"), CANARY).unwrap();
        symlink(beside.join("secret"), ws.join("link")).unwrap();
        symlink(&beside, ws.join("dir")).unwrap();
        symlink(ws.join("loop"), ws.join("loop")).unwrap();
        disk
    }

    fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }
}

fn url() -> impl Strategy<Value = String> {
    let inside = vec(select(PIECES), 0..5).prop_map(|pieces| format!("file://WS/{}", pieces.concat()));
    prop_oneof![
        3 => inside,
        2 => vec(select(PIECES), 0..7).prop_map(|pieces| pieces.concat()),
        1 => any::<String>(),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        1 => any::<String>().prop_map(PartContent::Text),
        1 => any::<Vec<u8>>().prop_map(PartContent::Raw),
        3 => url().prop_map(PartContent::Url),
        2 => json(MEMBERS, TEXTS).prop_map(PartContent::Data),
    ];
    let name = option::of(prop_oneof![select(TEXTS).prop_map(str::to_owned), any::<String>()]);
    let media_type = option::of(prop_oneof![4 => select(TYPES).prop_map(str::to_owned), 1 => any::<String>()]);
    (content, name, media_type).prop_map(|(content, filename, media_type)| Part {
        content,
        filename,
        media_type,
        metadata: None,
    })
}

fn cwd() -> impl Strategy<Value = serde_json::Value> {
    let path = prop_oneof![
        4 => Just("WS".to_owned()),
        1 => vec(select(PIECES), 0..5).prop_map(|pieces| format!("WS/{}", pieces.concat())),
        1 => any::<String>(),
    ];
    prop_oneof![6 => path.prop_map(|path| json!({ "cwd": path })), 1 => json(MEMBERS, TEXTS)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_of_any_form_are_read_within_their_workspace_or_refused_with_words(
        parts in vec(part(), 0..4),
        about in cwd(),
    ) {
        let disk = Disk::new();
        let ws = disk.root().join("ws").display().to_string();
        let named = |text: &mut String| *text = text.replace("WS", &ws);
        let mut message = Message::new(Role::User, parts);
        for part in &mut message.parts {
            if let PartContent::Url(url) = &mut part.content {
                named(url);
            }
        }
        let mut about = about.to_string();
        named(&mut about);
        let about = serde_json::from_str(&about).unwrap();
        message.metadata = Some(HashMap::from([("iac_code".to_owned(), about)]));
        let mut turn = record();
        turn.message = message;
        let profile = Profiles::default().get("iac-code").unwrap();
        let roots = Roots::new(std::slice::from_ref(&ws));
        match prompt(&profile, &turn, &roots).unwrap() {
            Ok(read) => {
                prop_assert!(!read.text.contains(CANARY));
                prop_assert!(!read.text.trim().is_empty());
                prop_assert!(read.workspace.starts_with(&ws), "{:?}", read.workspace);
            }
            Err(unusable) => prop_assert!(!unusable.words.is_empty()),
        }
    }
}
