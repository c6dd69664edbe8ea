//! The same conversation on other ground: a Redis in cluster mode, and behind the proxy configuration that is deployed.

use a2a::TaskState;
use relevo_loadtest::expect::marks;
use relevo_loadtest::verify::check_task;
use relevo_testkit::haproxy::Backend;
use relevo_testkit::{HaProxy, RedisServer};

use crate::fixture::Cluster;
use crate::wire::{Say, judge, task_of, texts};

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_on_a_redis_in_cluster_mode() {
    let redis = RedisServer::builder().append_only().cluster_node();
    let mut cluster = Cluster::setup().redis(redis).workers(2).start().await;
    let client = cluster.client();
    let first = Say::new("c-1", "chunks=5 nonce=a end=input-required");
    let (done, _) = first.checked(&client).await;

    // The worker of the second turn dies; the third is blocking.
    let second = Say::new("c-1", "chunks=20 delay=50 nonce=b end=input-required")
        .task(&done.task)
        .at(1);
    let turn = tokio::spawn({
        let (second, client) = (second.clone(), client.clone());
        async move { second.run(&client).await.unwrap() }
    });
    let holder = cluster.until_held("c-1").await;
    cluster.kill_worker(holder);
    let survived = turn.await.unwrap();
    assert_eq!(
        (survived.violations, survived.task.as_str()),
        (vec![], done.task.as_str())
    );
    let third = Say::new("c-1", "chunks=5 nonce=c").task(&done.task).blocking();
    third.run(&client).await.unwrap();

    let task = client.get(0, &done.task).await.unwrap();
    let turns = [first.expect(), second.expect(), third.expect()];
    assert_eq!(check_task(&task, "c-1", &turns), []);
    assert_eq!(task.status.state, TaskState::Completed);
}

/// The only test of a minute: it shows that a proxy neither holds events back nor takes silence for death.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_a_minute_with_silences_passes_the_proxy_as_it_comes() {
    let cluster = Cluster::setup().workers(1).start().await;
    let [one, two] = [0, 1].map(|gateway: usize| {
        let member = &cluster.gateways[gateway];
        Backend {
            listen: member.ready.listen.unwrap(),
            admin: member.admin(),
        }
    });
    let proxy = HaProxy::start([one, two]);
    let client = relevo_loadtest::client::Client::new(vec![proxy.url()])
        .unwrap()
        .watched(judge);
    let say = Say::new("c-1", "chunks=2 delay=20000 hold=20 nonce=q");
    let (mut stream, first) = say.open(&client).await;
    let task = task_of(&first);
    let mut numbers = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        let heard = texts(&event.event);
        let heard: Vec<u64> = heard
            .iter()
            .flat_map(|text| marks(text))
            .map(|mark| mark.number)
            .collect();
        if heard.is_empty() {
            continue;
        }
        numbers.extend(heard);
        // It has come while the silence after it lasts: nothing further has been said yet.
        let said = cluster.journal(&task.id);
        assert_eq!(said.last().map(|entry| &entry.event), Some(&event.event));
    }
    assert_eq!(numbers, [0, 1]);
    assert!(stream.comments() >= 3, "{} comments", stream.comments());
    assert_eq!(
        check_task(&client.get(0, &task.id).await.unwrap(), "c-1", &[say.expect()]),
        []
    );
}
