use std::time::Duration;

use relevo_testkit::{FaultProxy, RedisServer, Upstream, poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Long enough that a working proxy would have answered, short enough to wait for in a test that expects silence.
const SILENCE: Duration = Duration::from_millis(100);

struct Fixture {
    redis: RedisServer,
    proxy: FaultProxy,
}

impl Fixture {
    fn start() -> Self {
        let redis = RedisServer::start();
        let proxy = FaultProxy::start(redis.upstream());
        Self { redis, proxy }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.proxy.addr()).await.unwrap()
    }
}

async fn send(connection: &mut TcpStream, request: &str) {
    connection.write_all(request.as_bytes()).await.unwrap();
}

async fn receive(connection: &mut TcpStream, expected: &str) {
    let mut reply = vec![0; expected.len()];
    connection.read_exact(&mut reply).await.unwrap();
    assert_eq!(String::from_utf8(reply).unwrap(), expected);
}

/// Reads until the end; a reset is an end too.
async fn is_closed(connection: &mut TcpStream) -> bool {
    matches!(connection.read(&mut [0; 64]).await, Ok(0) | Err(_))
}

async fn is_silent(connection: &mut TcpStream) -> bool {
    timeout(SILENCE, connection.read(&mut [0; 64])).await.is_err()
}

#[tokio::test]
async fn everything_is_forwarded_at_first() {
    let fixture = Fixture::start();
    let mut connection = fixture.connect().await;
    send(&mut connection, "PING\r\n").await;
    receive(&mut connection, "+PONG\r\n").await;
    assert_eq!((fixture.proxy.accepted(), fixture.proxy.open()), (1, 1));
    drop(connection);
    poll::until("the connection to end", || async {
        (fixture.proxy.open() == 0).then_some(()).ok_or("open")
    })
    .await;
}

#[tokio::test]
async fn a_tcp_upstream_works_too() {
    let redis = RedisServer::start_tcp();
    let proxy = FaultProxy::start(Upstream::Tcp(redis.addr().unwrap()));
    let mut connection = TcpStream::connect(proxy.addr()).await.unwrap();
    send(&mut connection, "PING\r\n").await;
    receive(&mut connection, "+PONG\r\n").await;
}

#[tokio::test]
async fn another_upstream_gets_the_new_connections() {
    let fixture = Fixture::start();
    let other = RedisServer::start();
    let mut old = fixture.connect().await;
    send(&mut old, "PING\r\n").await;
    receive(&mut old, "+PONG\r\n").await;
    fixture.proxy.retarget(other.upstream());
    send(&mut fixture.connect().await, "SET key new\r\n").await;
    send(&mut old, "SET key old\r\n").await;
    receive(&mut old, "+OK\r\n").await;
    poll::until("the request to arrive", || async {
        let value = other.cli(&["GET", "key"]);
        if value == "new" { Ok(()) } else { Err(value) }
    })
    .await;
    assert_eq!(fixture.redis.cli(&["GET", "key"]), "old");
}

#[tokio::test]
async fn a_cut_closes_open_connections_only() {
    let fixture = Fixture::start();
    let mut old = fixture.connect().await;
    send(&mut old, "PING\r\n").await;
    receive(&mut old, "+PONG\r\n").await;
    fixture.proxy.cut_all();
    assert!(is_closed(&mut old).await);
    let mut new = fixture.connect().await;
    send(&mut new, "PING\r\n").await;
    receive(&mut new, "+PONG\r\n").await;
}

#[tokio::test]
async fn refusing_closes_new_connections_only() {
    let fixture = Fixture::start();
    let mut old = fixture.connect().await;
    send(&mut old, "PING\r\n").await;
    receive(&mut old, "+PONG\r\n").await;
    fixture.proxy.refuse_new();
    assert!(is_closed(&mut fixture.connect().await).await);
    send(&mut old, "PING\r\n").await;
    receive(&mut old, "+PONG\r\n").await;
    fixture.proxy.accept_new();
    let mut new = fixture.connect().await;
    send(&mut new, "PING\r\n").await;
    receive(&mut new, "+PONG\r\n").await;
}

#[tokio::test]
async fn a_pause_is_silent_and_loses_nothing() {
    let fixture = Fixture::start();
    let mut connection = fixture.connect().await;
    send(&mut connection, "PING\r\n").await;
    receive(&mut connection, "+PONG\r\n").await;
    fixture.proxy.pause();
    send(&mut connection, "SET key value\r\n").await;
    let mut new = fixture.connect().await;
    send(&mut new, "PING\r\n").await;
    assert!(is_silent(&mut connection).await);
    assert_eq!(fixture.redis.cli(&["EXISTS", "key"]), "0");
    fixture.proxy.resume();
    receive(&mut connection, "+OK\r\n").await;
    receive(&mut new, "+PONG\r\n").await;
}

#[tokio::test]
async fn a_pause_hides_the_death_of_the_server() {
    let fixture = Fixture::start();
    let mut connection = fixture.connect().await;
    send(&mut connection, "PING\r\n").await;
    receive(&mut connection, "+PONG\r\n").await;
    fixture.proxy.pause();
    fixture.redis.kill();
    assert!(is_silent(&mut connection).await);
    fixture.proxy.resume();
    assert!(is_closed(&mut connection).await);
}

