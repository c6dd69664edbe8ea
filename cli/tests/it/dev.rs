//! `relevo dev`: a whole cluster, its data, its end.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use relevo_testkit::poll;
use relevo_testkit::schema::{Shape, judge};
use serde_json::Value;

use crate::command::{Dev, ended, printed, run, run_with, runs, scratch};

/// Every number of the demo agent's chunks, in the order they were printed.
pub fn numbers(text: &str) -> Vec<u32> {
    text.split_whitespace()
        .filter_map(|word| word.strip_prefix("seq=")?.parse().ok())
        .collect()
}

#[test]
fn a_conversation_flows_and_survives_a_restart() {
    let dir = scratch();
    let dev = Dev::start(dir.path(), &["--gateways", "2", "--workers", "2"]);
    let streamed = dev.client(&["call", "chunks=7 nonce=a", "--stream"]).with(0);
    assert_eq!(numbers(&streamed.stdout), (0..7).collect::<Vec<_>>());
    assert_eq!(streamed.noted("state"), "completed");
    let asks = dev.client(&["call", "chunks=3 nonce=b end=input-required"]).with(0);
    assert_eq!(numbers(&asks.stdout), [0, 1, 2]);
    assert_eq!(asks.noted("state"), "input required");
    let (task, context) = (asks.noted("task"), asks.noted("context"));
    let stopped = dev.stop().with(0);
    assert!(
        stopped
            .stdout
            .contains("relevo call \"chunks=10 delay=300\" --stream --url http://127.0.0.1:"),
        "{stopped:?}"
    );

    let dev = Dev::start(dir.path(), &[]);
    let shown = dev.client(&["task", "get", &task]).with(0);
    assert!(shown.stdout.contains("state:   input required"), "{shown:?}");
    assert_eq!(numbers(&shown.stdout), [0, 1, 2]);
    let follow_up = dev
        .client(&["call", "chunks=2 nonce=c", "--task-id", &task, "--stream"])
        .with(0);
    assert_eq!(follow_up.noted("context"), context);
    assert_eq!(
        numbers(&follow_up.stdout),
        [0, 1],
        "nothing of the earlier turn: {follow_up:?}"
    );
    let listed = dev.client(&["task", "list", "--json", "--status", "completed"]).with(0);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let ids: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["id"].as_str().unwrap())
        .collect();
    assert_eq!(
        ids,
        [task.clone(), streamed.noted("task")],
        "the latest change comes first"
    );
    // As it came, which the schemas of the protocol judge.
    let raw = dev.client(&["task", "get", &task, "--json"]).with(0);
    judge(Shape::Task, &serde_json::from_str(&raw.stdout).unwrap());
    dev.stop().with(0);
}

#[test]
fn a_credential_is_shown_to_the_server_and_named_when_it_is_missing() {
    let dir = scratch();
    let dev = Dev::start_with(
        dir.path(),
        &[],
        &[("RELEVO_AUTH_TOKEN", "t0ken"), ("RELEVO_AUTH_API_KEY", "k3y")],
    );
    let url = dev.url();
    let refused = dev.client(&["call", "hi"]).with(1);
    assert!(
        refused
            .stderr
            .contains("it wants a credential, or another one: --token-file, --basic-username or --api-key-file"),
        "{refused:?}"
    );
    let sent = run_with(&["call", "hi", "--url", &url], &[("RELEVO_TOKEN", "t0ken")]).with(0);
    let file = dir.path().join("token");
    std::fs::write(&file, "t0ken\n").unwrap();
    let task = sent.noted("task");
    let listed = run(&[
        "task",
        "get",
        &task,
        "--url",
        &url,
        "--token-file",
        &file.display().to_string(),
    ])
    .with(0);
    assert!(listed.stdout.contains("state:   completed"), "{listed:?}");
    // An API key is another caller's.
    run_with(&["task", "get", &task, "--url", &url], &[("RELEVO_API_KEY", "k3y")]).with(1);
    let missing = run(&["task", "list", "--url", &url, "--token-file", "/nonexistent"]).with(1);
    assert!(missing.stderr.contains("/nonexistent cannot be read"), "{missing:?}");
    dev.stop().with(0);
}

#[test]
fn a_task_is_watched_and_canceled() {
    let dir = scratch();
    let dev = Dev::start(dir.path(), &[]);
    let call = dev.start_client(&["call", "chunks=3 hold=600", "--stream"]);
    printed(&call, "seq=2");
    let task = call.stderr().lines().next().unwrap()["task ".len()..]
        .split(',')
        .next()
        .unwrap()
        .to_owned();
    let watch = dev.start_client(&["task", "watch", &task]);
    printed(&watch, "seq=2");
    let status = dev.operator(&["status", "--json"]).with(0);
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["backlog"], 1);
    assert_eq!(status["turns"][0]["task"], task);
    assert_eq!(status["turns"][0]["attempt"], 1);
    assert_eq!(status["turns"][0]["worker"], status["workers"][0]["worker"]);

    let canceled = dev.client(&["task", "cancel", &task]).with(0);
    assert!(canceled.stdout.contains("state:   canceled"), "{canceled:?}");
    for ended in [ended(&call), ended(&watch)] {
        let ended = ended.with(1);
        assert_eq!(
            (ended.noted("state"), numbers(&ended.stdout)),
            ("canceled".to_owned(), vec![0, 1, 2])
        );
    }
    dev.client(&["task", "cancel", &task]).with(1);
    dev.client(&["task", "get", "nonsense"]).with(1);
    dev.stop().with(0);
}

