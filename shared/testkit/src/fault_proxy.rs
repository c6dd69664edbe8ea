//! A TCP proxy that misbehaves on demand.
//!
//! It listens on a loopback address on a port of its own and forwards to a unix socket or a TCP address, which may come and go
//! behind it: its own address stays. It runs on its own thread, so a test that blocks does not stall it. A
//! control holds for every piece of data that the proxy reads after the method has returned.
//! It knows no protocol. Called by tests of lost connections, half-open networks and lost replies.

use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, net};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

const BUFFER: usize = 16 * 1024;

/// Where the proxy forwards to.
#[derive(Debug, Clone)]
pub enum Upstream {
    /// A unix socket, which need not exist yet.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

/// A running proxy; its connections end on drop.
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    control: Arc<Control>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Control {
    upstream: Mutex<Upstream>,
    mode: watch::Sender<Mode>,
    filter: Mutex<Filter>,
    accepted: AtomicU64,
    open: AtomicU64,
    lost_replies: AtomicU64,
    swallowed: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Mode {
    refuse: bool,
    paused: bool,
    delay: Duration,
    /// Connections that began under an older generation are closed.
    generation: u64,
}

#[derive(Debug, Default)]
struct Filter {
    /// How many bytes may still pass from server to client; `None` = all.
    passing: Option<usize>,
    marked: Option<Marked>,
}

/// Requests that contain some bytes, and what happens to them.
#[derive(Debug)]
struct Marked {
    needle: Vec<u8>,
    /// How many of them pass first.
    passing: usize,
    /// To how many of them it happens then.
    times: usize,
    fate: Fate,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It arrives; its connection is closed before a reply passes.
    LosesReply,
    /// It arrives; its connection stays open and silent.
    GetsNoReply,
    /// It does not arrive, nor does anything after it; its connection stays open.
    Vanishes,
}

/// What ended a connection otherwise than by both sides closing.
enum Broken {
    Socket,
    ReplyLost,
}

impl FaultProxy {
    /// Starts a proxy that forwards everything.
    pub fn start(upstream: Upstream) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST, upstream)
    }

