//! Accepting connections and serving HTTP/1.1 on them, or HTTP/2 for gRPC, within their limits.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use relevo_shared::platform::metrics::Gauge;
use relevo_shared::platform::tasks::{self, AbortOnDrop, Kind, Tasks};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_io_timeout::TimeoutStream;

use crate::services::Services;

/// The pause after an accept that failed for want of something, usually file descriptors: without it the loop would spin.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Accepting,
    Stopping,
    Cutting,
}

/// A listener at work.
#[derive(Debug)]
pub(super) struct Accepting {
    phase: watch::Sender<Phase>,
    cut_off: Arc<AtomicUsize>,
    _task: AbortOnDrop<()>,
}

impl Accepting {
    /// Accepts nothing more; connections end after the request they serve.
    pub(super) fn stop(&self) {
        self.phase.send_replace(Phase::Stopping);
    }

    /// Ends every connection in the middle of what it serves.
    pub(super) fn cut_off(&self) {
        self.phase.send_replace(Phase::Cutting);
    }

    /// How many connections were ended so.
    pub(super) fn were_cut_off(&self) -> usize {
        self.cut_off.load(Ordering::Relaxed)
    }
}

/// What is spoken on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Runs what a connection of HTTP/2 runs beside itself: its requests.
#[derive(Clone)]
struct Spawn(Tasks);

impl<F> Executor<F> for Spawn
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        tasks::spawn(&self.0, "grpc", Kind::BestEffort, async move {
            future.await;
        });
    }
}

enum Http {
    One(http1::Builder),
    Two(http2::Builder<Spawn>),
}

impl Http {
    fn new(protocol: Protocol, services: &Services) -> Self {
        let settings = &services.settings.gateway;
        match protocol {
            Protocol::Http1 => {
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new())
                    .header_read_timeout(settings.header_timeout)
                    .max_buf_size(settings.header_limit.as_len());
                Self::One(http)
            }
            Protocol::Http2 => {
                let mut http = http2::Builder::new(Spawn(services.tasks.clone()));
                let head = u32::try_from(settings.header_limit.as_len()).unwrap_or(u32::MAX);
                http.timer(TokioTimer::new())
                    .keep_alive_interval(services.settings.stream.keep_alive)
                    .keep_alive_timeout(settings.header_timeout)
                    .max_header_list_size(head);
                Self::Two(http)
            }
        }
    }
}

struct Server {
    http: Http,
    service: TowerToHyperService<Router>,
    services: Services,
    phase: watch::Receiver<Phase>,
    cut_off: Arc<AtomicUsize>,
}

/// Begins to accept.
pub(super) fn start(listener: TcpListener, protocol: Protocol, router: Router, services: &Services) -> Accepting {
    let (phase, phases) = watch::channel(Phase::Accepting);
    let cut_off = Arc::new(AtomicUsize::new(0));
    let server = Arc::new(Server {
        http: Http::new(protocol, services),
        service: TowerToHyperService::new(router),
        services: Services::clone(services),
        phase: phases,
        cut_off: Arc::clone(&cut_off),
    });
    let task = tasks::background(&services.tasks, "accept", Kind::Essential, accept(listener, server));
    Accepting {
        phase,
        cut_off,
        _task: task,
    }
}

async fn accept(listener: TcpListener, server: Arc<Server>) {
    let most = server
        .services
        .settings
        .gateway
        .max_connections
        .get()
        .min(Semaphore::MAX_PERMITS);
    let permits = Arc::new(Semaphore::new(most));
    let mut phase = server.phase.clone();
    loop {
        // Neither loses anything when it is dropped: a connection that is not accepted stays in the backlog.
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            next = next => next,
            _ = phase.wait_for(|phase| *phase >= Phase::Stopping) => return,
        };
        match (permit, accepted) {
            (Ok(permit), Ok((stream, _))) => {
                let connection = connection(Arc::clone(&server), stream, permit);
                tasks::spawn(&server.services.tasks, "connection", Kind::BestEffort, connection);
            }
            (_, Err(error)) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a connection cannot be accepted"
                );
                tokio::time::sleep(PAUSE).await;
            }
            (Err(_closed), _) => return,
        }
    }
}

/// Counts a connection while it is open.
struct Open(Gauge);

impl Open {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

async fn connection(server: Arc<Server>, stream: TcpStream, _permit: OwnedSemaphorePermit) {
    let _open = Open::new(&server.services.metrics.connections);
    // Without it an event waits some 40 ms for the acknowledgement of the one before.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(error = &error as &dyn std::error::Error, "TCP_NODELAY cannot be set");
    }
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(server.services.settings.gateway.write_timeout));
    let (io, service) = (TokioIo::new(Box::pin(stream)), server.service.clone());
    match &server.http {
        Http::One(http) => {
            let connection = pin!(http.serve_connection(io, service));
            serve(&server, connection, http1::Connection::graceful_shutdown).await;
        }
        Http::Two(http) => {
            // Boxed: larger, and it would be held room for beside every connection of HTTP/1.1.
            let mut connection = Box::pin(http.serve_connection(io, service));
            serve(&server, connection.as_mut(), http2::Connection::graceful_shutdown).await;
        }
    }
}

/// Drives a connection to its end; `finish` lets it end after what it serves.
async fn serve<C>(server: &Server, mut connection: Pin<&mut C>, finish: impl Fn(Pin<&mut C>))
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut phase = server.phase.clone();
    let mut wanted = Phase::Stopping;
    loop {
        // A watch loses nothing when it is dropped; the connection is kept.
        let reached = tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error = &error as &dyn std::error::Error, "a connection broke");
                }
                return;
            }
            reached = phase.wait_for(|phase| *phase >= wanted) => reached.map_or(Phase::Cutting, |phase| *phase),
        };
        if reached == Phase::Cutting {
            server.cut_off.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // Ends it after the request it serves, at once if there is none.
        finish(connection.as_mut());
        wanted = Phase::Cutting;
    }
}