#[test]
fn a_turn_that_waits_for_its_context_is_counted_and_run() {
    let dir = scratch();
    let config = dir.path().join("relevo.toml");
    std::fs::write(&config, "[agents.demo]\nkind = \"demo\"\nbusy = \"queue\"\n").unwrap();
    let dev = Dev::start(dir.path(), &["--config", config.to_str().unwrap()]);
    let first = dev.start_client(&["call", "chunks=1 hold=600", "--context-id", "c", "--stream"]);
    printed(&first, "seq=0");
    let task = first.stderr().lines().next().unwrap()["task ".len()..]
        .split(',')
        .next()
        .unwrap()
        .to_owned();
    let next = dev.start_client(&["call", "chunks=2 nonce=a", "--context-id", "c", "--stream"]);
    let status = poll::until_sync("it waits", || {
        let status = dev.operator(&["status", "--json"]).with(0);
        let status: Value = serde_json::from_str(&status.stdout).unwrap();
        if status["behind"] == 1 { Ok(status) } else { Err(status) }
    });
    assert_eq!(status["backlog"], 2);
    let shown = dev.operator(&["status"]).with(0).stdout;
    let line = "backlog: 1 turns queued or running, 1 behind another of their context, the oldest";
    assert!(shown.starts_with(line), "{shown}");
    dev.client(&["task", "cancel", &task]).with(0);
    let next = ended(&next).with(0);
    assert_eq!(
        (next.noted("state"), numbers(&next.stdout)),
        ("completed".to_owned(), vec![0, 1])
    );
    dev.stop().with(0);
}

#[test]
fn a_conversation_that_works_in_a_directory_is_shown_with_the_storage_of_its_workers() {
    let dir = scratch();
    let config = dir.path().join("relevo.toml");
    let agents = "[workspace]\nstorage_id = \"disk-a\"\n[agents.demo]\nkind = \"demo\"\nprofile = \"iac-code\"\nbusy = \"queue\"\n";
    std::fs::write(&config, agents).unwrap();
    let dev = Dev::start(dir.path(), &["--config", config.to_str().unwrap(), "--workers", "2"]);
    let here = dir.path().to_str().unwrap();
    let call = |text| dev.start_client(&["call", text, "--context-id", "c", "--cwd", here, "--stream"]);
    // Whichever worker takes the first turn binds its conversation.
    ended(&call("chunks=1 nonce=a")).with(0);
    let held = call("chunks=1 hold=600");
    printed(&held, "seq=0");
    let task = held.stderr().lines().next().unwrap()["task ".len()..]
        .split(',')
        .next()
        .unwrap()
        .to_owned();
    let status = dev.operator(&["status", "--json"]).with(0);
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let storages = serde_json::json!([{ "pool": "default", "storage": "disk-a", "turns": 1, "workers": 2 }]);
    assert_eq!(status["storages"], storages, "{status}");
    let shown = dev.operator(&["status"]).with(0).stdout;
    assert!(shown.contains("STORAGE") && shown.contains("disk-a"), "{shown}");
    dev.client(&["task", "cancel", &task]).with(0);
    assert_eq!(ended(&held).with(1).noted("state"), "canceled");
    dev.stop().with(0);
}

#[test]
fn a_directory_and_a_port_are_used_by_one_at_a_time() {
    let dir = scratch();
    let dev = Dev::start(dir.path(), &[]);
    let other = dir.path().join("other");
    let port = dev.url().rsplit_once(':').unwrap().1.to_owned();
    let taken = run(&["dev", "--port", &port, "--data-dir", other.to_str().unwrap()]).with(1);
    assert!(taken.stderr.contains("choose another --port"), "{taken:?}");
    assert!(!taken.stderr.contains("stopped"), "it never ran: {taken:?}");
    let second = run(&["dev", "--port", "0", "--data-dir", dev.data_dir()]).with(1);
    let expected = format!("is in use by process {}", dev.process.pid());
    assert!(second.stderr.contains(&expected), "{second:?}");
    dev.client(&["call", "still there"]).with(0);
    dev.stop().with(0);
}

