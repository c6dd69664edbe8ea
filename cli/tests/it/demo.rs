//! `relevo demo`, which starts the binaries beside it.

use relevo_testkit::poll;
use relevo_testkit::{Process, Scratch, binary};

use crate::command::{ended, printed, relevo, runs, scratch};

/// Starts it with its files in a directory that goes with the test.
fn start(dir: &Scratch, args: &[&str]) -> Process {
    let args: Vec<&str> = ["demo"].iter().chain(args).copied().collect();
    Process::spawn(relevo(), &args, &[("TMPDIR", dir.path().to_str().unwrap())])
}

/// Every process id that the demo named.
fn pids(stdout: &str) -> Vec<u32> {
    let pid = |line: &str| line.split("pid ").nth(1)?.split([',', ' ', '\n']).next()?.parse().ok();
    stdout.lines().filter_map(pid).collect()
}

#[track_caller]
fn all_gone(pids: &[u32]) {
    poll::until_sync("every process to be gone", || {
        match pids.iter().find(|pid| runs(**pid)) {
            Some(pid) => Err(format!("{pid} runs")),
            None => Ok(()),
        }
    });
}

#[test]
fn an_answer_survives_the_worker_that_gave_it() {
    for needed in ["relevo-gateway", "relevo-worker"] {
        binary(needed);
    }
    let dir = scratch();
    let demo = ended(&start(&dir, &["--chunks", "20", "--delay", "50"])).with(0);
    for line in [
        "-- kill -9 ",
        "-- attempt 2, ",
        "ok      so has the task as the other gateway reads it (GetTask)",
    ] {
        assert!(demo.stdout.contains(line), "{line} in {demo:#?}");
    }
    let pids = pids(&demo.stdout);
    assert_eq!(pids.len(), 6, "{pids:?}");
    all_gone(&pids);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nor any file");
}

#[test]
fn a_demo_that_is_stopped_or_killed_leaves_no_process_behind() {
    let dir = scratch();
    for stop in [Process::sigterm, Process::sigkill] {
        let demo = start(&dir, &["--chunks", "1000", "--delay", "50"]);
        printed(&demo, "0 1 2 ");
        let pids = pids(&demo.stdout());
        assert_eq!(pids.len(), 6, "{pids:?}");
        assert!(stop(&demo));
        assert!(!ended(&demo).stdout.contains("ok "));
        all_gone(&pids);
    }
}
