//! Leases are renewed over blocking connections of one's own (one per node), by a thread that no busy runtime can hold up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{ConnectionLike as _, RedisError, Value};

use super::connection::{At, Node, command};
use super::script::{Name, Reply};
use super::{Store, StoreError};
use crate::ids::{ContextKey, LeaseToken, Partition, TurnId};

/// How long an answer may take at the most. Authority ends long before the lease does, so a late answer is as good as none.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Most leases per call: three values each, below the limit of a script call.
const CHUNK: usize = 300;

/// A lease that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The context.
    pub context: ContextKey,
    /// The right to it.
    pub token: LeaseToken,
    /// The turn it is for.
    pub turn: TurnId,
}

/// What a renewal said.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Renewed {
    /// Redis ms.
    pub now: u64,
    /// Leases that are someone else's by now, or nobody's. By token: one worker may hold an old and a current one of a context.
    pub lost: Vec<LeaseToken>,
    /// Leases whose turn was cancelled.
    pub canceled: Vec<LeaseToken>,
}

/// Renews leases from a plain thread.
pub struct LeaseClient {
    store: Store,
    timeout: Duration,
    /// By the name of the node.
    connections: HashMap<String, redis::Connection>,
    hash: String,
    text: String,
}

impl std::fmt::Debug for LeaseClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseClient").finish_non_exhaustive()
    }
}

impl LeaseClient {
    /// A client that connects when it is first used.
    pub fn new(store: Store) -> Self {
        let (hash, text) = store.inner.scripts.hash_and_text(Name::Renew);
        Self {
            store,
            timeout: TIMEOUT,
            connections: HashMap::new(),
            hash,
            text,
        }
    }

    /// One that waits no longer than this for an answer: who renews the leases of several nodes must not lose them all to one that is
    /// silent.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        let timeout = timeout.min(TIMEOUT);
        Self { timeout, ..self }
    }

    /// Whether the node of a partition has answered over a connection that is still there.
    pub fn is_connected(&self, partition: Partition) -> bool {
        let node = self.store.link().node(At::Partition(partition));
        node.is_ok_and(|node| self.connections.contains_key(node.name()))
    }

    /// Renews leases of one partition. Blocks for its timeout at the most, per 300 leases, and for another where
    /// there is no connection yet.
    ///
    /// # Errors
    /// [`StoreError`]; the connection is dropped then.
    pub fn renew(&mut self, partition: Partition, ttl_ms: u64, held: &[Held]) -> Result<Renewed, StoreError> {
        let mut all = Renewed::default();
        for chunk in held.chunks(CHUNK) {
            let started = Instant::now();
            let answer = self.call(partition, ttl_ms, chunk);
            let outcome = answer.as_ref().map_or_else(StoreError::label, |_| "renewed");
            self.store
                .metrics()
                .script(Name::Renew.as_str(), outcome, started.elapsed());
            let part = answer?;
            all.now = part.now;
            all.lost.extend(part.lost);
            all.canceled.extend(part.canceled);
        }
        Ok(all)
    }

    fn call(&mut self, partition: Partition, ttl_ms: u64, held: &[Held]) -> Result<Renewed, StoreError> {
        let value = self.value(partition, ttl_ms, held);
        let mut reply = Reply::new(
            "renew",
            value.map_err(|source| StoreError::from_redis("renew", source))?,
        )?;
        if reply.tag != "RENEWED" {
            return Err(reply.unknown());
        }
        let now = reply.parsed()?;
        let tokens = |texts: Vec<String>| texts.into_iter().map(LeaseToken::from_text).collect();
        Ok(Renewed {
            now,
            lost: tokens(reply.texts()?),
            canceled: tokens(reply.texts()?),
        })
    }

    fn value(&mut self, partition: Partition, ttl_ms: u64, held: &[Held]) -> Result<Value, RedisError> {
        let node = self.store.link().node(At::Partition(partition))?;
        let answer = self.send(&node, partition, ttl_ms, held);
        // MOVED is said before anything is executed, so this is no repetition. The map is for others to read anew.
        let moved = answer.as_ref().err().zip(self.store.link().cluster());
        match moved.and_then(|(error, cluster)| cluster.redirected(error, &node)) {
            Some(other) => self.send(&other, partition, ttl_ms, held),
            None => answer,
        }
    }

    /// Asks a node, unless nobody was there when it was last asked, here or by others: each silence costs the leases of other nodes
    /// time. The janitor of this process asks every node every second.
    fn send(
        &mut self,
        node: &Arc<Node>,
        partition: Partition,
        ttl_ms: u64,
        held: &[Held],
    ) -> Result<Value, RedisError> {
        if node.is_away() {
            let text = "the node did not answer before";
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text).into());
        }
        let answer = match self.exchange(node, "EVALSHA", partition, ttl_ms, held) {
            Err(error) if error.code() == Some("NOSCRIPT") => self.exchange(node, "EVAL", partition, ttl_ms, held),
            answer => answer,
        };
        node.note(&answer);
        if answer.is_err() {
            self.connections.remove(node.name());
        }
        answer
    }

    fn exchange(
        &mut self,
        node: &Arc<Node>,
        verb: &str,
        partition: Partition,
        ttl_ms: u64,
        held: &[Held],
    ) -> Result<Value, RedisError> {
        let mut call = command(verb);
        call.arg(if verb == "EVAL" { &self.text } else { &self.hash });
        let meta = self.store.keys().meta(partition);
        match self.store.absent(At::Partition(partition)) {
            None => call.arg(1).arg(meta),
            Some(absent) => call.arg(2).arg(meta).arg(absent),
        };
        call.arg(ttl_ms);
        for lease in held {
            call.arg(lease.context.as_str())
                .arg(lease.token.as_str())
                .arg(lease.turn.to_string());
        }
        let connection = match self.connections.entry(node.name().to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(empty) => {
                let connection = node.client().get_connection_with_timeout(self.timeout)?;
                connection.set_read_timeout(Some(self.timeout))?;
                connection.set_write_timeout(Some(self.timeout))?;
                empty.insert(connection)
            }
        };
        // An error reply is a value here, not yet an error.
        connection.req_command(&call)?.extract_error()
    }
}
