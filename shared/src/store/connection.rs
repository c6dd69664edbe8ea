//! Connections: a few multiplexed ones that every hot script is pipelined over, and a pool of exclusive ones for what must not
//! hold up others. The library's own retries are off; a connection that broke or timed out is dropped, and the next call opens
//! another.

use std::sync::RwLock;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, Pipeline, RedisError, Value};

use super::error::breaks_connection;
use super::{Store, StoreError};

/// How many multiplexed connections carry the scripts. Two: one alone is bound by the single task that parses its replies.
const LANES: usize = 2;

/// How to reach Redis.
#[derive(Clone)]
pub struct ConnectOptions {
    /// `redis://`, `rediss://` or `unix://`.
    pub url: String,
    /// ACL user.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// First part of every key.
    pub prefix: String,
    /// P; fixed for ever.
    pub partitions: u32,
    /// How long a reply may take.
    pub timeout: Duration,
    /// Most exclusive connections.
    pub pool_size: usize,
}

impl std::fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// The connections of a process.
pub(super) struct Link {
    client: Client,
    lanes: Vec<Lane>,
    timeout: Duration,
    pool: deadpool_redis::Pool,
}

/// One multiplexed connection that is opened when it is needed.
#[derive(Default)]
struct Lane {
    open: RwLock<Option<(u64, MultiplexedConnection)>>,
    opening: tokio::sync::Mutex<u64>,
}

impl Link {
    pub(super) fn open(options: &ConnectOptions) -> Result<Self, StoreError> {
        let client = client(options)?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.timeout))
            .set_response_timeout(Some(options.timeout));
        let manager = deadpool_redis::Manager::new_with_config(client.get_connection_info().clone(), config).map_err(
            |source| StoreError::Command {
                what: "the redis url",
                source,
            },
        )?;
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
        let lanes = (0..LANES).map(|_| Lane::default()).collect();
        Ok(Self {
            client,
            lanes,
            timeout: options.timeout,
            pool,
        })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// An exclusive connection, for big reads and operator commands.
    pub(super) async fn exclusive(&self) -> Result<deadpool_redis::Connection, StoreError> {
        self.pool.get().await.map_err(|error| match error {
            deadpool_redis::PoolError::Backend(source) => StoreError::from_redis("connect", source),
            other => StoreError::Unavailable(RedisError::from(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                other.to_string(),
            ))),
        })
    }

    /// A connection of one's own that may block on the server for up to `block`.
    pub(super) async fn dedicated(&self, block: Duration) -> Result<MultiplexedConnection, RedisError> {
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
        let connection = self.connect().await?;
        *generation += 1;
        let open = (*generation, connection);
        lane.set(Some(open.clone()));
        Ok(open)
    }

    /// Sends one command.
    pub(super) async fn query(&self, lane: usize, command: &Cmd) -> Result<Value, RedisError> {
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

fn client(options: &ConnectOptions) -> Result<Client, StoreError> {
    let wrong = |source| StoreError::Command {
        what: "the redis url",
        source,
    };
    let info = options.url.as_str().into_connection_info().map_err(wrong)?;
    let mut settings = info.redis_settings().clone();
    if let Some(username) = &options.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = &options.password {
        settings = settings.set_password(password);
    }
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp)).map_err(wrong)
}

/// What a look at the server found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preflight {
    /// Identity of the running server; another one means a restart or a failover, after which the janitor looks anew.
    pub run_id: String,
    /// What works but should be known.
    pub warnings: Vec<String>,
}

impl Preflight {
    /// Tells the log what should be known.
    pub(crate) fn log(&self) {
        for warning in &self.warnings {
            tracing::warn!(warning, "redis");
        }
    }
}

impl Store {
    /// One answer to one command outside scripts.
    pub(super) async fn one(&self, what: &'static str, lane: usize, command: &Cmd) -> Result<Value, StoreError> {
        self.link()
            .query(lane, command)
            .await
            .map_err(|source| StoreError::from_redis(what, source))
    }