#[test]
fn a_killed_cluster_leaves_no_redis_server_and_loses_no_task() {
    let dir = scratch();
    let dev = Dev::start_with(dir.path(), &[], &[("RELEVO_LEASE_TTL", "2s")]);
    let redis = dev.redis_pid();
    assert!(runs(redis));
    let done = dev.client(&["call", "chunks=2"]).with(0).noted("task");
    let call = dev.start_client(&["call", "chunks=3 hold=600", "--stream"]);
    printed(&call, "seq=2");
    let running = call.stderr().lines().next().unwrap()["task ".len()..]
        .split(',')
        .next()
        .unwrap()
        .to_owned();
    call.kill();
    dev.process.kill();
    poll::until_sync("redis-server to follow", || {
        if runs(redis) { Err("it runs") } else { Ok(()) }
    });
    assert!(
        Path::new(dev.data_dir()).join("redis.sock").exists(),
        "the stale socket that the next start meets"
    );
    assert_eq!(run(&["status", "--data-dir", dev.data_dir()]).code, 3);

    let again = Dev::start_with(dir.path(), &[], &[("RELEVO_LEASE_TTL", "2s")]);
    assert!(
        again
            .client(&["task", "get", &done])
            .with(0)
            .stdout
            .contains("completed")
    );
    let watch = again.start_client(&["task", "watch", &running]);
    printed(&watch, "-- attempt 2");
    again.client(&["task", "cancel", &running]).with(0);
    ended(&watch).with(1);
    again.stop().with(0);
}

#[test]
fn a_program_of_a_newcomer_answers_and_goes_with_the_cluster() {
    let dir = scratch();
    let program = dir.path().join("agent.py");
    std::fs::write(
        &program,
        "import json, os, sys, time\n\
         turn = json.loads(sys.stdin.readline())\n\
         say = lambda **line: print(json.dumps(line), flush=True)\n\
         text = turn['message']['parts'][0]['text']\n\
         say(type='status', message={'parts': [{'text': f'pid={os.getpid()} you said: '}]})\n\
         if text == 'wait': time.sleep(3600)\n\
         say(type='end', message={'parts': [{'text': text}]})\n",
    )
    .unwrap();
    let config = dir.path().join("relevo.toml");
    let table = format!(
        "[agents.mine]\nkind = \"process\"\ncommand = [\"python3\", \"{}\"]\n",
        program.display()
    );
    std::fs::write(&config, table).unwrap();
    let dev = Dev::start(dir.path(), &["--config", config.to_str().unwrap()]);
    let answer = dev.client(&["call", "hello"]).with(0);
    assert!(answer.stdout.contains("you said: hello"), "{answer:?}");
    let call = dev.start_client(&["call", "wait", "--stream"]);
    printed(&call, "you said: ");
    let agent = call.stdout().split(['=', ' ']).nth(1).unwrap().parse().unwrap();
    assert!(runs(agent));
    call.kill();
    dev.process.kill();
    poll::until_sync(
        "the agent to follow",
        || if runs(agent) { Err("it runs") } else { Ok(()) },
    );
}

#[test]
fn a_cluster_without_its_redis_server_ends() {
    let dir = scratch();
    let dev = Dev::start(dir.path(), &[]);
    let killed = std::process::Command::new("kill")
        .args(["-9", &dev.redis_pid().to_string()])
        .status();
    assert!(killed.unwrap().success());
    let ended = ended(&dev.process).with(1);
    assert!(ended.stderr.contains("redis-server ended (signal: 9"), "{ended:?}");
}

#[test]
fn a_missing_redis_server_names_its_package() {
    let dir = scratch();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    // What the test itself needs to start a process.
    for tool in ["setpriv", "sh"] {
        symlink(find(tool), bin.join(tool)).unwrap();
    }
    let data = dir.path().join("data");
    let args = ["dev", "--port", "0", "--data-dir", data.to_str().unwrap()];
    let dev = run_with(&args, &[("PATH", bin.to_str().unwrap())]).with(1);
    assert!(dev.stderr.contains("apt-get install redis-server"), "{dev:?}");
}

fn find(tool: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path)
        .map(|dir| dir.join(tool))
        .find(|path| path.is_file())
        .unwrap()
}

#[test]
fn one_admin_listener_shows_every_part() {
    let dir = scratch();
    let dev = Dev::start(dir.path(), &["--gateways", "2", "--workers", "2"]);
    let ready = get(&format!("{}/readyz", dev.admin()));
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    let metrics = get(&format!("{}/metrics", dev.admin()));
    for part in ["gateway-1", "gateway-2", "worker-1", "worker-2"] {
        assert!(metrics.contains(&format!("instance=\"{part}\"")), "{part} in {metrics}");
    }
    dev.stop().with(0);
}

fn get(url: &str) -> String {
    use std::io::{Read as _, Write as _};
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut connection = std::net::TcpStream::connect(host).unwrap();
    write!(
        connection,
        "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_wrong_configuration_is_refused_before_anything_is_made() {
    let dir = scratch();
    let (file, data) = (dir.path().join("relevo.toml"), dir.path().join("data"));
    std::fs::write(&file, "[lease]\nttl = \"1s\"\n").unwrap();
    let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());
    let dev = run(&["dev", "--config", file, "--data-dir", data]).with(64);
    assert!(dev.stderr.contains("lease.ttl"), "{dev:?}");
    assert!(!Path::new(data).exists());
    assert!(
        run(&["config", "check", "--config", file])
            .with(64)
            .stderr
            .contains("lease.ttl")
    );
    run_with(&["config", "check"], &[("RELEVO_CONFIG", file)]).with(64);
    run(&["dev", "--port", "65535", "--gateways", "2", "--data-dir", data]).with(2);
}
