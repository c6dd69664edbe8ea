//! SIGKILL of workers at random points under many turns.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use a2a::TaskState;
use relevo_shared::domain::event::TURN;
use relevo_testkit::poll;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::fixture::Cluster;
use crate::wire::{Say, message_id, without_ids};

const TURNS: usize = 10;
const ROUNDS: usize = 5;
const CHUNKS: u64 = 40;
/// How long a turn takes: kills fall into this time.
const TURN_MS: u64 = 2_000;

/// SplitMix64: good enough to choose victims, and repeatable.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = RandomState::new().build_hasher().finish();
        println_seed(seed);
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the seed is for the person who reads the failed test"
)]
fn println_seed(seed: u64) {
    eprintln!("seed {seed}");
}

fn say(round: usize, turn: usize) -> Say {
    let nonce = format!("n.{round}.{turn}");
    // Half of them answer by an artifact, which a later attempt must begin anew.
    let kind = if turn.is_multiple_of(2) { "" } else { "artifact=chunks " };
    let text = format!("chunks={CHUNKS} delay={} {kind}nonce={nonce}", TURN_MS / CHUNKS);
    Say::new(&format!("c-{round}-{turn}"), &text).at(turn)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_workers_all_die_ends_failed_as_a_dead_letter() {
    let mut cluster = Cluster::setup().workers(1).set("RELEVO_LEASE_TTL", "2s").start().await;
    let client = cluster.client();
    let say = Say::new("c-1", "chunks=2 hold=600 nonce=q");
    let turn = tokio::spawn({
        let client = client.clone();
        async move { say.run(&client).await.unwrap() }
    });
    for death in 1..=3 {
        cluster.until_begun("c-1").await;
        cluster.kill_worker(0);
        if death < 3 {
            let charged = death.to_string();
            poll::until("the death to be charged", || async {
                let now = cluster.turn("c-1", "charged");
                if now == charged { Ok(()) } else { Err(now) }
            })
            .await;
            cluster.start_worker().await;
        }
    }
    let done = turn.await.unwrap();
    assert_eq!((done.state, done.boundaries), (TaskState::Failed, 2));
    let task = client.get(0, &done.task).await.unwrap();
    assert_eq!(task.metadata.unwrap()[TURN]["reason"], "attempts_exhausted");
    assert_eq!(cluster.dead_letters(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_survive_the_death_of_their_workers_at_any_moment() {
    let mut random = Random::new();
    let mut cluster = Cluster::setup().start().await;
    let client = cluster.client();
    let mut undisturbed = Vec::new();
    for kind in 0..2 {
        let say = say(0, kind);
        let (_, task) = say.checked(&client).await;
        undisturbed.push(without_ids(&task, &say.expect().nonce));
    }

    let mut restarts = 0;
    for round in 1..=ROUNDS {
        let mut turns = JoinSet::new();
        for turn in 0..TURNS {
            let (say, client) = (say(round, turn), client.clone());
            turns.spawn(async move { (turn, say.checked(&client).await, say.expect().nonce) });
        }
        // Two deaths at random moments of the turns' life; a fresh worker follows each.
        for _ in 0..2 {
            let moment = Duration::from_millis(random.below(TURN_MS / 2));
            tokio::time::sleep(moment).await; // pace: kills come at random moments
            let victims = u64::try_from(cluster.workers.len()).unwrap();
            let victim = usize::try_from(random.below(victims)).unwrap();
            cluster.kill_worker(victim);
            cluster.start_worker().await;
        }
        for (turn, (done, task), nonce) in turns.join_all().await {
            restarts += done.boundaries;
            assert_eq!(without_ids(&task, &nonce), undisturbed[turn % 2]);
        }
    }
    assert!(restarts > 0, "no kill hit a turn: the test has tested nothing");
    assert_eq!(cluster.dead_letters(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_task_whose_gateway_was_killed_is_found_as_a_tasks() {
    let file = "[agents.demo]\nkind = \"demo\"\ndirect = true\n";
    let mut cluster = Cluster::setup().config(file).gateways(2).workers(1).start().await;
    let client = cluster.client();
    let params = json!({ "message": {
        "messageId": message_id(), "role": "ROLE_USER", "contextId": "c-1",
        "parts": [{ "text": "chunks=0 direct=1 hold=5" }],
    } });
    let waiting = tokio::spawn({
        let (client, params) = (client.clone(), params.clone());
        async move { client.call::<Value>(0, "SendMessage", &params).await }
    });
    cluster.until_held("c-1").await;
    cluster.kill_gateway(0);
    assert!(waiting.await.unwrap().is_err());
    let task = poll::until("the task to be listed", || async {
        let listed: Value = client.call(1, "ListTasks", &json!({})).await.unwrap();
        let task = listed["tasks"].get(0).cloned();
        task.filter(|task| task["status"]["state"] == "TASK_STATE_COMPLETED")
            .ok_or(listed)
    })
    .await;
    assert!(task["status"]["message"].is_object(), "{task}");
    // Beside it, one that somebody waits for is no task.
    let answer: Value = client.call(1, "SendMessage", &params).await.unwrap();
    assert!(answer["message"].is_object(), "{answer}");
    let listed: Value = client.call(1, "ListTasks", &json!({})).await.unwrap();
    assert_eq!(listed["totalSize"], 1, "{listed}");
}
