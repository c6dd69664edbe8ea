//! Files of agents in a whole cluster: any gateway serves what any worker stored, kills lose none of it, and it goes with its task.

use std::fs;
use std::path::Path;

use a2a::{Part, PartContent};
use relevo_testkit::{Scratch, poll};

use crate::fixture::{Cluster, Setup};
use crate::wire::Say;

const FILE: &str = "artifact=file chunks=4 size=20000 nonce=q";

fn setup(folder: &Path) -> Setup {
    Cluster::setup()
        .set("RELEVO_ARTIFACTS_STORE", &format!("file://{}", folder.display()))
        .set("RELEVO_ARTIFACTS_URL_BASE", "http://files.example")
        .set("RELEVO_ARTIFACTS_INLINE_MAX", "16KiB")
}

fn only(task: &a2a::Task) -> &Part {
    let artifacts = task.artifacts.as_deref().unwrap_or_default();
    &artifacts[0].parts[0]
}

/// What a gateway serves under the path of the part's URL.
async fn fetched(gateway: &str, part: &Part) -> Vec<u8> {
    let PartContent::Url(url) = &part.content else {
        panic!("{part:?}")
    };
    let path = url.strip_prefix("http://files.example").unwrap();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let response = http.get(format!("{gateway}{path}")).send().await.unwrap();
    response.error_for_status().unwrap().bytes().await.unwrap().to_vec()
}

async fn ended(cluster: &Cluster, task: &str) -> a2a::Task {
    poll::until("the task ends", async || {
        let params = serde_json::json!({ "id": task });
        let task: a2a::Task = cluster.client().call(0, "GetTask", &params).await.unwrap();
        if task.status.state.is_terminal() {
            Ok(task)
        } else {
            Err(format!("{task:?}"))
        }
    })
    .await
}

/// Without what a writer that died has left beside them.
fn files(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| !name.to_string_lossy().contains('#')).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_gateway_serves_what_a_worker_stored() {
    let folder = Scratch::new("artifacts");
    let cluster = setup(folder.path()).start().await;
    let task = Say::new("c-1", FILE).begin(&cluster.client()).await;
    let task = ended(&cluster, &task.id).await;
    let part = only(&task);
    let size = part.metadata.as_ref().unwrap()["byteSize"].as_u64().unwrap();
    for gateway in cluster.urls() {
        assert_eq!(fetched(&gateway, part).await.len() as u64, size);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_costs_no_file() {
    let folder = Scratch::new("artifacts");
    let mut cluster = setup(folder.path()).workers(2).start().await;
    let calm = Say::new("c-0", FILE).begin(&cluster.client()).await;
    let expected = fetched(&cluster.urls()[0], only(&ended(&cluster, &calm.id).await)).await;
    // It goes on after the file, which may or may not be in the journal when the kill comes.
    let text = format!("{FILE} hold=600");
    let task = Say::new("c-1", &text).begin(&cluster.client()).await;
    let place = folder.path().join(&task.id);
    poll::until("a file", async || if place.exists() { Ok(()) } else { Err("none") }).await;
    let holder = cluster.until_held("c-1").await;
    cluster.kill_worker(holder);
    poll::until("another worker begins", async || {
        let opened = cluster.turn("c-1", "opened");
        if opened == "2" { Ok(()) } else { Err(opened) }
    })
    .await;
    let file = async || {
        let params = serde_json::json!({ "id": task.id });
        let task: a2a::Task = cluster.client().call(0, "GetTask", &params).await.unwrap();
        let part = task
            .artifacts
            .as_deref()
            .unwrap_or_default()
            .first()
            .map(|a| a.parts[0].clone());
        part.ok_or("none yet")
    };
    let part = poll::until("the file of the second attempt", file).await;
    assert_eq!(fetched(&cluster.urls()[1], &part).await, expected);
    assert_eq!(files(&place), 1);
    let params = serde_json::json!({ "id": task.id });
    let _canceled: a2a::Task = cluster.client().call(0, "CancelTask", &params).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_with_their_task() {
    let folder = Scratch::new("artifacts");
    let cluster = setup(folder.path())
        .set("RELEVO_RETENTION_TASK", "2s")
        .set("RELEVO_RETENTION_JOURNAL", "1s")
        .set("RELEVO_RETENTION_IDEMPOTENCY", "2s")
        .start()
        .await;
    for n in 0..3 {
        Say::new(&format!("c-{n}"), FILE).begin(&cluster.client()).await;
    }
    poll::until("the files", async || match files(folder.path()) {
        3 => Ok(()),
        other => Err(other),
    })
    .await;
    poll::until("nothing", async || match files(folder.path()) {
        0 => Ok(()),
        other => Err(other),
    })
    .await;
    assert!(cluster.metric("relevo_janitor_reaped_total").await >= 3.0);
}
