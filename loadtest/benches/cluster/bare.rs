//! The floor of HTTP: a bare axum handler that answers or streams what a turn does, and nothing behind it. It runs as a
//! process of its own, which is this program again: memory is measured by process.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use tokio::sync::watch;

const ASKED: &str = "RELEVO_BENCH_BARE";

pub fn is_asked_for() -> bool {
    std::env::var_os(ASKED).is_some()
}

/// Serves until it is killed; says where on stdout.
pub fn serve() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (never, _) = watch::channel(());
        let router = Router::new()
            .route("/idle", get(idle))
            .route("/", post(async || r#"{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}}}"#))
            .with_state(never);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
        axum::serve(listener, router).await.unwrap();
    });
}

/// One event, then silence with a sign of life now and then.
async fn idle(State(never): State<watch::Sender<()>>) -> Response {
    let mut told = never.subscribe();
    let first = futures_util::stream::once(async { Ok::<_, Infallible>(Event::default().id("1").data("{}")) });
    let rest = futures_util::stream::once(async move {
        let _ = told.changed().await;
        Ok(Event::default())
    });
    let keep = KeepAlive::new().interval(Duration::from_secs(15));
    Sse::new(futures_util::StreamExt::chain(first, rest))
        .keep_alive(keep)
        .into_response()
}

/// Such a process.
pub struct Bare {
    child: Child,
    pub address: SocketAddr,
}

impl Bare {
    pub fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(ASKED, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
        Self {
            child,
            address: line.trim().parse().unwrap(),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
