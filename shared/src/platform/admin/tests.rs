use std::future::pending;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::platform::listen::bind;
use crate::platform::shutdown::Shutdown;

crate::metrics! {
    /// Examples.
    struct Examples {
        /// Turns queued.
        backlog: Gauge = "relevo_cluster_backlog_turns",
    }
}

struct Served {
    address: SocketAddr,
    shutdown: Shutdown,
    _serving: AbortOnDrop<()>,
}

async fn served(build: impl FnOnce(Admin, Shutdown) -> Admin) -> Served {
    let shutdown = Shutdown::new();
    let admin = build(Admin::new("gateway").unwrap(), shutdown.clone());
    let listener = bind("admin.listen", SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .unwrap();
    let address = listener.local_addr().unwrap();
    let serving = admin.serve(listener, &Tasks::new(shutdown.clone()));
    Served {
        address,
        shutdown,
        _serving: serving,
    }
}

impl Served {
    /// The status line's code and the body.
    async fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

#[tokio::test]
async fn a_process_that_answers_is_live_even_when_it_is_not_ready() {
    let served = served(|admin, shutdown| admin.readiness(Readiness::new(shutdown, &["redis"]))).await;
    assert_eq!(served.get("/livez").await, (200, "live\n".to_owned()));
    assert_eq!(
        served.get("/readyz").await,
        (503, "not ready\nredis: not yet\n".to_owned())
    );
}

#[tokio::test]
async fn readiness_follows_its_conditions_and_ends_with_draining() {
    let mut kept = None;
    let served = served(|admin, shutdown| {
        let readiness = kept.insert(Readiness::new(shutdown, &["redis"]));
        admin.readiness(readiness.clone())
    })
    .await;
    kept.unwrap().meet("redis");
    assert_eq!(served.get("/readyz").await, (200, "ready\n".to_owned()));
    served.shutdown.trigger();
    assert_eq!(
        served.get("/readyz").await,
        (503, "not ready\ndraining: the process is stopping\n".to_owned())
    );
}

#[tokio::test]
async fn hooks_bring_their_values_up_to_date_before_a_scrape() {
    let served = served(|admin, _| {
        let registry = Registry::new();
        let examples = Examples::register(&registry).unwrap();
        admin.registry(registry).hook("cluster", move || {
            let examples = examples.clone();
            async move { examples.backlog.inc() }
        })
    })
    .await;
    for count in 1..=2 {
        let (status, text) = served.get("/metrics").await;
        assert_eq!(status, 200);
        assert!(
            text.contains(&format!("relevo_cluster_backlog_turns {count}\n")),
            "{text}"
        );
        assert!(text.contains("process_open_fds "), "{text}");
    }
}

#[tokio::test]
async fn a_hook_that_panics_costs_only_its_own_values() {
    let served = served(|admin, _| admin.hook("broken", || async { panic!("boom") })).await;
    let (status, text) = served.get("/metrics").await;
    assert!(status == 200 && text.contains("relevo_build_info{"), "{status} {text}");
}

#[tokio::test]
async fn a_hook_that_hangs_is_given_up() {
    let hook = Hook {
        name: "slow",
        refresh: Box::new(|| Box::pin(pending())),
    };
    run_hook(&hook, Duration::from_millis(1)).await;
}

#[tokio::test]
async fn there_is_nothing_else() {
    let served = served(|admin, _| admin).await;
    assert_eq!(served.get("/").await.0, 404);
    assert_eq!(served.get("/debug").await.0, 404);
}
