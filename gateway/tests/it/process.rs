//! The binary itself: its flags, its ready file, its exit codes.

use std::time::Duration;

use relevo_gateway::Config;
use relevo_shared::platform::config::Loader;
use relevo_shared::platform::metrics::encode;
use relevo_shared::platform::shutdown::Shutdown;
use relevo_testkit::{Process, RedisServer, binary};

const LIMIT: Duration = Duration::from_mins(1);

fn run(args: &[&str]) -> (Option<i32>, Process) {
    let process = Process::spawn(binary("relevo-gateway"), args, &[]);
    let status = process.wait_exit(LIMIT);
    (status.code(), process)
}

#[test]
fn it_says_when_it_is_ready_and_stops_cleanly_at_a_signal() {
    let redis = RedisServer::start();
    let url = redis.url();
    let args = [
        "--redis",
        &url,
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
    ];
    let drain = [
        ("RELEVO_DRAIN_DELAY", "0s"),
        ("RELEVO_GATEWAY_GRPC_LISTEN", "127.0.0.1:0"),
    ];
    let process = Process::spawn_with_ready_file(binary("relevo-gateway"), &args, &drain);
    let ready = process.wait_ready();
    assert_eq!(ready.pid, process.pid());
    let addresses = [ready.listen, ready.grpc, ready.admin];
    assert!(
        addresses.iter().all(|address| address.is_some_and(|it| it.port() != 0)),
        "{addresses:?}"
    );
    assert!(process.sigterm());
    assert_eq!(process.wait_exit(LIMIT).code(), Some(0), "{}", process.log());
}

#[test]
fn a_configuration_that_is_wrong_is_reported_whole_and_exits_with_64() {
    let (code, process) = run(&["--redis", "http://h", "--listen", "nowhere"]);
    assert_eq!(code, Some(64));
    for part in ["redis.url", "gateway.listen"] {
        assert!(process.stderr().contains(part), "{}", process.stderr());
    }
    assert_eq!(run(&["--nonsense"]).0, Some(64));
}

#[test]
fn a_configuration_can_be_checked_and_printed() {
    assert_eq!(run(&["--check-config"]).0, Some(0));
    let (code, process) = run(&["--print-config", "--redis", "redis://:hunter2@h:1"]);
    assert_eq!(code, Some(0));
    assert!(process.stdout().contains("[gateway]"), "{}", process.stdout());
    assert!(!process.stdout().contains("hunter2"));
}

#[test]
fn without_redis_or_without_its_port_it_exits_with_1() {
    let free = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let nobody = [&free[..], &["--redis", "unix:///nonexistent.sock"]].concat();
    assert_eq!(run(&nobody).0, Some(1));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let (code, process) = run(&["--listen", &listen, "--admin-listen", "127.0.0.1:0"]);
    assert_eq!(code, Some(1));
    assert!(process.log().contains("gateway.listen"), "{}", process.log());
}

#[tokio::test]
async fn parts_of_one_process_tell_their_metrics_apart_and_have_no_admin_listener() {
    let redis = RedisServer::start();
    let shutdown = Shutdown::new();
    for part in ["gateway-1", "gateway-2"] {
        let loader = Loader::new()
            .set("redis.url", redis.url())
            .set("gateway.listen", "127.0.0.1:0");
        let mut config = Config::load(loader).unwrap();
        config.part = Some(part.to_owned());
        let app = config.build(shutdown.clone()).await.unwrap();
        assert_eq!(app.admin(), None);
        let text = encode(&[app.registry().clone()]).unwrap();
        assert!(text.contains(&format!("instance=\"{part}\"")), "{text}");
    }
}
