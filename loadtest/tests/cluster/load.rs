//! The load driver itself, as a process, on a whole cluster.

use relevo_testkit::{Process, binary};
use serde_json::Value;

use crate::fixture::Cluster;
use crate::wire::LIMIT;

/// The load driver at work, checking every turn.
pub fn drive(cluster: &Cluster, args: &[&str]) -> Process {
    let urls = cluster.urls();
    let mut all = vec!["--verify", "--json", "--url"];
    all.extend(urls.iter().map(String::as_str));
    all.extend(args);
    Process::spawn(binary("relevo-loadtest"), &all, &[])
}

/// Its report: nothing was lost, and no turn that was accepted has failed.
pub async fn report(driver: Process) -> Value {
    let status = driver.exited(2 * LIMIT).await;
    assert!(status.success(), "{status}\n{}", driver.log());
    let report: Value = serde_json::from_str(&driver.stdout()).unwrap();
    assert_eq!((&report["good"], &report["failed"]), (&true.into(), &0.into()));
    report
}

pub async fn verified(cluster: &Cluster, args: &[&str]) -> Value {
    let report = report(drive(cluster, args)).await;
    assert_eq!(report["refused"], 0);
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_streaming_contexts_are_clean() {
    let cluster = Cluster::setup().start().await;
    let args = [
        "--contexts",
        "200",
        "--turns",
        "1000",
        "--duration",
        "2m",
        "--followups",
        "1",
    ];
    assert_eq!(verified(&cluster, &args).await["verified"], 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_loop_of_conversations_and_artifacts_is_clean() {
    let cluster = Cluster::setup().start().await;
    let args = [
        "--mode",
        "send",
        "--contexts",
        "50",
        "--rate",
        "50",
        "--duration",
        "4s",
        "--followups",
        "2",
    ];
    let texts = [
        "--text",
        "chunks=3 end=input-required nonce={nonce}",
        "--text",
        "chunks=4 artifact=chunks nonce={nonce}",
        "--text",
        "chunks=4 artifact=file nonce={nonce}",
    ];
    let report = verified(&cluster, &[&args[..], &texts].concat()).await;
    assert_eq!(report["verified"], 200);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by `make crowd`: it takes the whole machine for a minute"]
async fn two_thousand_streaming_contexts_are_clean() {
    let cluster = Cluster::setup().start().await;
    let args = ["--contexts", "2000", "--turns", "10000", "--duration", "4m"];
    assert_eq!(verified(&cluster, &args).await["verified"], 10_000);
}
