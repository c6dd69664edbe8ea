//! Streams whose doorbell is silent, and readers that do not read.

use relevo_loadtest::verify::{StreamCheck, check_task};
use relevo_testkit::{FaultProxy, poll};

use crate::fixture::Cluster;
use crate::wire::{Say, task_of};

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_completes_although_the_doorbell_connection_is_frozen() {
    let mut cluster = Cluster::setup().gateways(0).workers(1).start().await;
    let proxy = FaultProxy::start(cluster.redis.upstream());
    cluster.start_gateway_at(&proxy.url()).await;
    let client = cluster.client();
    // The chunk is said after the doorbell connection has been asked for a sign of life, which is its last.
    let say = Say::new("c-1", "chunks=1 delay=6000 nonce=q");
    let turn = tokio::spawn(async move { say.checked(&client).await });
    cluster.until_held("c-1").await;
    proxy.swallow_reply_to(b"PING");
    poll::until("the connection to freeze", || async {
        if proxy.swallowed() > 0 { Ok(()) } else { Err("not yet") }
    })
    .await;
    assert_eq!(
        cluster.turn("c-1", "begun"),
        "",
        "the agent spoke before the connection was frozen"
    );
    turn.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_sleeps_through_ten_thousand_updates_gets_them_whole_and_alone() {
    let cluster = Cluster::setup().gateways(1).start().await;
    let client = cluster.client();
    let slow = Say::new("c-slow", "chunks=10000 size=1000 nonce=s");
    let (mut stream, first) = slow.open(&client).await;
    let mut check = StreamCheck::new(slow.expect(), "c-slow");
    check.event(first.id.as_deref(), &first.event);

    // It does not read, and its neighbours at the same gateway do not notice.
    for turn in 0..20 {
        Say::new(&format!("c-{turn}"), &format!("chunks=5 nonce=n.{turn}"))
            .checked(&client)
            .await;
    }
    cluster.until_over("c-slow").await;
    while let Some(event) = stream.next().await.unwrap() {
        check.event(event.id.as_deref(), &event.event);
    }
    assert_eq!(check.finish(), []);
    let task = client.get(0, &task_of(&first).id).await.unwrap();
    assert_eq!(check_task(&task, "c-slow", &[slow.expect()]), []);
}