    /// Many commands over an exclusive connection.
    pub(super) async fn pipelined(
        &self,
        what: &'static str,
        pipeline: &Pipeline,
        count: usize,
    ) -> Result<Vec<Value>, StoreError> {
        // Big reads have a connection to themselves: they must not hold up the scripts.
        let mut connection = self.link().exclusive().await?;
        let answer = connection.send_packed_commands(pipeline, 0, count).await;
        if answer.is_err() {
            // A connection that broke or timed out must not go back to the pool.
            drop(deadpool_redis::Connection::take(connection));
        }
        answer
            .and_then(every)
            .map_err(|source| StoreError::from_redis(what, source))
    }

    /// Checks that this Redis can keep what is promised.
    ///
    /// # Errors
    /// [`StoreError::Refused`] names the rule that it breaks.
    pub async fn preflight(&self) -> Result<Preflight, StoreError> {
        let info = self.info("everything").await?;
        let field = |name: &str| info_field(&info, name);
        let version = field("redis_version").unwrap_or_default();
        let major: u32 = version.split('.').next().and_then(|v| v.parse().ok()).unwrap_or(0);
        let refuse = |rule: String| Err(StoreError::Refused { rule });
        if major != 0 && major < 7 {
            return refuse(format!(
                "redis {version} is too old: 7.0 or later is needed (scripts declare their flags)"
            ));
        }
        if field("role").is_some_and(|role| role != "master") {
            return refuse("this redis is a replica: connect to the primary".to_owned());
        }
        let mut warnings = Vec::new();
        match field("maxmemory_policy") {
            None => warnings.push("cannot see maxmemory_policy: it must be noeviction".to_owned()),
            Some(policy) if policy != "noeviction" && field("maxmemory").is_some_and(|max| max != "0") => {
                return refuse(format!(
                    "maxmemory-policy is {policy}: it must be noeviction, or accepted turns vanish"
                ));
            }
            Some(_) => {}
        }
        if field("cluster_enabled").as_deref() == Some("1") && self.cluster_nodes().await? > 1 {
            return refuse("this is a Redis Cluster of several nodes: use one node, or a cluster of one".to_owned());
        }
        if field("aof_enabled").as_deref() == Some("0") {
            warnings.push("append-only file is off: a restart of redis loses turns that were accepted".to_owned());
        }
        let run_id = field("run_id").unwrap_or_else(|| "unknown".to_owned());
        Ok(Preflight { run_id, warnings })
    }

    /// How full Redis is: used memory over `maxmemory`; `None` without a limit.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be asked.
    pub async fn memory_share(&self) -> Result<Option<f64>, StoreError> {
        let info = self.info("memory").await?;
        let field = |name| info_field(&info, name).and_then(|v| v.parse::<f64>().ok());
        Ok(match (field("used_memory"), field("maxmemory")) {
            (Some(used), Some(most)) if most > 0.0 => Some(used / most),
            _ => None,
        })
    }

    pub(super) async fn info(&self, section: &str) -> Result<String, StoreError> {
        let mut command = command("INFO");
        command.arg(section);
        let value = self.one("INFO", 0, &command).await?;
        redis::from_redis_value(value).map_err(|e| StoreError::corrupt("INFO", e.to_string()))
    }

    async fn cluster_nodes(&self) -> Result<usize, StoreError> {
        let mut command = command("CLUSTER");
        command.arg("NODES");
        let value = self.one("CLUSTER NODES", 0, &command).await?;
        let text: String =
            redis::from_redis_value(value).map_err(|e| StoreError::corrupt("CLUSTER NODES", e.to_string()))?;
        Ok(text.lines().count())
    }
}

/// Reads a field of an INFO text.
pub(super) fn info_field(info: &str, name: &str) -> Option<String> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(|v| v.trim().to_owned())
}

/// The answers of a pipeline, none of which may be an error: a server that loads or fails over answers each command with one.
pub(super) fn every(answers: Vec<Value>) -> Result<Vec<Value>, RedisError> {
    answers.into_iter().map(Value::extract_error).collect()
}

/// Begins a plain command.
#[expect(clippy::disallowed_methods, reason = "only the store speaks Redis")]
pub(super) fn command(verb: &str) -> Cmd {
    redis::cmd(verb)
}
