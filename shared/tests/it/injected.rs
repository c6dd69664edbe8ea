//! Half scripts. Redis keeps what a script wrote before it was broken off, so every script is broken off before each of its
//! commands: either nothing was written, or the same call sent again completes it, or the command is one that cannot fail
//! there.
//!
//! Why a command after the first write cannot fail:
//! - memory: a script is admitted as a whole and never stopped half-way for memory (`acl.rs` shows it);
//! - types: every key below the prefix has one writer, this store, and one type (docs/redis.md);
//! - permission: a user that lacks a command lacks it from the start; which is why the commands that are commonly denied
//!   (PUBLISH, INFO, XINFO, XGROUP) are called before the first write or by `pcall`;
//! - journal ids: XADD with an id is refused unless the id is above the last one. `fence`, `expect` and `submit` have compared
//!   the last id in the same step, and a task's journal has no other writer;
//! - counts: `unpack` fails above some thousand values; the store sends at most 1,000, and history goes in pieces.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use relevo_shared::store::{SCRIPTS, ScriptText};

use crate::fixture::World;
use crate::scenes::{self, Break, Run, Scene};

/// Commands that write nothing.
const READS: [&str; 19] = [
    "TIME",
    "INFO",
    "EXISTS",
    "HGET",
    "HMGET",
    "HGETALL",
    "HLEN",
    "LLEN",
    "LPOS",
    "LRANGE",
    "XLEN",
    "XRANGE",
    "XREVRANGE",
    "XINFO",
    "ZRANGE",
    "ZRANGEBYSCORE",
    "ZSCORE",
    "PUBLISH",
    "XPENDING",
];

/// What Redis may refuse in ordinary life: no group, no queue, no permission.
const MAY_FAIL: [&str; 5] = ["XREADGROUP", "XGROUP", "INFO", "XINFO", "PUBLISH"];

/// XGROUP DELCONSUMER comes after `XINFO CONSUMERS` of the same group answered, in the same step.
const PROVEN: [(&str, &str); 1] = [("sweep", "XGROUP")];

fn writes(script: &ScriptText) -> bool {
    !script.text.starts_with("#!lua flags=no-writes\n")
}

fn first_write(run: &Run) -> usize {
    let write = |(_, command, _): &(String, String, String)| !READS.contains(&command.as_str());
    run.calls.iter().position(write).unwrap_or(run.calls.len())
}

/// Breaks a call before each of its commands. Returns the commands before which a break leaves a half that no repeat completes.
fn halves(world: &World, scene: &Scene) -> BTreeSet<(String, String)> {
    let probe = &world.probe;
    let (script, name) = (scene.call.script, scene.name);
    scene.set(probe);
    let before = probe.dump();
    let whole = scene.run(probe, Break::Never);
    assert_eq!(whole.outcome, "ok", "{script}: {name}: {:?}", whole.answer);
    let mut halves = BTreeSet::new();
    for n in 1..=whole.calls.len() {
        scene.set(probe);
        let broken = scene.run(probe, Break::Before(n));
        assert_eq!(broken.outcome, "error", "{script}: {name}: before command {n}");
        if broken.after == before {
            continue;
        }
        assert!(
            n > first_write(&whole) + 1,
            "{script}: {name}: something was written before the first write"
        );
        let repeated = scene.run(probe, Break::Never);
        if repeated.outcome != "ok" || repeated.after != whole.after {
            let (how, command, _) = &whole.calls[n - 1];
            halves.insert((how.clone(), command.clone()));
        }
    }
    halves
}

#[tokio::test]
async fn a_script_that_is_broken_off_has_written_nothing_or_is_completed_by_a_repeat() {
    let world = World::small().await;
    let mut all: BTreeMap<&str, BTreeSet<(String, String)>> = BTreeMap::new();
    for scene in Box::pin(scenes::all(&world)).await {
        let halves = halves(&world, &scene);
        all.entry(scene.call.script).or_default().extend(halves);
    }
    let writing: BTreeSet<&str> = SCRIPTS.iter().filter(|s| writes(s)).map(|s| s.name).collect();
    assert_eq!(all.keys().copied().collect::<BTreeSet<_>>(), writing);

    // Where a break would leave a half, the next command is one that cannot fail there.
    for (script, halves) in &all {
        for (how, command) in halves {
            let may_fail = MAY_FAIL.contains(&command.as_str()) && !PROVEN.contains(&(script, command.as_str()));
            assert!(
                !may_fail || how == "pcall",
                "{script} may be left half-written before {command}"
            );
        }
    }
    // These have nothing after their first write that matters, or are completed by a repeat throughout.
    for script in ["bind", "cancel", "show", "renew", "layout", "ring", "put_off"] {
        assert!(all[script].is_empty(), "{script}: {:?}", all[script]);
    }
}

