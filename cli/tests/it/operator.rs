//! `relevo status` and `relevo config` against a Redis of the test.

use relevo_shared::platform::config::Settings;
use relevo_shared::platform::metrics::Registry;
use relevo_shared::store::{ConnectOptions, Store, StoreMetrics};
use relevo_testkit::RedisServer;
use serde_json::Value;

use crate::command::{run, run_with, scratch};

/// What the first process of a cluster does.
fn lay_out(url: &str) {
    let options = ConnectOptions {
        url: url.to_owned(),
        ..ConnectOptions::from_settings(&Settings::default().redis)
    };
    let metrics = StoreMetrics::register(&Registry::new()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(Store::connect(&options, metrics)).unwrap();
}

#[test]
fn a_redis_that_no_cluster_has_used_is_reported_and_left_as_it_is() {
    let redis = RedisServer::start();
    for command in [&["status"][..], &["dead", "list"]] {
        let said = run(&[command, &["--redis", &redis.url()]].concat()).with(1);
        assert!(said.stderr.contains("no cluster has used this Redis"), "{said:?}");
    }
    assert_eq!(redis.cli(&["DBSIZE"]).trim(), "0");
}

#[test]
fn the_state_of_an_idle_cluster_is_shown() {
    let redis = RedisServer::start();
    lay_out(&redis.url());
    let status = run(&["status", "--redis", &redis.url()]).with(0);
    assert!(status.stdout.contains("backlog: 0 turns"), "{status:?}");
    assert!(status.stdout.contains("no worker serves it"), "{status:?}");
    let status = run(&["status", "--json", "--redis", &redis.url()]).with(0);
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["workers"], serde_json::json!([]));
    let unserved = serde_json::json!([{ "pool": "default", "turns": 0, "workers": 0 }]);
    assert_eq!(status["pools"], unserved);
    let dead = run(&["dead", "list", "--json", "--redis", &redis.url()]).with(0);
    assert_eq!(dead.stdout, "[]\n");
    run(&["dead", "show", "nonsense", "--redis", &redis.url()]).with(1);
}

#[test]
fn a_password_is_never_shown() {
    let redis = RedisServer::builder().setting("requirepass", "hunter2").tcp().start();
    let address = redis.addr().unwrap();
    let right = format!("redis://:hunter2@{address}");
    lay_out(&right);
    let wrong = format!("redis://:hunter3@{address}");
    let odd = format!("redis+odd://:hunter2@{address}");
    for (url, code) in [(&right, 0), (&wrong, 1), (&odd, 64)] {
        let status = run(&["status", "--redis", url]).with(code);
        let said = status.stdout + &status.stderr;
        assert!(!said.contains("hunter"), "{said}");
    }
    let file = scratch();
    let file = file.path().join("password");
    std::fs::write(&file, "hunter2\n").unwrap();
    let env = [("RELEVO_REDIS_PASSWORD_FILE", file.to_str().unwrap())];
    run_with(&["status", "--redis", &format!("redis://{address}")], &env).with(0);
}

#[test]
fn a_redis_that_is_not_there_is_unreachable() {
    let redis = RedisServer::start();
    let url = redis.url();
    redis.kill();
    run(&["status", "--redis", &url]).with(3);
    let dir = scratch();
    let missing = dir.path().join("missing");
    let status = run(&["status", "--data-dir", missing.to_str().unwrap()]).with(3);
    assert!(status.stderr.contains("relevo dev --data-dir"), "{status:?}");
}

#[test]
fn a_cluster_must_be_named() {
    let status = run(&["status"]).with(2);
    assert!(status.stderr.contains("--redis URL"), "{status:?}");
    run(&["status", "--redis", "redis://h", "--data-dir", "d"]).with(2);
    let redis = RedisServer::start();
    lay_out(&redis.url());
    run_with(&["status"], &[("RELEVO_REDIS_URL", &redis.url())]).with(0);
}

#[test]
fn the_configuration_is_explained() {
    assert!(
        run(&["config", "reference"])
            .with(0)
            .stdout
            .contains("RELEVO_LEASE_TTL")
    );
    let file = run(&["config", "reference", "--toml"]).with(0).stdout;
    assert!(file.contains("[lease]"), "{file}");
    let printed = run_with(&["config", "print"], &[("RELEVO_LEASE_TTL", "9s")])
        .with(0)
        .stdout;
    assert!(printed.contains("ttl = \"9s\""), "{printed}");
    run(&["config", "check"]).with(0);
    let short = [("RELEVO_DRAIN_DEADLINE", "2s"), ("RELEVO_DRAIN_DELAY", "1s")];
    let checked = run_with(&["config", "check"], &short).with(0);
    let warning = "warning: drain.deadline = 2s is shorter than the 3s that agents.demo may take to stop";
    assert!(checked.stderr.contains(warning), "{checked:?}");
}
