//! One Redis node: a few multiplexed connections that every hot script is pipelined over, and a pool of exclusive ones for what
//! must not hold up others. The library's own retries are off; a connection that broke or timed out is dropped, and the next call
//! opens another.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, Pipeline, RedisError, Value};

use super::super::StoreError;
use super::super::clock::millis;
use super::super::error::breaks_connection;
use crate::platform::{clock, runtime};

/// Most multiplexed connections that carry the scripts. Two: one alone is bound by the single task that parses its replies. Where there
/// is one thread, one: it can do no more, and calls of one moment share a write.
const LANES: usize = 2;

/// How often a node that is away is tried.
const TRY: Duration = Duration::from_millis(250);
/// How long a try may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the nodes of a process have in common.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct NodeOptions {
    /// How long a reply may take.
    pub(super) timeout: Duration,
    /// Most exclusive connections.
    pub(super) pool_size: usize,
    /// Whether there may be others.
    pub(super) clustered: bool,
}

/// The connections of a process to one node.
pub(in super::super) struct Node {
    name: String,
    client: Client,
    lanes: Vec<Lane>,
    timeout: Duration,
    pool: deadpool_redis::Pool,
    away: Away,
}

/// Whether the last call found nobody there. Only kept for the nodes of a cluster: others go on meanwhile, and must not wait for
/// this one.
#[derive(Default)]
struct Away {
    kept: bool,
    now: AtomicBool,
    /// When it was last tried all the same (boot clock ms).
    tried: AtomicU64,
}

/// One multiplexed connection that is opened when it is needed.
#[derive(Default)]
struct Lane {
    open: RwLock<Option<(u64, MultiplexedConnection)>>,
    opening: tokio::sync::Mutex<u64>,
}