/// Nothing can be added beside what these tests go through.
#[test]
fn every_file_of_lua_is_a_script_or_a_library_of_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/lua");
    let names = |folder: &Path| -> BTreeSet<String> {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let lua = files.filter(|path| path.extension().is_some_and(|ending| ending == "lua"));
        lua.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect()
    };
    let scripts: BTreeSet<String> = SCRIPTS.iter().map(|script| script.name.to_owned()).collect();
    assert_eq!(names(&folder), scripts);
    let used = |library: &str| {
        let text = fs::read_to_string(folder.join("lib").join(format!("{library}.lua"))).unwrap();
        SCRIPTS.iter().any(|script| script.assembled().contains(&text))
    };
    for library in names(&folder.join("lib")) {
        assert!(used(&library), "no script uses lib/{library}.lua");
    }
}

/// A scene that is missing would leave commands unbroken: each place of a script that sends one is reached.
#[tokio::test]
async fn every_command_of_every_script_is_sent_in_some_scene() {
    let world = World::small().await;
    let mut sent: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for scene in Box::pin(scenes::all(&world)).await {
        scene.set(&world.probe);
        let run = scene.run(&world.probe, Break::Never);
        sent.entry(scene.call.script).or_default().extend(run.made_at);
    }
    // A new task has no state to leave.
    let never = [("refuse", "redis.call('ZREM', P .. 'idx:'")];
    let mut missing = Vec::new();
    for script in SCRIPTS.iter().filter(|script| writes(script)) {
        let sent = sent.remove(script.name).unwrap_or_default();
        for (n, line) in scenes::places(script.name).iter().enumerate() {
            let never = never
                .iter()
                .any(|(name, start)| *name == script.name && line.starts_with(start));
            assert!(!(never && sent.contains(&n)), "{}: {line}", script.name);
            if !never && !sent.contains(&n) {
                missing.push(format!("{}: {line}", script.name));
            }
        }
    }
    assert!(missing.is_empty(), "no scene gets to\n  {}", missing.join("\n  "));
}

#[tokio::test]
async fn what_may_fail_is_called_before_the_first_write_or_its_error_is_handled() {
    let world = World::small().await;
    for scene in Box::pin(scenes::all(&world)).await {
        let (script, name) = (scene.call.script, scene.name);
        scene.set(&world.probe);
        let whole = scene.run(&world.probe, Break::Never);
        let first = first_write(&whole);
        for (n, (how, command, key)) in whole.calls.iter().enumerate() {
            if !MAY_FAIL.contains(&command.as_str()) || PROVEN.contains(&(script, command.as_str())) {
                continue;
            }
            assert!(
                n < first || how == "pcall",
                "{script}: {name}: {command} {key} may fail after the first write"
            );
        }
        // An error that `pcall` hands on changes nothing of what is stored.
        for (n, (how, command, key)) in whole.calls.iter().enumerate() {
            if how != "pcall" || matches!(command.as_str(), "XREADGROUP" | "XGROUP") {
                continue; // `takes.rs` takes queues away; a group that exists cannot be created again.
            }
            if name == scenes::UNHEARD {
                continue; // Whether anyone hears it is what PUBLISH answers; without an answer somebody may.
            }
            scene.set(&world.probe);
            let run = scene.run(&world.probe, Break::Fails(n + 1));
            assert_eq!(
                (run.outcome.as_str(), &run.after),
                ("ok", &whole.after),
                "{script}: {name}: {command} {key}"
            );
        }
    }
}

#[tokio::test]
async fn a_queue_that_cannot_be_read_costs_no_lease() {
    let world = World::small().await;
    let scenes = Box::pin(scenes::all(&world)).await;
    let scene = scenes.iter().find(|s| s.name == "turns of all three queues").unwrap();
    scene.set(&world.probe);
    let whole = scene.run(&world.probe, Break::Never);
    let reads: Vec<usize> = (1..)
        .zip(&whole.calls)
        .filter(|(_, (_, command, _))| command == "XREADGROUP")
        .map(|(n, _)| n)
        .collect();
    assert_eq!(reads.len(), 3);
    for n in reads {
        scene.set(&world.probe);
        // The group exists, so creating it fails as well, and the second read succeeds: the same turns come.
        let run = scene.run(&world.probe, Break::Fails(n));
        assert_eq!(run.outcome, "ok");
        assert_eq!(run.after, whole.after);
    }
}

/// The scripts that are declared read-only are held to it by the server; what they send is read-only too.
#[test]
fn scripts_without_writes_say_so() {
    let quiet = ["read_context", "read_task"];
    for script in SCRIPTS {
        let declared = script.text.starts_with("#!lua flags=no-writes\n");
        assert_eq!(declared, quiet.contains(&script.name), "{}", script.name);
    }
}

/// Only new work stops when memory is full.
#[test]
fn everything_but_new_work_runs_when_memory_is_full() {
    let new_work = [
        "reserve",
        "submit",
        "answer",
        "refuse",
        "layout",
        "read_context",
        "read_task",
    ];
    for script in SCRIPTS {
        let allowed = script.text.starts_with("#!lua flags=allow-oom\n");
        assert_ne!(allowed, new_work.contains(&script.name), "{}", script.name);
    }
}
