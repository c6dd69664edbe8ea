//! How long a page of ListTasks takes when there are many tasks.

use std::time::Instant;

use relevo_loadtest::client::Client;
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::rounds::drive;
use crate::table::{figure, print};

/// Tasks of a page, and pages that are read of each listing.
const PAGE: usize = 50;
const PAGES: usize = 100;

pub async fn run(machine: &Machine, tasks: u64) -> Value {
    let url = machine.url();
    drive(
        &url,
        &format!("--mode send --contexts 256 --duration 1h --turns {tasks}"),
    )
    .await;
    let client = Client::new(vec![url]).unwrap();
    let newest: Value = client.call(0, "ListTasks", &json!({ "pageSize": 1 })).await.unwrap();
    assert_eq!(newest["totalSize"], tasks);
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for (what, filter) in [
        ("none", json!({})),
        ("status", json!({ "status": "TASK_STATE_COMPLETED" })),
        // It passes everything, which has to be counted.
        (
            "since a time",
            json!({ "statusTimestampAfter": "2000-01-01T00:00:00Z" }),
        ),
        ("context", json!({ "contextId": newest["tasks"][0]["contextId"] })),
    ] {
        let mut times = walk(&client, filter).await;
        let pages = times.len();
        times.sort_by(f64::total_cmp);
        let quantile = |part: usize| times[(pages - 1) * part / 100];
        rows.push(vec![
            what.to_owned(),
            pages.to_string(),
            figure(quantile(50)),
            figure(quantile(99)),
        ]);
        values.push(json!({ "filter": what, "pages": pages, "p50_ms": quantile(50), "p99_ms": quantile(99) }));
    }
    let title = format!("A page of {PAGE} of ListTasks among {tasks} tasks");
    print(&title, &["filter", "pages", "p50 ms", "p99 ms"], &rows);
    json!({ "tasks": tasks, "listings": values })
}

/// The time of each page, ms.
async fn walk(client: &Client, filter: Value) -> Vec<f64> {
    let mut times = Vec::new();
    let mut token = json!("");
    while times.len() < PAGES {
        let mut params = filter.clone();
        params["pageSize"] = PAGE.into();
        params["pageToken"] = token;
        let begun = Instant::now();
        let page: Value = client.call(0, "ListTasks", &params).await.unwrap();
        times.push(begun.elapsed().as_secs_f64() * 1_000.0);
        token = page["nextPageToken"].clone();
        if token == "" {
            break;
        }
        assert_eq!(page["tasks"].as_array().unwrap().len(), PAGE);
    }
    times
}