impl Node {
    pub(super) fn open(info: &ConnectionInfo, options: NodeOptions) -> Result<Self, StoreError> {
        let wrong = |source| StoreError::Command {
            what: "the redis url",
            source,
        };
        let client = Client::open(info.clone()).map_err(wrong)?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.timeout))
            .set_response_timeout(Some(options.timeout));
        let manager =
            deadpool_redis::Manager::new_with_config(client.get_connection_info().clone(), config).map_err(wrong)?;
        let pool = deadpool_redis::Pool::builder(manager)
            .max_size(options.pool_size.max(1))
            .runtime(deadpool_redis::Runtime::Tokio1)
            .wait_timeout(Some(options.timeout))
            .create_timeout(Some(options.timeout))
            .recycle_timeout(Some(options.timeout))
            .build()
            .map_err(|error| StoreError::Refused {
                rule: error.to_string(),
            })?;
        Ok(Self {
            name: info.addr().to_string(),
            client,
            lanes: (0..runtime::threads().min(LANES)).map(|_| Lane::default()).collect(),
            timeout: options.timeout,
            pool,
            away: Away {
                kept: options.clustered,
                ..Away::default()
            },
        })
    }

    /// Its address.
    pub(in super::super) fn name(&self) -> &str {
        &self.name
    }

    pub(in super::super) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether nobody was there when it was last asked.
    pub(in super::super) fn is_away(&self) -> bool {
        self.away.now.load(Ordering::Relaxed)
    }

    /// Keeps what an answer says about the node.
    pub(in super::super) fn note<T>(&self, answer: &Result<T, RedisError>) {
        match answer {
            Err(error) if breaks_connection(error) => self.is_gone(error),
            _ if self.is_away() => {
                self.away.now.store(false, Ordering::Relaxed);
                tracing::info!(node = self.name, "a node of redis is back");
            }
            _ => {}
        }
    }

    fn is_gone(&self, error: &RedisError) {
        if self.away.kept && !self.away.now.swap(true, Ordering::Relaxed) {
            tracing::warn!(node = self.name, %error, "a node of redis is away");
        }
    }

    /// Makes a call of this node. While it is away only one is made now and then, for a second at the most; all others fail at once.
    pub(super) async fn if_there<T>(&self, call: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
        let late = |text| RedisError::from(std::io::Error::new(std::io::ErrorKind::TimedOut, text));
        let answer = if !self.is_away() {
            call.await
        } else if self.may_try() {
            let tried = tokio::time::timeout(PATIENCE, call).await;
            tried.unwrap_or_else(|_late| Err(late("the node still does not answer")))
        } else {
            return Err(late("the node did not answer before"));
        };
        self.note(&answer);
        answer
    }

    fn may_try(&self) -> bool {
        let now = millis(clock::boottime());
        let last = self.away.tried.load(Ordering::Relaxed);
        let due = now.saturating_sub(last) >= millis(TRY);
        let set = || {
            self.away
                .tried
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
        };
        due && set().is_ok()
    }

    async fn exclusive(&self) -> Result<deadpool_redis::Connection, RedisError> {
        // Boxed, as all that is rare on the way of a command: the call of every script would hold room for it.
        Box::pin(self.pool.get()).await.map_err(|error| match error {
            deadpool_redis::PoolError::Backend(source) => source,
            other => RedisError::from(std::io::Error::new(std::io::ErrorKind::TimedOut, other.to_string())),
        })
    }

    /// A connection of one's own that may block on the server for up to `block`.
    pub(in super::super) async fn dedicated(&self, block: Duration) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(block + self.timeout));
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        self.dedicated(Duration::ZERO).await
    }

    fn lane(&self, lane: usize) -> Option<&Lane> {
        self.lanes.get(lane % self.lanes.len().max(1))
    }

    async fn connection(&self, lane: &Lane) -> Result<(u64, MultiplexedConnection), RedisError> {
        if let Some(open) = lane.current() {
            return Ok(open);
        }
        // One caller opens, the others wait for it.
        let mut generation = lane.opening.lock().await;
        if let Some(open) = lane.current() {
            return Ok(open);
        }
        let connection = Box::pin(self.connect()).await?;
        *generation += 1;
        let open = (*generation, connection);
        lane.set(Some(open.clone()));
        Ok(open)
    }

    /// Sends one command.
    pub(in super::super) async fn query(&self, lane: usize, command: &Cmd) -> Result<Value, RedisError> {
        let Some(lane) = self.lane(lane) else {
            return Ok(Value::Nil);
        };
        let (generation, mut connection) = self.connection(lane).await?;
        let answer = connection
            .send_packed_command(command)
            .await
            .and_then(Value::extract_error);
        if let Err(error) = &answer
            && breaks_connection(error)
        {
            lane.drop_generation(generation);
        }
        answer
    }

    /// Sends several commands in one write; each has its own answer.
    pub(super) async fn pipeline(
        &self,
        lane: usize,
        commands: &Pipeline,
        count: usize,
    ) -> Result<Vec<Value>, RedisError> {
        let Some(lane) = self.lane(lane) else {
            return Ok(Vec::new());
        };
        let (generation, mut connection) = self.connection(lane).await?;
        let answer = connection.send_packed_commands(commands, 0, count).await;
        if let Err(error) = &answer
            && breaks_connection(error)
        {
            lane.drop_generation(generation);
        }
        answer
    }

    /// The same over an exclusive connection: big reads must not hold up the scripts.
    pub(super) async fn exclusively(&self, commands: &Pipeline, count: usize) -> Result<Vec<Value>, RedisError> {
        let mut connection = self.exclusive().await?;
        let answer = connection.send_packed_commands(commands, 0, count).await;
        if answer.is_err() {
            // A connection that broke or timed out must not go back to the pool.
            drop(deadpool_redis::Connection::take(connection));
        }
        answer
    }
}

impl Lane {
    fn current(&self) -> Option<(u64, MultiplexedConnection)> {
        self.open
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    fn set(&self, value: Option<(u64, MultiplexedConnection)>) {
        *self.open.write().unwrap_or_else(std::sync::PoisonError::into_inner) = value;
    }

    /// Drops the connection, unless another caller replaced it already.
    fn drop_generation(&self, generation: u64) {
        let mut open = self.open.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if open.as_ref().is_some_and(|(current, _)| *current == generation) {
            *open = None;
        }
    }
}
