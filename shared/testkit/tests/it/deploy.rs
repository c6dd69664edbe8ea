//! The files under `deploy/` do what their comments say. Gateways are stand-ins here: what is tested is the proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use relevo_testkit::haproxy::Backend;
use relevo_testkit::{HaProxy, Process, Scratch, poll};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// A gateway of which only the wire matters. Every call is handed to the test, which writes its answer.
struct StandIn {
    backend: Backend,
    ready: Arc<AtomicBool>,
    calls: mpsc::UnboundedReceiver<TcpStream>,
    tasks: JoinSet<()>,
}

impl StandIn {
    async fn start() -> Self {
        let (listen, calls_listener) = listener().await;
        let (admin, admin_listener) = listener().await;
        let ready = Arc::new(AtomicBool::new(true));
        let (sender, calls) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = calls_listener.accept().await {
                read_head(&mut stream).await;
                sender.send(stream).ok();
            }
        });
        let is_ready = Arc::clone(&ready);
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = admin_listener.accept().await {
                let line = read_head(&mut stream).await;
                assert!(line.starts_with("GET /readyz "), "{line}");
                let status = if is_ready.load(Ordering::SeqCst) {
                    "200 OK"
                } else {
                    "503 Service Unavailable"
                };
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.ok();
            }
        });
        Self {
            backend: Backend { listen, admin },
            ready,
            calls,
            tasks,
        }
    }

    async fn next_call(&mut self) -> TcpStream {
        self.calls.recv().await.unwrap()
    }
}

/// The next call of whichever gateway gets it.
async fn next_of(one: &mut StandIn, two: &mut StandIn) -> TcpStream {
    tokio::select! { call = one.next_call() => call, call = two.next_call() => call }
}

async fn listener() -> (SocketAddr, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (listener.local_addr().unwrap(), listener)
}

/// Reads up to the blank line and returns the first line. Nothing follows it: calls have no body here.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    String::from_utf8(head)
        .unwrap()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// A client's call; the answer can be read from what is returned.
async fn call(proxy: &HaProxy) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
    stream
        .write_all(b"POST / HTTP/1.1\r\nhost: relevo\r\ncontent-length: 0\r\n\r\n")
        .await
        .unwrap();
    BufReader::new(stream)
}

async fn send_event(gateway: &mut TcpStream, text: &str) {
    let event = format!("data: {text}\n\n");
    gateway
        .write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())
        .await
        .unwrap();
}

/// Reads lines until the event with this text.
async fn receive_event(client: &mut BufReader<TcpStream>, text: &str) {
    let mut line = String::new();
    while line.trim_end() != format!("data: {text}") {
        line.clear();
        assert_ne!(
            client.read_line(&mut line).await.unwrap(),
            0,
            "the stream ended before {text}"
        );
    }
}

#[tokio::test]
async fn each_event_passes_the_proxy_before_the_next_is_sent() {
    let (mut one, mut two) = (StandIn::start().await, StandIn::start().await);
    let proxy = HaProxy::start([one.backend, two.backend]);
    let mut client = call(&proxy).await;
    let mut gateway = next_of(&mut one, &mut two).await;
    gateway.write_all(HEAD.as_bytes()).await.unwrap();
    for n in 0..200 {
        send_event(&mut gateway, &n.to_string()).await;
        receive_event(&mut client, &n.to_string()).await;
    }
}

#[tokio::test]
async fn a_draining_gateway_keeps_its_streams_and_gets_no_new_calls() {
    let (mut one, mut two) = (StandIn::start().await, StandIn::start().await);
    let proxy = HaProxy::start([one.backend, two.backend]);

    // One stream each, since the fewest connections decide; the first may go to either.
    let mut clients = vec![call(&proxy).await];
    let mut gateways = vec![next_of(&mut one, &mut two).await];
    clients.push(call(&proxy).await);
    gateways.push(next_of(&mut one, &mut two).await);
    for gateway in &mut gateways {
        gateway.write_all(HEAD.as_bytes()).await.unwrap();
    }
    one.ready.store(false, Ordering::SeqCst);
    proxy.until_down(1).await;

    // By the number of connections each second one of these would go to the first gateway.
    let mut later = Vec::new();
    for _ in 0..6 {
        later.push((call(&proxy).await, two.next_call().await));
    }
    assert!(one.calls.is_empty());
    for gateway in &mut gateways {
        send_event(gateway, "still here").await;
    }
    for client in &mut clients {
        receive_event(client, "still here").await;
    }
}

#[tokio::test]
async fn a_call_finds_the_other_gateway_before_the_check_notices_that_one_is_gone() {
    let (mut one, mut two) = (StandIn::start().await, StandIn::start().await);
    let proxy = HaProxy::start([one.backend, two.backend]);
    // Closes its listeners: connections are refused from now on.
    one.tasks.shutdown().await;
    for _ in 0..4 {
        let mut client = call(&proxy).await;
        let mut gateway = two.next_call().await;
        gateway.write_all(HEAD.as_bytes()).await.unwrap();
        send_event(&mut gateway, "served").await;
        receive_event(&mut client, "served").await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_by_the_gateway() {
    let (mut one, mut two) = (StandIn::start().await, StandIn::start().await);
    let proxy = HaProxy::start([one.backend, two.backend]);
    let mut client = call(&proxy).await;
    let mut gateway = next_of(&mut one, &mut two).await;
    gateway.write_all(HEAD.as_bytes()).await.unwrap();
    send_event(&mut gateway, "hello").await;
    receive_event(&mut client, "hello").await;
    drop(client);
    // Keep-alive comments find it out; the gateway sends one each 15 seconds.
    poll::until("the gateway's connection to be closed", || {
        let event = gateway.try_write(b"2\r\n:\n\r\n");
        async move { if event.is_err() { Ok(()) } else { Err("open") } }
    })
    .await;
}

#[test]
fn redis_accepts_its_configuration() {
    let scratch = Scratch::new("redis-conf");
    let socket = scratch.path().join("redis.sock").display().to_string();
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/redis/redis.conf");
    let redis = Process::spawn(
        "redis-server",
        &[
            config,
            "--port",
            "0",
            "--unixsocket",
            &socket,
            "--dir",
            &scratch.path().display().to_string(),
        ],
        &[],
    );
    let ask = |args: &[&str]| {
        let output = std::process::Command::new("redis-cli")
            .args(["-e", "-s", &socket])
            .args(args)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        if output.status.success() {
            Ok(text.trim_end().to_owned())
        } else {
            Err(text + &redis.log())
        }
    };
    assert_eq!(poll::until_sync("redis to answer", || ask(&["PING"])), "PONG");
    for (name, value) in [("maxmemory-policy", "noeviction"), ("appendonly", "yes"), ("save", "")] {
        assert_eq!(
            ask(&["CONFIG", "GET", name]).unwrap(),
            format!("{name}\n{value}").trim_end()
        );
    }
    let limits = ask(&["CONFIG", "GET", "client-output-buffer-limit"]).unwrap();
    assert!(limits.ends_with("pubsub 268435456 67108864 60"), "{limits}");
}