    /// The same on another address of this machine.
    pub fn start_on(host: Ipv4Addr, upstream: Upstream) -> Self {
        let listener = net::TcpListener::bind((host, 0)).expect("there is a free port");
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let control = Arc::new(Control {
            upstream: Mutex::new(upstream),
            mode: watch::Sender::new(Mode::default()),
            filter: Mutex::default(),
            accepted: AtomicU64::new(0),
            open: AtomicU64::new(0),
            lost_replies: AtomicU64::new(0),
            swallowed: AtomicU64::new(0),
        });
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&control);
        let thread = thread::Builder::new()
            .name("testkit-proxy".to_owned())
            .spawn(move || {
                // One thread: between two awaits of one direction the other cannot run. `forward` relies on it.
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime
                    .expect("a runtime can be built")
                    .block_on(serve(listener, shared, stopped));
            })
            .expect("the proxy's thread starts");
        Self {
            addr,
            control,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The same as a Redis URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Forwards new connections to another place; open ones stay where they are.
    pub fn retarget(&self, upstream: Upstream) {
        *self.control.upstream() = upstream;
    }

    /// Closes every open connection; new ones are served.
    pub fn cut_all(&self) {
        self.control.mode.send_modify(|mode| mode.generation += 1);
    }

    /// Closes every new connection as soon as it is accepted; open ones are served.
    pub fn refuse_new(&self) {
        self.control.mode.send_modify(|mode| mode.refuse = true);
    }

    /// Undoes [`FaultProxy::refuse_new`].
    pub fn accept_new(&self) {
        self.control.mode.send_modify(|mode| mode.refuse = false);
    }

    /// Forwards nothing in either direction, not even the end of a connection, and closes nothing: a dead network.
    /// New connections are accepted and as silent.
    pub fn pause(&self) {
        self.control.mode.send_modify(|mode| mode.paused = true);
    }

    /// Undoes [`FaultProxy::pause`]; what was held is forwarded.
    pub fn resume(&self) {
        self.control.mode.send_modify(|mode| mode.paused = false);
    }

    /// Holds every piece of data for so long before it is forwarded, in both directions; zero is off.
    pub fn delay(&self, delay: Duration) {
        self.control.mode.send_modify(|mode| mode.delay = delay);
    }

    /// After `bytes` more bytes from server to client, over all connections, swallows all that follow. Requests still
    /// reach the server.
    pub fn swallow_replies_after(&self, bytes: usize) {
        self.control.filter().passing = Some(bytes);
    }

    /// Undoes [`FaultProxy::swallow_replies_after`]. What was swallowed is lost.
    pub fn pass_replies(&self) {
        self.control.filter().passing = None;
    }

    /// The next `times` requests that contain `needle` reach the server, and their connections are closed before a
    /// reply passes: the client cannot know the outcome.
    pub fn lose_reply_to(&self, needle: &[u8], times: usize) {
        self.mark(needle, times, Fate::LosesReply);
    }

    /// The same for one request that contains `needle`, after `passing` others.
    pub fn lose_reply_after(&self, needle: &[u8], passing: usize) {
        self.mark_after(needle, passing, 1, Fate::LosesReply);
    }

    /// A request that contains `needle` reaches the server, and its connection passes no reply any more but stays open:
    /// the moment after the server's deed, held for as long as the client waits. It replaces what
    /// [`FaultProxy::lose_reply_to`] and its like have set.
    pub fn swallow_reply_to(&self, needle: &[u8]) {
        self.mark(needle, usize::MAX, Fate::GetsNoReply);
    }

    /// A request that contains `needle` does not reach the server, nor does what follows it on its connection, which
    /// stays open: the moment before the server's deed. It replaces what [`FaultProxy::lose_reply_to`] and its like have
    /// set.
    pub fn swallow_request(&self, needle: &[u8]) {
        self.mark(needle, usize::MAX, Fate::Vanishes);
    }

    /// Undoes [`FaultProxy::lose_reply_to`], [`FaultProxy::swallow_reply_to`] and [`FaultProxy::swallow_request`]. What
    /// they have held stays held.
    pub fn forget_needle(&self) {
        self.control.filter().marked = None;
    }

    /// How many connections have been held by [`FaultProxy::swallow_reply_to`], counted when the first reply was kept
    /// back, and by [`FaultProxy::swallow_request`].
    pub fn swallowed(&self) -> u64 {
        self.control.swallowed.load(Ordering::SeqCst)
    }

    fn mark(&self, needle: &[u8], times: usize, fate: Fate) {
        self.mark_after(needle, 0, times, fate);
    }

    fn mark_after(&self, needle: &[u8], passing: usize, times: usize, fate: Fate) {
        assert!(!needle.is_empty(), "everything contains nothing");
        self.control.filter().marked = Some(Marked {
            needle: needle.to_vec(),
            passing,
            times,
            fate,
        });
    }

    /// How many replies [`FaultProxy::lose_reply_to`] has lost.
    pub fn lost_replies(&self) -> u64 {
        self.control.lost_replies.load(Ordering::SeqCst)
    }

    /// How many connections were ever accepted, refused ones included.
    pub fn accepted(&self) -> u64 {
        self.control.accepted.load(Ordering::SeqCst)
    }

    /// How many connections are open.
    pub fn open(&self) -> u64 {
        self.control.open.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        // Dropping the sender is the signal.
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the proxy has been printed by its thread; a second one here could abort the test run.
            thread.join().ok();
        }
    }
}

impl Control {
    fn upstream(&self) -> MutexGuard<'_, Upstream> {
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn filter(&self) -> MutexGuard<'_, Filter> {
        self.filter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filter {
    fn may_pass(&mut self, bytes: usize) -> usize {
        let Some(left) = &mut self.passing else { return bytes };
        let passing = bytes.min(*left);
        *left -= passing;
        passing
    }

    /// What happens to the request of which `fresh` came in, `recent` being what came just before it.
    fn fate(&mut self, recent: &mut Vec<u8>, fresh: &[u8]) -> Option<Fate> {
        let Some(marked) = &mut self.marked else {
            recent.clear();
            return None;
        };
        recent.extend_from_slice(fresh);
        let needle = &marked.needle;
        let found = recent.windows(needle.len()).any(|window| window == needle);
        let passes = !found || marked.passing > 0 || marked.times == 0;
        if found {
            let count = if marked.passing > 0 {
                &mut marked.passing
            } else {
                &mut marked.times
            };
            *count = count.saturating_sub(1);
        }
        // What is kept is too short for the needle, so one occurrence is counted once.
        let kept = recent.len().min(needle.len() - 1);
        recent.drain(..recent.len() - kept);
        (!passes).then_some(marked.fate)
    }
}

impl Upstream {
    async fn connect(&self) -> io::Result<(Reader, Writer)> {
        match self {
            Self::Unix(path) => {
                let (reader, writer) = UnixStream::connect(path).await?.into_split();
                Ok((Box::new(reader), Box::new(writer)))
            }
            Self::Tcp(addr) => {
                let stream = TcpStream::connect(addr).await?;
                stream.set_nodelay(true)?;
                let (reader, writer) = stream.into_split();
                Ok((Box::new(reader), Box::new(writer)))
            }
        }
    }
}

async fn serve(listener: net::TcpListener, control: Arc<Control>, mut stop: oneshot::Receiver<()>) {
    let listener = TcpListener::from_std(listener).expect("a listener can be registered");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // Dropping the set ends every connection.
            _ = &mut stop => return,
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                control.accepted.fetch_add(1, Ordering::SeqCst);
                let mode = *control.mode.borrow();
                if !mode.refuse {
                    control.open.fetch_add(1, Ordering::SeqCst);
                    let upstream = control.upstream().clone();
                    connections.spawn(relay(client, upstream, Arc::clone(&control), mode.generation));
                }
            }
        }
    }
}

