//! The admin listener: /livez, /readyz and /metrics, for operators and their machines.
//!
//! Owns its router and nothing else; what it shows is passed in. It has no authentication, so it is bound to loopback
//! by default. It answers until its handle is dropped, so that a draining process can still be watched. Called from
//! each process' `app.rs`, which binds the listener first (see [`super::listen`]).

use std::fmt;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::metrics::{MetricsError, ProcessMetrics, Registry, encode};
use super::readiness::Readiness;
use super::tasks::{self, AbortOnDrop, Kind, Tasks, panic_text};

/// Longest a scrape waits for one hook. Prometheus gives up after 10 s by default, and values of the process itself
/// must not be lost with Redis.
const HOOK_LIMIT: Duration = Duration::from_secs(2);

type HookFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Something to be brought up to date before metrics are read.
struct Hook {
    name: &'static str,
    refresh: Box<dyn Fn() -> HookFuture + Send + Sync>,
}

/// What the admin listener shows.
pub struct Admin {
    registries: Vec<Registry>,
    readiness: Vec<Readiness>,
    hooks: Vec<Hook>,
    process: ProcessMetrics,
}

impl fmt::Debug for Admin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hooks: Vec<_> = self.hooks.iter().map(|hook| hook.name).collect();
        formatter
            .debug_struct("Admin")
            .field("readiness", &self.readiness)
            .field("hooks", &hooks)
            .finish_non_exhaustive()
    }
}

impl Admin {
    /// Shows what the process measures about itself, as `component`: `gateway`, `worker` or `dev`.
    ///
    /// # Errors
    /// When a metric's declaration is wrong.
    pub fn new(component: &str) -> Result<Self, MetricsError> {
        let registry = Registry::new();
        let process = ProcessMetrics::of(component, &registry)?;
        Ok(Self {
            registries: vec![registry],
            readiness: Vec::new(),
            hooks: Vec::new(),
            process,
        })
    }

    /// Shows the metrics of `registry` too. Several parts of one process (`relevo dev`) tell theirs apart by a label of
    /// the registry.
    #[must_use]
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registries.push(registry);
        self
    }

    /// Is ready only when `readiness` is.
    #[must_use]
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness.push(readiness);
        self
    }

    /// Calls `refresh` before metrics are read, for values that lie elsewhere (cluster gauges). One that takes longer
    /// than 2 s is given up for that scrape, so it must be safe to drop at any await. Caching is its own matter.
    #[must_use]
    pub fn hook<F>(mut self, name: &'static str, refresh: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.hooks.push(Hook {
            name,
            refresh: Box::new(move || Box::pin(refresh())),
        });
        self
    }

    /// Answers on `listener` for as long as the returned value lives.
    pub fn serve(self, listener: TcpListener, tasks: &Tasks) -> AbortOnDrop<()> {
        let router = self.router();
        let serving = async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the admin listener failed");
            }
        };
        tasks::background(tasks, "admin", Kind::Essential, serving)
    }

    fn router(self) -> Router {
        Router::new()
            // That it answers at all is the sign of life: it runs on the runtime everything else runs on.
            .route("/livez", get(|| ready("live\n")))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(Arc::new(self))
    }
}

async fn readyz(State(admin): State<Arc<Admin>>) -> (StatusCode, String) {
    let unmet: Vec<_> = admin.readiness.iter().flat_map(Readiness::unmet).collect();
    if unmet.is_empty() {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    let lines: Vec<String> = unmet
        .iter()
        .map(|unmet| format!("{}: {}\n", unmet.condition, unmet.why))
        .collect();
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("not ready\n{}", lines.concat()),
    )
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    admin.process.refresh();
    join_all(admin.hooks.iter().map(|hook| run_hook(hook, HOOK_LIMIT))).await;
    match encode(&admin.registries) {
        Ok(text) => ([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn run_hook(hook: &Hook, limit: Duration) {
    let refreshing = async { (hook.refresh)().await };
    match timeout(limit, AssertUnwindSafe(refreshing).catch_unwind()).await {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => tracing::error!(hook = hook.name, panic = panic_text(&*panic), "a scrape hook panicked"),
        Err(_) => tracing::warn!(
            hook = hook.name,
            "a scrape hook took too long; its values are those of before"
        ),
    }
}

#[cfg(test)]
mod tests;
