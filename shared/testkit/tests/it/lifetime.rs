//! What the fixtures start ends with whoever started it, however that ends.

use std::path::Path;
use std::process::Command;
use std::{env, fs, io, thread};

use relevo_testkit::{Process, RedisServer, Scratch, poll};

const HANDOVER: &str = "TESTKIT_HANDOVER";

/// Whether a process no longer runs. A zombie whose new parent has not reaped it yet counts.
pub(crate) fn gone(pid: u32) -> Result<(), String> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(stat) if stat.contains(") Z ") => Ok(()),
        Ok(stat) => Err(stat),
    }
}

#[test]
#[ignore = "run by children_die_with_a_killed_test_process, which kills it"]
fn victim() {
    let handover = env::var_os(HANDOVER).expect("only useful as a child of the other test");
    let redis = RedisServer::start();
    let sleeper = Process::spawn("/bin/sleep", &["1000"], &[]);
    let new = Path::new(&handover).with_extension("new");
    fs::write(&new, format!("{} {}", redis.pid(), sleeper.pid())).unwrap();
    fs::rename(&new, &handover).unwrap();
    loop {
        thread::park();
    }
}

#[test]
fn children_die_with_a_killed_test_process() {
    let scratch = Scratch::new("lifetime");
    let handover = scratch.path().join("pids");
    let test = env::current_exe().unwrap();
    let mut victim = Command::new(test)
        .args(["lifetime::victim", "--exact", "--ignored", "--nocapture"])
        .env(HANDOVER, &handover)
        // What the killed process cannot clean up goes into our own directory.
        .env("TMPDIR", scratch.path())
        .spawn()
        .unwrap();
    let pids = poll::until_sync("the victim to hand over", || fs::read_to_string(&handover));
    let pids: Vec<u32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    for pid in &pids {
        assert!(gone(*pid).is_err(), "{pid} should still run");
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
    for pid in pids {
        poll::until_sync("a child to die with its test", || gone(pid));
    }
}

#[test]
fn children_outlive_the_thread_that_asked_for_them() {
    let redis = thread::spawn(RedisServer::start).join().unwrap();
    assert_eq!(redis.cli(&["PING"]), "PONG");
}