/// One connection until it ends or is cut.
async fn relay(client: TcpStream, upstream: Upstream, control: Arc<Control>, generation: u64) {
    let mut modes = control.mode.subscribe();
    tokio::select! {
        _ = modes.wait_for(|mode| mode.generation != generation) => {}
        () = forward(client, upstream, &control) => {}
    }
    control.open.fetch_sub(1, Ordering::SeqCst);
}

async fn forward(client: TcpStream, upstream: Upstream, control: &Control) {
    let Ok((mut server_reader, mut server_writer)) = upstream.connect().await else {
        return;
    };
    client.set_nodelay(true).ok();
    let (client_reader, client_writer) = client.into_split();
    let told = Told::default();
    let ended = tokio::try_join!(
        requests(Box::new(client_reader), &mut server_writer, control, &told),
        replies(&mut server_reader, Box::new(client_writer), control, &told),
    );
    if let Err(Broken::ReplyLost) = ended {
        control.lost_replies.fetch_add(1, Ordering::SeqCst);
        // The client's side is closed by now. The server's side ends in order, so that the server reads all that it
        // was sent.
        server_writer.shutdown().await.ok();
        tokio::io::copy(&mut server_reader, &mut tokio::io::sink()).await.ok();
    }
}

/// What the direction of the requests tells that of the replies.
#[derive(Debug, Default)]
struct Told {
    lost: AtomicBool,
    silent: AtomicBool,
}

/// Client to server.
async fn requests(mut from: Reader, to: &mut Writer, control: &Control, told: &Told) -> Result<(), Broken> {
    let mut buffer = vec![0; BUFFER];
    let mut recent = Vec::new();
    while let Some(bytes) = next(&mut from, &mut buffer, control).await? {
        let fate = control.filter().fate(&mut recent, bytes);
        if fate == Some(Fate::Vanishes) {
            control.swallowed.fetch_add(1, Ordering::SeqCst);
            while next(&mut from, &mut buffer, control).await?.is_some() {}
            break;
        }
        to.write_all(bytes).await.map_err(|_closed| Broken::Socket)?;
        // ORDER: after the write, without an await between: the request is on its way, and its reply was not seen yet.
        match fate {
            Some(Fate::LosesReply) => told.lost.store(true, Ordering::SeqCst),
            Some(Fate::GetsNoReply) => told.silent.store(true, Ordering::SeqCst),
            Some(Fate::Vanishes) | None => {}
        }
    }
    to.shutdown().await.map_err(|_closed| Broken::Socket)
}

/// Server to client.
async fn replies(from: &mut Reader, mut to: Writer, control: &Control, told: &Told) -> Result<(), Broken> {
    let mut buffer = vec![0; BUFFER];
    let mut swallowing = false;
    while let Some(bytes) = next(from, &mut buffer, control).await? {
        if told.lost.load(Ordering::SeqCst) {
            return Err(Broken::ReplyLost);
        }
        if told.silent.load(Ordering::SeqCst) {
            if !swallowing {
                control.swallowed.fetch_add(1, Ordering::SeqCst);
            }
            swallowing = true;
            continue;
        }
        let passing = control.filter().may_pass(bytes.len());
        let bytes = bytes.get(..passing).unwrap_or_default();
        to.write_all(bytes).await.map_err(|_closed| Broken::Socket)?;
    }
    to.shutdown().await.map_err(|_closed| Broken::Socket)
}

/// The next piece, when it may be forwarded; `None` at the end.
async fn next<'a>(from: &mut Reader, buffer: &'a mut [u8], control: &Control) -> Result<Option<&'a [u8]>, Broken> {
    let read = from.read(buffer).await;
    let mut modes = control.mode.subscribe();
    let delay = modes.borrow().delay;
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    if modes.wait_for(|mode| !mode.paused).await.is_err() {
        // The control outlives every connection, so this is never reached.
        pending::<()>().await;
    }
    match read {
        Ok(0) => Ok(None),
        Ok(length) => Ok(buffer.get(..length)),
        Err(_reset) => Err(Broken::Socket),
    }
}
