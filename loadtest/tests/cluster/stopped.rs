//! Workers that lose their leases without dying: what they still write is refused.

use a2a::{Role, Task};
use relevo_loadtest::expect::marks;
use relevo_testkit::poll;

use crate::fixture::{Cluster, Entry};
use crate::points::sha;
use crate::wire::{Say, texts};

/// Long enough that the second attempt still runs when the first worker is back.
const TEXT: &str = "chunks=160 delay=50 nonce=q";

/// After the only boundary each number comes once, in order: nothing of the old attempt is among them.
fn assert_one_attempt_after_the_boundary(journal: &[Entry]) {
    let boundaries: Vec<usize> = journal
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.kind == "1.b")
        .map(|(place, _)| place)
        .collect();
    assert_eq!(boundaries.len(), 1);
    let after: Vec<String> = journal[boundaries[0]..]
        .iter()
        .flat_map(|entry| texts(&entry.event))
        .collect();
    let numbers: Vec<u64> = after
        .iter()
        .flat_map(|text| marks(text))
        .map(|mark| mark.number)
        .collect();
    assert_eq!(numbers, (0..160).collect::<Vec<u64>>());
    let ids: Vec<u64> = journal
        .iter()
        .map(|entry| entry.id.split_once('-').unwrap().0.parse().unwrap())
        .collect();
    assert_eq!(ids, (1..=u64::try_from(ids.len()).unwrap()).collect::<Vec<_>>());
}

fn numbers_of(task: &Task) -> Vec<u64> {
    let messages = task.history.iter().flatten().chain(&task.status.message);
    let parts = messages
        .filter(|message| message.role == Role::Agent)
        .flat_map(|message| &message.parts);
    parts
        .filter_map(|part| part.as_text())
        .flat_map(marks)
        .map(|mark| mark.number)
        .collect()
}

async fn until_other_holds(cluster: &Cluster, old: &str) {
    poll::until("another worker to take over", || async {
        match cluster.holder("c-1") {
            Some(place) if cluster.workers[place].name != old && cluster.turn("c-1", "begun") == "1" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_past_its_lease_writes_nothing_when_it_wakes() {
    let cluster = Cluster::setup().workers(2).start().await;
    let client = cluster.client();
    let turn = tokio::spawn(async move { Say::new("c-1", TEXT).checked(&client).await });
    let holder = cluster.until_held("c-1").await;
    // Some numbers are said that will be void.
    let task = cluster.until_said("c-1", 10).await;
    let stopped = &cluster.workers[holder];
    assert!(stopped.process.sigstop());
    until_other_holds(&cluster, &stopped.name).await;
    // Who reads the task now sees nothing of the attempt that is void.
    let spoke = |journal: &[Entry]| journal.last().is_some_and(|entry| !texts(&entry.event).is_empty());
    cluster.until_journal(&task, spoke).await;
    for gateway in 0..2 {
        let numbers = numbers_of(&cluster.client().get(gateway, &task).await.unwrap());
        assert_eq!(numbers, (0..u64::try_from(numbers.len()).unwrap()).collect::<Vec<_>>());
    }
    assert!(stopped.process.sigcont());
    poll::until("a write to be refused", || async {
        let refused = stopped.metric("relevo_worker_fenced_total").await;
        if refused >= 1.0 { Ok(()) } else { Err(refused) }
    })
    .await;
    let (done, _) = turn.await.unwrap();
    assert_eq!(done.boundaries, 1);
    assert_one_attempt_after_the_boundary(&cluster.journal(&done.task));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cut_off_worker_had_sent_is_refused_when_it_arrives() {
    let mut cluster = Cluster::setup().gateways(1).workers(0).start().await;
    let (old_way, new_way) = (cluster.proxy(), cluster.proxy());
    cluster.start_worker_at(&old_way.url()).await;
    let client = cluster.client();
    let turn = tokio::spawn(async move { Say::new("c-1", TEXT).checked(&client).await });
    // Some numbers are said that will be void.
    let task = cluster.until_said("c-1", 10).await;
    // Its writes wait in the network until another worker holds the lease and has written nothing yet: what they follow is
    // still the end of the journal, and only the fence can tell that they are late.
    old_way.pause();
    new_way.swallow_request(sha(&cluster.redis, "emit").as_bytes());
    cluster.start_worker_at(&new_way.url()).await;
    poll::until("the new worker to be about to write", || async {
        match cluster.holder("c-1") {
            Some(1) if new_way.swallowed() > 0 => Ok(()),
            other => Err(format!("{other:?}, {} held", new_way.swallowed())),
        }
    })
    .await;
    let before = cluster.journal(&task).len();
    old_way.resume();
    poll::until("a write to be refused", || async {
        let refused = cluster.workers[0].metric("relevo_worker_fenced_total").await;
        if refused >= 1.0 { Ok(()) } else { Err(refused) }
    })
    .await;
    assert_eq!(cluster.journal(&task).len(), before, "a late write has landed");
    new_way.forget_needle();
    new_way.cut_all();
    turn.await.unwrap();
    assert_one_attempt_after_the_boundary(&cluster.journal(&task));
}
