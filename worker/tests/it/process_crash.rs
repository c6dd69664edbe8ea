//! Whatever happens to a worker process: nothing of its agents outlives their leases. And what its agents can see of it.

use std::time::Duration;

use a2a::TaskState;
use relevo_shared::domain::record::{CrashPolicy, TurnRecord};
use relevo_testkit::{Process, poll};
use rustix::process::{Pid, Signal};

use crate::fixture::World;
use crate::process_harness::Mark;

fn start(world: &World, mark: &Mark, more: &str, env: &[(&str, &str)]) -> Process {
    let config = mark.path("relevo.toml");
    let agents = mark.driven(more).replace("[a", "[agents.a");
    std::fs::write(&config, format!("[lease]\nttl = \"4s\"\n{agents}")).unwrap();
    let url = world.redis.url();
    let config = config.to_str().unwrap();
    let args = ["--redis", &url, "--admin-listen", "127.0.0.1:0", "--config", config];
    Process::spawn_with_ready_file(env!("CARGO_BIN_EXE_relevo-worker"), &args, env)
}

/// When the lease runs out; `None` when the turn is over.
async fn lease(world: &World, turn: &TurnRecord) -> Option<u64> {
    let (context, partition) = world.store.place(&turn.scope(), &turn.context_id);
    let view = world.store.read_context(partition, &context).await.unwrap();
    view.live.map(|live| live.until)
}

async fn lease_until(world: &World, turn: &TurnRecord) -> u64 {
    lease(world, turn).await.unwrap()
}

/// A turn whose agent has a child, a grandchild and a daemon, all deaf to SIGTERM.
async fn deaf_tree(world: &World, mark: &Mark) -> TurnRecord {
    let turn = world.ask("c-1", "deaf=1 tree say=x hold=3600", CrashPolicy::Fail).await;
    world.until_entries(turn.task, 3).await;
    // Agent, child, grandchild, daemon and supervisor.
    mark.until_living(5).await;
    turn
}

