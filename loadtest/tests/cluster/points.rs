//! SIGKILL of a worker at each named point of a turn, for both crash policies.
//!
//! The worker that dies reaches Redis through a proxy that holds the turn still at that point; the point is known by the
//! script that the worker calls.

use a2a::TaskState;
use relevo_loadtest::verify::Kind;
use relevo_shared::domain::event::TURN;
use relevo_shared::store::SCRIPTS;
use relevo_testkit::{FaultProxy, RedisServer, poll};
use tokio::task::JoinSet;

use crate::fixture::Cluster;
use crate::wire::Say;

const CHUNKS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    BeforeTakesReply,
    AfterTake,
    AfterAgentStart,
    AfterEmitBeforeItsReply,
    InFinal,
    AfterFinalBeforeItsReply,
    AfterFinal,
}

const POINTS: [Point; 7] = [
    Point::BeforeTakesReply,
    Point::AfterTake,
    Point::AfterAgentStart,
    Point::AfterEmitBeforeItsReply,
    Point::InFinal,
    Point::AfterFinalBeforeItsReply,
    Point::AfterFinal,
];

/// How far the turn had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Leased,
    Begun,
    Ended,
}

impl Point {
    fn came(self) -> Came {
        match self {
            Self::BeforeTakesReply | Self::AfterTake => Came::Leased,
            Self::AfterAgentStart | Self::AfterEmitBeforeItsReply | Self::InFinal => Came::Begun,
            Self::AfterFinalBeforeItsReply | Self::AfterFinal => Came::Ended,
        }
    }

    /// Makes the proxy stop the turn here.
    fn arm(self, redis: &RedisServer, proxy: &FaultProxy) {
        match self {
            Self::BeforeTakesReply => proxy.swallow_reply_to(sha(redis, "take").as_bytes()),
            Self::AfterTake => proxy.swallow_request(sha(redis, "emit").as_bytes()),
            Self::AfterEmitBeforeItsReply => proxy.swallow_reply_to(sha(redis, "emit").as_bytes()),
            Self::InFinal => proxy.swallow_request(sha(redis, "finish").as_bytes()),
            Self::AfterFinalBeforeItsReply => proxy.swallow_reply_to(sha(redis, "finish").as_bytes()),
            Self::AfterAgentStart | Self::AfterFinal => {}
        }
    }

    /// Waits until the turn stands here.
    async fn reached(self, cluster: &Cluster, proxy: &FaultProxy, context: &str, fails: bool) {
        poll::until(&format!("{self:?}"), || async {
            let (leased, begun) = (
                !cluster.context(context, "tok").is_empty(),
                cluster.turn(context, "begun") == "1",
            );
            let held = proxy.swallowed() > 0;
            let here = match self {
                Self::BeforeTakesReply | Self::AfterTake => held && leased && !begun,
                // An agent that may run only once is called after the journal says so; the other after its first word.
                Self::AfterAgentStart => begun && (fails || !held),
                Self::AfterEmitBeforeItsReply | Self::InFinal => held && begun,
                Self::AfterFinalBeforeItsReply => held && !leased && cluster.dead_letters() == 0,
                Self::AfterFinal => !leased && cluster.context(context, "ep") != "" && cluster.left().is_empty(),
            };
            if here {
                Ok(())
            } else {
                Err(format!("leased {leased}, begun {begun}, held {held}"))
            }
        })
        .await;
    }
}

/// The name under which a server knows a script.
pub fn sha(redis: &RedisServer, name: &str) -> String {
    let script = SCRIPTS.iter().find(|script| script.name == name).unwrap();
    redis.cli(&["SCRIPT", "LOAD", &script.assembled()])
}

async fn dies_at(point: Point, policy: &str) {
    let fails = policy == "fail";
    let config = format!("[agents.demo]\nkind = \"demo\"\npolicy = \"{policy}\"\n");
    let mut cluster = Cluster::setup().gateways(1).workers(0).config(&config).start().await;
    let proxy = FaultProxy::start(cluster.redis.upstream());
    point.arm(&cluster.redis, &proxy);
    cluster.start_worker_at(&proxy.url()).await;

    let say = Say::new("c-1", &format!("chunks={CHUNKS} delay=500 nonce=q"));
    let client = cluster.client();
    let turn = tokio::spawn({
        let say = say.clone();
        async move { say.run(&client).await }
    });
    point.reached(&cluster, &proxy, "c-1", fails).await;
    cluster.kill_worker(0);

    if point.came() != Came::Ended && !(fails && point.came() == Came::Begun) {
        // The lease runs out, and what that costs depends on how far the turn had come.
        let costs = poll::until("the turn to be given back", || async {
            if cluster.context("c-1", "tok").is_empty() {
                Ok((cluster.turn("c-1", "charged"), cluster.turn("c-1", "handbacks")))
            } else {
                Err("leased")
            }
        })
        .await;
        let expected = match point.came() {
            Came::Leased => (String::new(), "1".to_owned()),
            Came::Begun | Came::Ended => ("1".to_owned(), String::new()),
        };
        assert_eq!(costs, expected, "{point:?} charged, handed back");
        cluster.start_worker().await;
    }
    let done = turn
        .await
        .unwrap()
        .unwrap_or_else(|failure| panic!("{point:?}: {failure:?}"));
    let task = cluster.client().get(0, &done.task).await.unwrap();
    let kinds: Vec<Kind> = done.violations.iter().map(|violation| violation.kind).collect();
    if fails && point.came() == Came::Begun {
        assert_eq!(task.status.state, TaskState::Failed, "{point:?}");
        assert_eq!(
            task.metadata.unwrap()[TURN]["reason"],
            "attempts_exhausted",
            "{point:?}"
        );
        assert!(
            kinds.contains(&Kind::Unfinished) && !kinds.contains(&Kind::Duplicate),
            "{point:?} {kinds:?}"
        );
        assert_eq!(cluster.dead_letters(), 1, "{point:?}");
    } else {
        assert_eq!(done.violations, [], "{point:?}");
        let violations = relevo_loadtest::verify::check_task(&task, "c-1", &[say.expect()]);
        assert_eq!(violations, [], "{point:?}");
        assert_eq!(done.boundaries, u32::from(point.came() == Came::Begun), "{point:?}");
        assert_eq!(cluster.dead_letters(), 0, "{point:?}");
    }
}

async fn dies_at_each_point(policy: &'static str) {
    let mut deaths = JoinSet::new();
    for point in POINTS {
        deaths.spawn(dies_at(point, policy));
    }
    // All of them, before the first failure is told: each must take its cluster down by itself.
    let mut failed = 0;
    while let Some(death) = deaths.join_next().await {
        failed += usize::from(death.is_err());
    }
    assert_eq!(failed, 0, "points at which something went wrong");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_may_restart_survives_a_death_at_each_point() {
    dies_at_each_point("restart").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_may_run_once_runs_once_whatever_the_point() {
    dies_at_each_point("fail").await;
}
