//! SIGKILL of workers at random points under many turns.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::fixture::Cluster;
use crate::wire::{Say, without_ids};

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
    let text = format!("chunks={CHUNKS} delay={} nonce={nonce}", TURN_MS / CHUNKS);
    Say::new(&format!("c-{round}-{turn}"), &text).at(turn)
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_survive_the_death_of_their_workers_at_any_moment() {
    let mut random = Random::new();
    let mut cluster = Cluster::setup().start().await;
    let client = cluster.client();
    let undisturbed = say(0, 0);
    let (_, task) = undisturbed.checked(&client).await;
    let expected = without_ids(&task, &undisturbed.expect().nonce);

    let mut restarts = 0;
    for round in 1..=ROUNDS {
        let mut turns = JoinSet::new();
        for turn in 0..TURNS {
            let (say, client) = (say(round, turn), client.clone());
            turns.spawn(async move { (say.checked(&client).await, say.expect().nonce) });
        }
        // Two deaths at random moments of the turns' life; a fresh worker follows each.
        for _ in 0..2 {
            let moment = Duration::from_millis(random.below(TURN_MS / 2));
            tokio::time::sleep(moment).await;
            let victims = u64::try_from(cluster.workers.len()).unwrap();
            let victim = usize::try_from(random.below(victims)).unwrap();
            cluster.kill_worker(victim);
            cluster.start_worker().await;
        }
        for ((done, task), nonce) in turns.join_all().await {
            restarts += done.boundaries;
            assert_eq!(without_ids(&task, &nonce), expected);
        }
    }
    assert!(restarts > 0, "no kill hit a turn: the test has tested nothing");
    assert_eq!(cluster.dead_letters(), 0);
}