async fn gone_within_the_lease(world: &World, mark: &Mark, turn: &TurnRecord) {
    mark.until_gone().await;
    let now = world.store.now().await.unwrap();
    let until = lease_until(world, turn).await;
    assert!(now <= until, "gone {} ms after the lease ran out", now - until);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_leaves_nothing_of_its_agents() {
    let (world, mark) = (World::start().await, Mark::new());
    let worker = start(&world, &mark, "", &[]);
    worker.ready().await;
    let turn = deaf_tree(&world, &mark).await;
    assert!(worker.sigkill());
    gone_within_the_lease(&world, &mark, &turn).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agents_of_a_stopped_worker_end_with_their_leases() {
    let (world, mark) = (World::start().await, Mark::new());
    let worker = start(&world, &mark, "kill_grace = \"30s\"", &[]);
    worker.ready().await;
    let turn = deaf_tree(&world, &mark).await;
    // Longer than one lease: renewals reach the supervisor.
    let first = lease_until(&world, &turn).await;
    poll::until("the first lease is over", || async {
        let now = world.store.now().await.unwrap();
        if now > first { Ok(()) } else { Err(first - now) }
    })
    .await;
    assert_eq!(mark.living().len(), 5);
    assert!(worker.sigstop());
    gone_within_the_lease(&world, &mark, &turn).await;
    assert!(worker.sigcont());
}

/// The same, and the agent has stopped its supervisor.
async fn frozen_tree(world: &World, mark: &Mark) -> TurnRecord {
    let words = "deaf=1 tree freeze=1 say=x hold=3600";
    let turn = world.ask("c-1", words, CrashPolicy::Fail).await;
    world.until_entries(turn.task, 3).await;
    mark.until_living(5).await;
    turn
}

/// The warden of a worker, once it has one other than `before`.
async fn warden(worker: &Process, before: Option<Pid>) -> Pid {
    poll::until("there is a warden", || async {
        let children = format!("/proc/{0}/task/{0}/children", worker.pid());
        let children = std::fs::read_to_string(children).map_err(|error| error.to_string())?;
        let is_warden = |pid: &&str| {
            let name = std::fs::read(format!("/proc/{pid}/cmdline"));
            name.is_ok_and(|name| name.starts_with(b"relevo-warden\0"))
        };
        let found = children
            .split_whitespace()
            .find(is_warden)
            .map(|pid| pid.parse().unwrap());
        let found = found.and_then(Pid::from_raw).filter(|pid| Some(*pid) != before);
        found.ok_or(children)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_supervisor_saves_no_agent_of_a_killed_worker() {
    let (world, mark) = (World::start().await, Mark::new());
    let worker = start(&world, &mark, "", &[]);
    worker.ready().await;
    let turn = frozen_tree(&world, &mark).await;
    assert!(worker.sigkill());
    gone_within_the_lease(&world, &mark, &turn).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_supervisor_saves_no_agent_of_a_stopped_worker() {
    let (world, mark) = (World::start().await, Mark::new());
    let worker = start(&world, &mark, "kill_grace = \"30s\"", &[]);
    worker.ready().await;
    let turn = frozen_tree(&world, &mark).await;
    let first = lease_until(&world, &turn).await;
    poll::until("the first lease is over", || async {
        let now = world.store.now().await.unwrap();
        if now > first { Ok(()) } else { Err(first - now) }
    })
    .await;
    assert_eq!(mark.living().len(), 5);
    assert!(worker.sigstop());
    gone_within_the_lease(&world, &mark, &turn).await;
    assert!(worker.sigcont());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stops_its_supervisor_and_its_worker_ends_with_its_lease() {
    let (world, mark) = (World::start().await, Mark::new());
    let worker = start(&world, &mark, "", &[]);
    worker.ready().await;
    let go = mark.path("go");
    let words = format!("deaf=1 tree say=x wait={} freeze=both hold=3600", go.display());
    let turn = world.ask("c-1", &words, CrashPolicy::Fail).await;
    world.until_entries(turn.task, 3).await;
    std::fs::write(&go, "").unwrap();
    gone_within_the_lease(&world, &mark, &turn).await;
    assert!(worker.sigcont());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_kills_its_supervisor_ends_with_all_that_it_has_started() {
    let (world, mark) = (World::start().await, Mark::new());
    let worker = start(&world, &mark, "", &[]);
    worker.ready().await;
    // Its daemon holds its standard output.
    let turn = world
        .ask("c-1", "deaf=1 tree say=x slay=1 hold=3600", CrashPolicy::Fail)
        .await;
    let stored = world.until_over(turn.task).await;
    assert_eq!((stored.state, mark.living()), (TaskState::Failed, Vec::<String>::new()));

    // Killed at the same moment as the worker, which could have seen to it.
    let go = mark.path("go");
    let words = format!("deaf=1 tree say=x wait={} slay=1 hold=3600", go.display());
    let turn = world.ask("c-2", &words, CrashPolicy::Fail).await;
    world.until_entries(turn.task, 3).await;
    mark.until_living(5).await;
    assert!(worker.sigstop());
    std::fs::write(&go, "").unwrap();
    mark.until_living(3).await;
    assert!(worker.sigkill());
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_supervisor_saves_no_agent_of_a_worker_that_gives_up_its_drain() {
    for (deadline, twice) in [("1s", false), ("1h", true)] {
        let (world, mark) = (World::start().await, Mark::new());
        let env = [("RELEVO_DRAIN_DEADLINE", deadline), ("RELEVO_DRAIN_DELAY", "0s")];
        let worker = start(&world, &mark, "kill_grace = \"2s\"", &env);
        worker.ready().await;
        let turn = frozen_tree(&world, &mark).await;
        assert!(worker.sigterm());
        if twice {
            poll::until("it drains", || async {
                let log = worker.log();
                if log.contains("draining") { Ok(()) } else { Err(log) }
            })
            .await;
            assert!(worker.sigterm());
        }
        assert!(
            !worker.exited(Duration::from_mins(1)).await.success(),
            "{}",
            worker.log()
        );
        // A worker that is told twice still has the time that its agents need, and may have ended the turn.
        match lease(&world, &turn).await {
            Some(_) => gone_within_the_lease(&world, &mark, &turn).await,
            None => assert_eq!(mark.agents(), Vec::<String>::new()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warden_that_is_killed_is_replaced_and_leaves_with_its_worker() {
    let (world, mark) = (World::start().await, Mark::new());
    let worker = start(&world, &mark, "", &[]);
    worker.ready().await;
    let turn = frozen_tree(&world, &mark).await;
    let first = warden(&worker, None).await;
    rustix::process::kill_process(first, Signal::KILL).unwrap();
    let second = warden(&worker, Some(first)).await;
    assert_eq!(mark.living().len(), 5);
    assert!(worker.sigkill());
    gone_within_the_lease(&world, &mark, &turn).await;
    poll::until("it leaves", || async {
        let there = rustix::process::test_kill_process(second);
        there.err().map(drop).ok_or("it is there")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_of_a_killed_worker_goes_with_it() {
    let (world, mark) = (World::start().await, Mark::new());
    let worker = start(&world, &mark, "keep = \"1h\"", &[]);
    worker.ready().await;
    let turn = world.ask("c-1", "tree end=completed", CrashPolicy::Fail).await;
    world.until_over(turn.task).await;
    mark.until_living(5).await;
    assert!(worker.sigkill());
    mark.until_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_see_their_own_variables_and_nothing_of_the_worker() {
    let (world, mark) = (World::start().await, Mark::new());
    let secret = mark.path("secret");
    std::fs::write(&secret, "hunter2\n").unwrap();
    let variables = format!("API_KEY = {{ file = {secret:?} }}\nOTHER = {{ env = \"WORKERS_OWN\" }}\nMODE = \"fast\"");
    let table = mark.driven("");
    let config = mark.path("relevo.toml");
    let agents = format!("{table}{variables}\n").replace("[a", "[agents.a");
    std::fs::write(&config, &agents).unwrap();
    let (url, config) = (world.redis.url(), config.to_str().unwrap().to_owned());
    let args = ["--redis", &url, "--admin-listen", "127.0.0.1:0", "--config", &config];
    let env = [
        ("WORKERS_OWN", "hunter3"),
        ("UNTOLD", "hunter4"),
        ("RELEVO_LOG_LEVEL", "debug"),
    ];
    let worker = Process::spawn_with_ready_file(env!("CARGO_BIN_EXE_relevo-worker"), &args, &env);
    worker.ready().await;
    let turn = world.ask("c-1", "env end=completed", CrashPolicy::Fail).await;
    let stored = world.until_over(turn.task).await;
    assert_eq!(stored.state, TaskState::Completed);
    let a2a::PartContent::Data(seen) = &stored.folded.artifacts[0].parts[0].content else {
        panic!("no data")
    };
    assert_eq!(
        (&seen["API_KEY"], &seen["OTHER"], &seen["MODE"]),
        (&"hunter2".into(), &"hunter3".into(), &"fast".into())
    );
    assert_eq!(
        (&seen["RELEVO_TURN_ID"], &seen["RELEVO_ATTEMPT"]),
        (&turn.turn.to_string().into(), &"1".into())
    );
    assert!(seen["RELEVO_EPOCH"].as_str().unwrap().parse::<u64>().unwrap() > 0 && seen["PATH"].is_string());
    assert!(seen.get("UNTOLD").is_none() && seen.get("RELEVO_LOG_LEVEL").is_none());
    assert!(worker.sigterm());
    assert!(worker.exited(Duration::from_secs(30)).await.success());
    mark.until_gone().await;
    assert!(!worker.log().contains("hunter"), "{}", worker.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_refuses_to_start_without_what_its_agents_need() {
    let (world, mark) = (World::start().await, Mark::new());
    let more = "cwd = \"/no/such/folder\"\n[a.env]\nKEY = { file = \"/no/such/key\" }\n";
    let config = mark.path("relevo.toml");
    std::fs::write(
        &config,
        format!(
            "[agents.a]\nkind = \"process\"\ncommand = [\"python3\"]\n{}",
            more.replace("[a", "[agents.a")
        ),
    )
    .unwrap();
    let args = ["--redis", &world.redis.url(), "--config", config.to_str().unwrap()];
    let worker = Process::spawn(env!("CARGO_BIN_EXE_relevo-worker"), &args, &[]);
    let status = worker.exited(Duration::from_secs(30)).await;
    assert_eq!(status.code(), Some(64));
    let said = worker.stderr();
    assert!(
        said.contains("agents.a.cwd") && said.contains("agents.a.env.KEY: /no/such/key cannot be read"),
        "{said}"
    );
}