#[tokio::test]
async fn a_delay_holds_what_is_sent_and_what_is_answered() {
    let fixture = Fixture::start();
    let mut connection = fixture.connect().await;
    let (delay, start) = (Duration::from_millis(60), tokio::time::Instant::now());
    fixture.proxy.delay(delay);
    send(&mut connection, "PING\r\n").await;
    receive(&mut connection, "+PONG\r\n").await;
    assert!(start.elapsed() >= 2 * delay);
}

#[tokio::test]
async fn swallowed_replies_are_lost_while_requests_arrive() {
    let fixture = Fixture::start();
    let mut connection = fixture.connect().await;
    fixture.proxy.swallow_replies_after("+PONG\r\n".len());
    send(&mut connection, "PING\r\n").await;
    receive(&mut connection, "+PONG\r\n").await;
    send(&mut connection, "SET key value\r\n").await;
    poll::until("the request to arrive", || async {
        let value = fixture.redis.cli(&["GET", "key"]);
        if value == "value" { Ok(()) } else { Err(value) }
    })
    .await;
    assert!(is_silent(&mut connection).await);
    fixture.proxy.pass_replies();
    send(&mut connection, "GET key\r\n").await;
    receive(&mut connection, "$5\r\nvalue\r\n").await;
}

#[tokio::test]
async fn a_request_whose_reply_is_lost_was_executed_once() {
    let fixture = Fixture::start();
    fixture.proxy.lose_reply_to(b"INCR counter", 1);
    let mut connection = fixture.connect().await;
    send(&mut connection, "PING\r\n").await;
    receive(&mut connection, "+PONG\r\n").await;
    // In two pieces, as a large request would come.
    send(&mut connection, "INCR cou").await;
    tokio::task::yield_now().await;
    send(&mut connection, "nter\r\n").await;
    assert!(is_closed(&mut connection).await);
    assert_eq!(fixture.redis.cli(&["GET", "counter"]), "1");
    assert_eq!(fixture.proxy.lost_replies(), 1);
    let mut again = fixture.connect().await;
    send(&mut again, "INCR counter\r\n").await;
    receive(&mut again, ":2\r\n").await;
}

#[tokio::test]
async fn the_reply_to_a_later_request_can_be_lost() {
    let fixture = Fixture::start();
    fixture.proxy.lose_reply_after(b"INCR counter", 2);
    let mut connection = fixture.connect().await;
    for reply in [":1\r\n", ":2\r\n"] {
        send(&mut connection, "INCR counter\r\n").await;
        receive(&mut connection, reply).await;
    }
    send(&mut connection, "INCR counter\r\n").await;
    assert!(is_closed(&mut connection).await);
    let mut again = fixture.connect().await;
    send(&mut again, "INCR counter\r\n").await;
    receive(&mut again, ":4\r\n").await;
    assert_eq!(fixture.proxy.lost_replies(), 1);
}

#[tokio::test]
async fn a_request_whose_reply_is_swallowed_was_executed_and_its_client_waits() {
    let fixture = Fixture::start();
    fixture.proxy.swallow_reply_to(b"INCR counter");
    let mut connection = fixture.connect().await;
    send(&mut connection, "PING\r\n").await;
    receive(&mut connection, "+PONG\r\n").await;
    send(&mut connection, "INCR counter\r\n").await;
    poll::until("the reply to be kept back", || async {
        (fixture.proxy.swallowed() == 1).then_some(()).ok_or("none")
    })
    .await;
    assert_eq!(fixture.redis.cli(&["GET", "counter"]), "1");
    send(&mut connection, "PING\r\n").await;
    assert!(is_silent(&mut connection).await);
    assert_eq!((fixture.proxy.swallowed(), fixture.proxy.open()), (1, 1));
}

#[tokio::test]
async fn a_swallowed_request_is_never_executed_and_its_client_waits() {
    let fixture = Fixture::start();
    fixture.proxy.swallow_request(b"INCR counter");
    let mut connection = fixture.connect().await;
    send(&mut connection, "INCR counter\r\nSET later 1\r\n").await;
    poll::until("the request to be kept back", || async {
        (fixture.proxy.swallowed() == 1).then_some(()).ok_or("none")
    })
    .await;
    send(&mut connection, "SET later 1\r\n").await;
    assert!(is_silent(&mut connection).await);
    assert_eq!(fixture.redis.cli(&["EXISTS", "counter", "later"]), "0");
    drop(connection);
    poll::until("the connection to end", || async {
        (fixture.proxy.open() == 0).then_some(()).ok_or("open")
    })
    .await;
}

#[tokio::test]
async fn the_address_survives_a_restart_of_the_server() {
    let fixture = Fixture::start();
    fixture.redis.kill();
    assert!(is_closed(&mut fixture.connect().await).await);
    fixture.redis.restart();
    let mut connection = fixture.connect().await;
    send(&mut connection, "PING\r\n").await;
    receive(&mut connection, "+PONG\r\n").await;
}
