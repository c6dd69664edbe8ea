use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use relevo_testkit::{Process, Ready, binary, poll};

const LONG: Duration = Duration::from_mins(1);

fn shell(script: &str) -> Process {
    Process::spawn("/bin/sh", &["-c", script], &[("GREETING", "hello")])
}

#[test]
fn output_and_exit_status_are_kept() {
    let process = shell("echo $GREETING; echo trouble >&2; exit 3");
    assert_eq!(process.wait_exit(LONG).code(), Some(3));
    assert_eq!(process.stdout(), "hello\n");
    assert_eq!(process.stderr(), "trouble\n");
    assert_eq!(process.log(), "trouble\nhello\n");
}

#[tokio::test]
async fn signals_reach_the_process() {
    let process = shell("trap 'echo drained; exit 0' TERM; echo up; while :; do sleep 0.01; done");
    poll::until("the shell to run", || async {
        process.stdout().contains("up").then_some(()).ok_or("no")
    })
    .await;
    assert!(process.sigstop());
    assert!(process.sigcont());
    assert!(process.sigterm());
    assert_eq!(process.exited(LONG).await.code(), Some(0));
    assert!(process.stdout().contains("drained"));
    assert!(!process.sigkill(), "a process that has ended gets no signal");
}

#[test]
fn a_stopped_process_can_be_killed() {
    let process = shell("exec sleep 1000");
    assert!(process.sigstop());
    assert!(process.sigkill());
    assert_eq!(process.wait_exit(LONG).signal(), Some(9));
}

#[test]
fn the_ready_file_tells_the_addresses() {
    let json = r#"{\"pid\":$$,\"listen\":\"127.0.0.1:1\",\"admin\":\"127.0.0.1:2\"}"#;
    // sh -c script name --ready-file path: the path is $2.
    let script = format!("echo \"{json}\" > \"$2.new\" && mv \"$2.new\" \"$2\" && exec sleep 1000");
    let process = Process::spawn_with_ready_file("/bin/sh", &["-c", &script, "name"], &[]);
    let expected = Ready {
        pid: process.pid(),
        listen: Some("127.0.0.1:1".parse().unwrap()),
        grpc: None,
        admin: Some("127.0.0.1:2".parse().unwrap()),
    };
    assert_eq!(process.wait_ready(), expected);
}

#[test]
fn a_process_that_ends_before_it_is_ready_shows_its_log() {
    let process = Process::spawn_with_ready_file("/bin/sh", &["-c", "echo cannot bind >&2; exit 1"], &[]);
    let failed = std::panic::catch_unwind(|| process.wait_ready());
    let message = *failed.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("cannot bind"), "{message}");
}

#[test]
#[should_panic(expected = "cargo build --workspace --bins")]
fn a_missing_binary_tells_how_to_build_it() {
    binary("no-such-binary");
}

#[test]
fn a_dropped_process_is_gone_with_its_files() {
    let process = shell("exec sleep 1000");
    let (pid, dir) = (process.pid(), process.dir().to_owned());
    drop(process);
    assert!(crate::lifetime::gone(pid).is_ok());
    assert!(!dir.exists());
}

#[test]
fn a_failing_test_keeps_the_files() {
    let failed = std::panic::catch_unwind(|| {
        let process = shell("echo evidence");
        process.wait_exit(LONG);
        std::panic::panic_any(process.dir().to_owned());
    });
    let dir = *failed.unwrap_err().downcast::<std::path::PathBuf>().unwrap();
    assert_eq!(fs::read_to_string(dir.join("stdout.log")).unwrap(), "evidence\n");
    fs::remove_dir_all(&dir).unwrap();
    // The common parent too, unless another test of this process uses it.
    fs::remove_dir(dir.parent().unwrap()).ok();
}
