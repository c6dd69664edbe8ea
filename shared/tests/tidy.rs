//! Rules of the repository that no compiler checks, as an ordinary test: it reads the tree and names the file and line.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The packages of the workspace, by their folders.
const PACKAGES: [&str; 6] = ["shared", "shared/testkit", "gateway", "worker", "cli", "loadtest"];

/// Most lines of a file. Longer files are split; tests may be longer.
const LONGEST: usize = 500;
/// Most lines of a script without its header.
const LONGEST_SCRIPT: usize = 120;

/// A file of the tree.
struct File {
    /// From the root, with slashes.
    path: String,
    text: String,
}

impl File {
    fn is_below(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }

    /// Whether it is test code only.
    fn is_test(&self) -> bool {
        self.path.contains("/tests/")
            || self.path.ends_with("/tests.rs")
            || self.is_below("shared/testkit/")
            || self.path.contains("/benches/")
    }

    /// The lines with their numbers, up to the tests of the module itself.
    fn shipped_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
        (1..).zip(lines)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(root().join(path)).ok()
}

/// Every file with this ending below a folder, without what is built.
fn files(folder: &str, ending: &str) -> Vec<File> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if name.ends_with(ending) {
                let text = fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
                found.push(File { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn rust() -> Vec<File> {
    let all: Vec<File> = ["shared", "gateway", "worker", "cli", "loadtest"]
        .iter()
        .flat_map(|package| files(package, ".rs"))
        .collect();
    assert!(all.len() > 40, "the tree was not found");
    all
}

fn scripts() -> Vec<File> {
    let all = files("shared/src/store/lua", ".lua");
    assert!(all.len() > 15, "the scripts were not found");
    all
}

#[track_caller]
fn nothing(complaints: &[String], rule: &str) {
    assert!(complaints.is_empty(), "{rule}:\n  {}", complaints.join("\n  "));
}

/// Places where `needle` stands in shipped code that `allowed` does not allow.
fn found(needle: &str, allowed: impl Fn(&File) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in rust().iter().filter(|file| !file.is_test() && !allowed(file)) {
        for (n, line) in file.shipped_lines() {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains(needle) {
                complaints.push(format!("{}:{n}: {}", file.path, line.trim()));
            }
        }
    }
    complaints
}

#[test]
fn a_script_begins_with_its_flags_and_a_full_header() {
    let mut complaints = Vec::new();
    for file in scripts().iter().filter(|file| !file.path.contains("/lib/")) {
        let mut lines = file.text.lines();
        let first = lines.next().unwrap_or_default();
        let flags = ["#!lua", "#!lua flags=allow-oom", "#!lua flags=no-writes"];
        if !flags.contains(&first) {
            complaints.push(format!("{}:1: {first}", file.path));
        }
        let header: Vec<&str> = lines.take_while(|line| line.starts_with("--")).collect();
        let purpose = header.first().copied().unwrap_or_default();
        if !purpose.ends_with('.') || purpose.starts_with("-- KEYS") {
            complaints.push(format!("{}: its purpose is not a sentence", file.path));
        }
        for word in ["KEYS", "ARGV", "DERIVES", "RETURNS", "USES"] {
            if !header.iter().any(|line| line.starts_with(&format!("-- {word}"))) {
                complaints.push(format!("{}: no {word}", file.path));
            }
        }
    }
    nothing(
        &complaints,
        "scripts: line 1 #!lua, then a sentence, KEYS, ARGV, DERIVES, RETURNS, USES",
    );
}

/// Without the header: what the server runs.
fn body(file: &File) -> Vec<(usize, &str)> {
    let header = |line: &&str| line.starts_with("#!") || line.starts_with("--");
    let skip = file.text.lines().take_while(header).count();
    (1..).zip(file.text.lines()).skip(skip).collect()
}

#[test]
fn a_script_is_short() {
    let mut complaints = Vec::new();
    for file in scripts() {
        let lines = body(&file).len();
        if lines > LONGEST_SCRIPT {
            complaints.push(format!("{}: {lines} lines", file.path));
        }
    }
    nothing(&complaints, "scripts have at most 120 lines of body");
}

/// Names of keys in a script: the text after the prefix, up to what is appended.
fn keys_of(lines: &[(usize, &str)]) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for (_, line) in lines {
        for rest in line.split("P .. '").skip(1) {
            let name = rest.split('\'').next().unwrap();
            keys.insert(name.split(':').next().unwrap().to_owned());
        }
    }
    keys
}

#[test]
fn a_script_names_the_keys_that_it_derives() {
    let libraries: BTreeMap<String, BTreeSet<String>> = scripts()
        .iter()
        .filter(|file| file.path.contains("/lib/"))
        .map(|file| {
            let name = Path::new(&file.path)
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned();
            (name, keys_of(&body(file)))
        })
        .collect();
    let mut complaints = Vec::new();
    for file in scripts().iter().filter(|file| !file.path.contains("/lib/")) {
        let line = |word: &str| {
            let prefix = format!("-- {word}");
            let mut lines = file.text.lines().skip_while(|line| !line.starts_with(&prefix));
            lines.next().unwrap_or_default().trim_start_matches(&prefix).to_owned()
        };
        let derives: BTreeSet<String> = line("DERIVES")
            .split_whitespace()
            .map(|key| key.split([':', '*']).next().unwrap().to_owned())
            .collect();
        let mut used = keys_of(&body(file));
        for library in line("USES").split_whitespace() {
            match libraries.get(library) {
                Some(keys) => used.extend(keys.iter().cloned()),
                None => complaints.push(format!("{}: there is no library {library}", file.path)),
            }
        }
        let missing: Vec<_> = used.difference(&derives).collect();
        if !missing.is_empty() {
            complaints.push(format!("{}: derives {missing:?} as well", file.path));
        }
    }
    nothing(&complaints, "DERIVES lists every key that a script builds");
}

/// Lua knows no A2A state and re-encodes nothing.
#[test]
fn scripts_know_no_states_and_no_json() {
    let words = [
        "WORKING'",
        "COMPLETED",
        "CANCELED'",
        "FAILED",
        "cjson",
        "cmsgpack",
        "math.random",
        "os.",
        "KEYS *",
    ];
    let mut complaints = Vec::new();
    for file in scripts() {
        for (n, line) in body(&file) {
            // Replies are words of the protocol between script and wrapper, not states.
            let line = if line.contains("return {") { "" } else { line };
            let code = line.split("--").next().unwrap_or_default();
            for word in words.iter().filter(|word| code.contains(**word)) {
                complaints.push(format!("{}:{n}: {word}", file.path));
            }
        }
    }
    nothing(
        &complaints,
        "scripts compare and write; what it means is decided in domain",
    );
}

#[test]
fn files_are_short() {
    let mut complaints = Vec::new();
    for file in rust().iter().filter(|file| !file.is_test()) {
        let lines = file.text.lines().count();
        if lines > LONGEST {
            complaints.push(format!("{}: {lines} lines", file.path));
        }
    }
    nothing(&complaints, "files have at most 500 lines");
}

#[test]
fn keys_are_formatted_in_one_place() {
    // The names of configuration, metadata and media types are other texts.
    let complaints: Vec<String> = found("relevo:{", |file| file.path == "shared/src/store/keys.rs")
        .into_iter()
        .chain(found("\"relevo:", |file| file.path == "shared/src/store/keys.rs"))
        .collect();
    nothing(&complaints, "keys are formatted in store/keys.rs only");
}

#[test]
fn status_codes_are_chosen_in_one_place() {
    let complaints = found("StatusCode::", |file| {
        !file.is_below("gateway/src/") || file.path == "gateway/src/error.rs" || file.is_below("gateway/src/error/")
    });
    nothing(&complaints, "HTTP status codes are in gateway/src/error only");
}

#[test]
fn only_the_store_speaks_redis() {
    let mut complaints = Vec::new();
    for needle in ["redis::", "deadpool_redis::"] {
        complaints.extend(found(needle, |file| {
            file.is_below("shared/src/store/") || file.path == "shared/src/store.rs"
        }));
    }
    // Modules of our own have that name too.
    let own = [
        "crate::redis::",
        "super::redis::",
        "sections::redis::",
        "use redis::RedisSettings",
    ];
    complaints.retain(|line| !own.iter().any(|own| line.contains(own)));
    nothing(&complaints, "only shared/src/store uses the Redis client");
}

#[test]
fn tasks_are_spawned_in_one_place() {
    let mut complaints = Vec::new();
    for needle in ["tokio::spawn(", "tokio::task::spawn(", "tokio::task::spawn_local("] {
        complaints.extend(found(needle, |file| file.path == "shared/src/platform/tasks.rs"));
    }
    // The load test is pure: it has no platform, and owns its few tasks.
    let pure = |file: &File| file.path == "shared/src/platform/tasks.rs" || file.is_below("loadtest/");
    complaints.extend(found("JoinSet", pure));
    nothing(&complaints, "tasks are spawned by platform::tasks only");
}

#[test]
fn tests_do_not_sleep() {
    let mut complaints = Vec::new();
    let needles = [":", " "].map(|before| format!("{before}sleep("));
    for file in rust().iter().filter(|file| file.path.contains("/tests/")) {
        let mut before = "";
        for (n, line) in (1..).zip(file.text.lines()) {
            let code = line.split("//").next().unwrap_or_default();
            let sleeps = needles.iter().any(|needle| code.contains(needle.as_str()));
            // What disturbs a cluster comes at a pace, and nothing waits for it.
            let pace = [before, line].iter().any(|line| line.contains("// pace: "));
            if sleeps && !pace {
                complaints.push(format!("{}:{n}: {}", file.path, line.trim()));
            }
            before = line;
        }
    }
    nothing(
        &complaints,
        "tests wait for conditions (relevo_testkit::poll); only a disturbance has a `// pace: ...`",
    );
}

#[test]
fn nothing_is_left_to_do() {
    let words = [["TO", "DO"], ["FIX", "ME"], ["todo", "!("], ["unimplemented", "!("]].map(|w| w.concat());
    let mut complaints = Vec::new();
    let texts = [".lua", ".toml", ".md", ".yaml", ".yml", ".conf", ".cfg"];
    let others = texts.iter().flat_map(|ending| files("", ending));
    for file in rust().into_iter().chain(others) {
        for (n, line) in (1..).zip(file.text.lines()) {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                complaints.push(format!("{}:{n}: {word}", file.path));
            }
        }
    }
    nothing(&complaints, "nothing is left to do in the tree");
}

#[test]
fn modules_are_files_beside_their_folders() {
    let complaints: Vec<String> = rust()
        .iter()
        .filter(|file| file.path.ends_with("/mod.rs"))
        .map(|file| file.path.clone())
        .collect();
    nothing(&complaints, "foo.rs beside foo/, never foo/mod.rs");
}

#[test]
fn every_module_says_what_it_owns() {
    let mut complaints = Vec::new();
    for file in rust().iter().filter(|file| !file.is_test()) {
        if !file.text.starts_with("//! ") {
            complaints.push(file.path.clone());
        }
    }
    nothing(&complaints, "a file begins with what it owns");
}

/// A table of a manifest: each line `name = value` or `name.workspace = true`.
fn table<'a>(manifest: &'a str, name: &str) -> BTreeMap<&'a str, &'a str> {
    let header = format!("[{name}]");
    manifest
        .lines()
        .skip_while(|line| line.trim() != header)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim().trim_end_matches(".workspace"), value.trim()))
        .filter(|(key, _)| !key.starts_with('#'))
        .collect()
}

