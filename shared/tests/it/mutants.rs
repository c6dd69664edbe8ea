//! The mutants of `make mutants` cannot rot: each still fits the tree, names tests that exist, and every invariant of
//! docs/architecture.md has one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A patch that breaks an invariant.
struct Mutant {
    name: String,
    invariant: u32,
    breaks: String,
    /// Package, target, path of the test.
    killers: Vec<[String; 3]>,
    file: String,
    /// What it replaces, and by what: lines, each with what surrounds them.
    hunks: Vec<(String, String)>,
    changed: usize,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn parse(path: &Path) -> Mutant {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(path).unwrap();
    let (head, diff) = text
        .split_once("\n--- a/")
        .unwrap_or_else(|| panic!("{name} has no diff"));
    let all = |word: &str| -> Vec<String> {
        let lines = head.lines().filter_map(|line| line.strip_prefix(word));
        lines.map(|rest| rest.trim().to_owned()).collect()
    };
    let one = |word: &str| -> String {
        let found = all(word);
        assert_eq!(found.len(), 1, "{name}: one `{word}`");
        found.into_iter().next().unwrap()
    };
    let killers = all("Killed by:").into_iter().map(|line| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        words
            .try_into()
            .unwrap_or_else(|_| panic!("{name}: package, target, test"))
    });
    let mut lines = diff.lines();
    let file = lines.next().unwrap().to_owned();
    assert_eq!(lines.next(), Some(format!("+++ b/{file}").as_str()), "{name}: one file");
    let (mut hunks, mut changed) = (Vec::new(), 0);
    for line in lines {
        if line.starts_with("@@ ") {
            hunks.push((String::new(), String::new()));
            continue;
        }
        let (before, after) = hunks.last_mut().unwrap();
        let (sign, code) = line.split_at_checked(1).unwrap_or((" ", ""));
        for (side, other) in [(before, "+"), (after, "-")] {
            if sign != other {
                side.push_str(code);
                side.push('\n');
            }
        }
        changed += usize::from(sign != " ");
    }
    Mutant {
        invariant: one("Invariant:").parse().unwrap(),
        breaks: one("Breaks:"),
        killers: killers.collect(),
        name,
        file,
        hunks,
        changed,
    }
}

fn mutants() -> Vec<Mutant> {
    let folder = root().join("shared/tests/mutants");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let patches = paths.filter(|path| path.extension().is_some_and(|ending| ending == "patch"));
    let mut all: Vec<Mutant> = patches.map(|path| parse(&path)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[test]
fn every_mutant_fits_the_tree_in_one_place_and_changes_one_line() {
    for mutant in mutants() {
        let (name, file) = (&mutant.name, &mutant.file);
        let text = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{name}: {file}: {error}"));
        assert!(!file.contains("/tests"), "{name} breaks a test");
        assert!((1..=2).contains(&mutant.changed), "{name} changes more than a line");
        assert_eq!(mutant.hunks.len(), 1, "{name}");
        let (before, after) = &mutant.hunks[0];
        assert_eq!(
            text.matches(before.as_str()).count(),
            1,
            "{name} no longer fits {file}: make it anew, with `diff -u`"
        );
        assert_ne!(before, after, "{name} changes nothing");
    }
}

/// Folders of the packages by their names.
fn folder_of(package: &str) -> &'static str {
    match package {
        "relevo-shared" => "shared",
        "relevo-gateway" => "gateway",
        "relevo-worker" => "worker",
        other => panic!("{other} is no package that tests invariants"),
    }
}

#[test]
fn every_mutant_names_tests_that_exist() {
    for mutant in mutants() {
        assert!(
            !mutant.killers.is_empty() && mutant.breaks.ends_with('.'),
            "{}",
            mutant.name
        );
        for [package, target, test] in &mutant.killers {
            let mut modules: Vec<&str> = test.split("::").collect();
            let function = modules.pop().unwrap();
            if target == "lib" && modules.last() == Some(&"tests") {
                modules.pop();
            }
            let sources = if target == "lib" {
                "src".to_owned()
            } else {
                format!("tests/{target}")
            };
            let file = root().join(folder_of(package)).join(sources).join(modules.join("/"));
            // `mod tests` may be a file of its own.
            let places = [file.with_extension("rs"), file.join("tests.rs")];
            let texts: String = places
                .iter()
                .filter_map(|place| fs::read_to_string(place).ok())
                .collect();
            assert!(
                texts.contains(&format!("fn {function}(")),
                "{}: there is no test {test} in {}",
                mutant.name,
                file.display()
            );
        }
    }
}

/// The rows of the invariants: the number, and the whole row.
fn invariants() -> BTreeMap<u32, String> {
    let document = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let section = document.split("\n## Invariants\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| {
        let number = line.strip_prefix("| ")?.split(' ').next()?.parse().ok()?;
        Some((number, line.to_owned()))
    });
    rows.collect()
}

#[test]
fn every_invariant_has_a_mutant_and_its_row_names_all_of_them() {
    let (invariants, mutants) = (invariants(), mutants());
    assert!(invariants.len() >= 14, "the table was not understood");
    let broken: BTreeSet<u32> = mutants.iter().map(|mutant| mutant.invariant).collect();
    for (number, row) in &invariants {
        let built = !row.contains("not built yet");
        assert_eq!(broken.contains(number), built, "mutants of invariant {number}");
    }
    for mutant in &mutants {
        let Mutant { name, invariant, .. } = mutant;
        assert!(
            name.starts_with(&format!("{invariant:02}-")),
            "{name} is of invariant {invariant}"
        );
        let link = format!("(../shared/tests/mutants/{name}.patch)");
        let row = invariants
            .get(invariant)
            .unwrap_or_else(|| panic!("{name}: no such invariant"));
        assert!(
            row.contains(&link),
            "the row of invariant {invariant} does not name {link}"
        );
    }
}
