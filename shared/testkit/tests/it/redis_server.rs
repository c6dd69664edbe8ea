use std::panic::catch_unwind;

use relevo_testkit::{RedisServer, poll};

#[test]
fn servers_are_private() {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    one.cli(&["SET", "key", "value"]);
    assert_eq!(one.cli(&["GET", "key"]), "value");
    assert_eq!(other.cli(&["DBSIZE"]), "0");
    assert!(one.url().starts_with("unix:///"), "{}", one.url());
}

#[test]
fn a_killed_server_finds_its_append_only_file_again() {
    let redis = RedisServer::builder().append_only().start();
    let first = redis.pid();
    redis.cli(&["SET", "key", "value"]);
    redis.kill();
    redis.restart();
    assert_ne!(redis.pid(), first);
    assert_eq!(redis.cli(&["GET", "key"]), "value");
}

#[test]
fn a_server_without_append_only_file_forgets() {
    let redis = RedisServer::start();
    redis.cli(&["SET", "key", "value"]);
    redis.restart();
    assert_eq!(redis.cli(&["DBSIZE"]), "0");
}

#[test]
fn a_tcp_server_listens_where_it_says() {
    let redis = RedisServer::start_tcp();
    let port = redis.addr().expect("an address").port().to_string();
    assert_eq!(redis.cli(&["CONFIG", "GET", "port"]), format!("port\n{port}"));
    redis.restart();
    assert_eq!(redis.cli(&["CONFIG", "GET", "port"]), format!("port\n{port}"));
}

#[test]
fn a_cluster_node_owns_every_slot_and_knows_its_address() {
    let redis = RedisServer::start_cluster_node();
    let info = redis.cli(&["CLUSTER", "INFO"]);
    assert!(
        info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384"),
        "{info}"
    );
    let addr = redis.addr().expect("an address");
    let (host, port) = (addr.ip().to_string(), addr.port().to_string());
    let slots = redis.cli(&["CLUSTER", "SLOTS"]);
    assert_eq!(
        slots.lines().take(4).collect::<Vec<_>>(),
        ["0", "16383", &host, &port],
        "{slots}"
    );
}

#[test]
fn settings_reach_the_server() {
    let redis = RedisServer::builder().max_memory("8mb").setting("timeout", "7").start();
    assert_eq!(redis.cli(&["CONFIG", "GET", "maxmemory"]), "maxmemory\n8388608");
    assert_eq!(
        redis.cli(&["CONFIG", "GET", "maxmemory-policy"]),
        "maxmemory-policy\nnoeviction"
    );
    assert_eq!(redis.cli(&["CONFIG", "GET", "timeout"]), "timeout\n7");
}

#[test]
fn a_server_may_ask_for_a_password() {
    let redis = RedisServer::builder().setting("requirepass", "open sesame").start();
    assert_eq!(redis.cli(&["-a", "open sesame", "PING"]), "PONG");
    assert!(catch_unwind(|| redis.cli(&["PING"])).is_err());
}

#[test]
fn an_error_reply_fails_the_test() {
    let redis = RedisServer::start();
    let failed = catch_unwind(|| redis.cli(&["NONSENSE"]));
    let message = *failed.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("ERR unknown command"), "{message}");
}

#[test]
fn a_server_that_does_not_start_shows_why() {
    let refusal = RedisServer::builder()
        .setting("no-such-setting", "1")
        .try_start()
        .unwrap_err();
    assert!(refusal.contains("no-such-setting"), "{refusal}");
}

#[test]
fn a_server_whose_port_is_taken_says_so() {
    // What `try_start` looks for before it tries another port.
    let other = RedisServer::start_tcp();
    let port = other.addr().expect("an address").port().to_string();
    let refusal = RedisServer::builder()
        .setting("port", &port)
        .setting("bind", "127.0.0.1")
        .try_start()
        .unwrap_err();
    assert!(refusal.contains("Address already in use"), "{refusal}");
}

#[test]
fn a_stopped_server_stands_still_until_it_may_go_on() {
    let redis = RedisServer::start();
    redis.stop();
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", redis.pid())).unwrap();
    assert!(state().contains(") T "), "{}", state());
    redis.cont();
    assert_eq!(redis.cli(&["PING"]), "PONG");
}

#[test]
fn files_are_gone_after_the_test() {
    let redis = RedisServer::start();
    let (dir, pid) = (redis.dir().to_owned(), redis.pid());
    drop(redis);
    assert!(!dir.exists());
    poll::until_sync("the process to be gone", || crate::lifetime::gone(pid));
}