fn manifest(package: &str) -> String {
    read(&format!("{package}/Cargo.toml")).unwrap_or_else(|| panic!("{package} has no manifest"))
}

fn ours(dependencies: &BTreeMap<&str, &str>) -> BTreeSet<String> {
    let ours = dependencies.keys().filter(|name| name.starts_with("relevo-"));
    ours.map(|name| (*name).to_owned()).collect()
}

#[test]
fn packages_depend_in_one_direction() {
    let allowed: [(&str, &[&str]); 6] = [
        ("shared", &[]),
        ("shared/testkit", &[]),
        ("gateway", &["relevo-shared"]),
        ("worker", &["relevo-shared"]),
        ("cli", &["relevo-gateway", "relevo-shared", "relevo-worker"]),
        ("loadtest", &["relevo-shared"]),
    ];
    let mut complaints = Vec::new();
    for (package, allowed) in allowed {
        let text = manifest(package);
        for section in ["dependencies", "build-dependencies"] {
            for name in ours(&table(&text, section)) {
                if !allowed.contains(&name.as_str()) {
                    complaints.push(format!("{package} depends on {name}"));
                }
            }
        }
        // Test fixtures are shipped with nothing, and bring nothing of ours but `shared`.
        for name in ours(&table(&text, "dev-dependencies")) {
            if !["relevo-testkit", "relevo-shared"].contains(&name.as_str()) && !allowed.contains(&name.as_str()) {
                complaints.push(format!("the tests of {package} depend on {name}"));
            }
        }
    }
    nothing(
        &complaints,
        "shared <- gateway, worker <- cli; loadtest sees the wire only",
    );
}

#[test]
fn the_load_test_and_the_domain_stay_pure() {
    let root = read("Cargo.toml").unwrap();
    let shared = table(&root, "workspace.dependencies")["relevo-shared"];
    assert!(
        shared.contains("default-features = false"),
        "members choose `runtime` themselves: {shared}"
    );
    let loadtest = manifest("loadtest");
    let value = table(&loadtest, "dependencies")["relevo-shared"];
    assert!(
        !value.contains("runtime"),
        "loadtest is built without `runtime`: {value}"
    );
    let text = manifest("shared");
    for impure in [
        "tokio",
        "redis",
        "deadpool-redis",
        "axum",
        "prometheus",
        "tracing",
        "getrandom",
        "reqwest",
        "rustix",
    ] {
        let value = table(&text, "dependencies")[impure];
        assert!(
            value.contains("optional = true"),
            "shared needs {impure} only with `runtime`"
        );
    }
}

#[test]
fn every_package_keeps_the_lints() {
    let mut complaints = Vec::new();
    for package in PACKAGES {
        if table(&manifest(package), "lints").get("workspace") != Some(&"true") {
            complaints.push(package.to_owned());
        }
    }
    let lints = table(&read("Cargo.toml").unwrap(), "workspace.lints.rust")["unsafe_code"].to_owned();
    assert_eq!(lints, "\"forbid\"");
    nothing(&complaints, "[lints] workspace = true");
}

/// Backquoted texts of a document that look like paths of the tree.
fn paths_in(document: &str) -> BTreeSet<String> {
    let quoted = document.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| {
        PACKAGES.iter().any(|package| text.starts_with(&format!("{package}/")))
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "/_.-".contains(c))
    };
    quoted.filter(is_path).map(str::to_owned).collect()
}

#[test]
fn documents_name_files_that_exist() {
    let mut complaints = Vec::new();
    let documents = files("docs", ".md").into_iter().chain(files("deploy", ".md"));
    let readme = read("README.md").map(|text| File {
        path: "README.md".to_owned(),
        text,
    });
    for document in documents.chain(readme) {
        for path in paths_in(&document.text) {
            let exists = root().join(&path).exists() || root().join(format!("{path}.rs")).exists();
            if !exists {
                complaints.push(format!("{}: {path}", document.path));
            }
        }
        // A link to a file beside it.
        let folder = root().join(Path::new(&document.path).parent().unwrap());
        for link in document.text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap();
            if !target.is_empty() && !target.contains("://") && !folder.join(target).exists() {
                complaints.push(format!("{}: {target}", document.path));
            }
        }
    }
    nothing(&complaints, "documents name modules that are not there");
}

#[test]
fn every_operation_has_a_row_in_the_protocol() {
    let Some(protocol) = read("docs/protocol.md") else {
        return;
    };
    let mut complaints = Vec::new();
    for file in files("gateway/src/operations", ".rs") {
        let name = Path::new(&file.path)
            .file_stem()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        // One file per method of A2A; what several of them share is no method.
        let method: String = name.split('_').map(capital).collect();
        if METHODS.contains(&method.as_str())
            && !protocol.contains(&file.path)
            && !protocol.contains(&format!("{name}.rs"))
        {
            complaints.push(format!("{}: no row for {method}", file.path));
        }
    }
    for method in METHODS {
        if !protocol.contains(method) {
            complaints.push(format!("docs/protocol.md says nothing of {method}"));
        }
    }
    nothing(&complaints, "docs/protocol.md has a row for every operation");
}

/// The methods of A2A 1.0.
const METHODS: [&str; 11] = [
    "SendMessage",
    "SendStreamingMessage",
    "GetTask",
    "ListTasks",
    "CancelTask",
    "SubscribeToTask",
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
    "GetExtendedAgentCard",
];

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .chain(letters)
        .collect()
}

/// Decisions are numbered without holes, and each says context, decision and consequences.
#[test]
fn decisions_are_numbered_and_complete() {
    let mut complaints = Vec::new();
    for (n, file) in (1..).zip(files("docs/adr", ".md")) {
        let name = file.path.rsplit('/').next().unwrap();
        if !name.starts_with(&format!("{n:04}-")) {
            complaints.push(format!("{}: expected number {n:04}", file.path));
        }
        let lower = file.text.to_lowercase();
        for part in ["context", "decision", "consequences"] {
            if !lower.contains(part) {
                complaints.push(format!("{}: no {part}", file.path));
            }
        }
    }
    nothing(&complaints, "docs/adr/NNNN-title.md: context, decision, consequences");
}

#[test]
fn no_flake_is_tolerated() {
    let nextest = read(".config/nextest.toml").unwrap();
    assert!(nextest.lines().any(|line| line.trim() == "retries = 0"));
    let mut complaints = Vec::new();
    for file in rust() {
        for (n, line) in (1..).zip(file.text.lines()) {
            // A test that another test runs in a process of its own, or that `make crowd` runs, is not left out.
            let ignored = line.trim_start().starts_with("#[ignore");
            let runs = line.contains("#[ignore = \"run by ");
            if ignored && !runs {
                complaints.push(format!("{}:{n}", file.path));
            }
        }
    }
    nothing(&complaints, "no test is left out");
}
