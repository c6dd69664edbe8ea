//! Leases are renewed over a blocking connection of one's own, by a thread that no busy runtime can hold up.

use std::time::Duration;

use redis::{ConnectionLike as _, Value};

use super::connection::command;
use super::script::{Name, Reply};
use super::{Store, StoreError};
use crate::ids::{ContextKey, LeaseToken, Partition, TurnId};

/// How long a renewal may take. Authority ends long before the lease does, so a late answer is as good as none.
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
    connection: Option<redis::Connection>,
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
            connection: None,
            hash,
            text,
        }
    }

    /// Renews leases of one partition. Blocks for a second at the most, per 300 leases.
    ///
    /// # Errors
    /// [`StoreError`]; the connection is dropped then.
    pub fn renew(&mut self, partition: Partition, ttl_ms: u64, held: &[Held]) -> Result<Renewed, StoreError> {
        let mut all = Renewed::default();
        for chunk in held.chunks(CHUNK) {
            let started = std::time::Instant::now();
            let answer = self.call(partition, ttl_ms, chunk);
            if answer.is_err() {
                self.connection = None;
            }
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
        let value = match self.send("EVALSHA", partition, ttl_ms, held) {
            Err(error) if error.code() == Some("NOSCRIPT") => self.send("EVAL", partition, ttl_ms, held),
            answer => answer,
        };
        let value = value.map_err(|source| StoreError::from_redis("renew", source))?;
        let mut reply = Reply::new("renew", value)?;
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

    fn send(
        &mut self,
        verb: &str,
        partition: Partition,
        ttl_ms: u64,
        held: &[Held],
    ) -> Result<Value, redis::RedisError> {
        let mut call = command(verb);
        call.arg(if verb == "EVAL" { &self.text } else { &self.hash });
        call.arg(1).arg(self.store.keys().meta(partition)).arg(ttl_ms);
        for lease in held {
            call.arg(lease.context.as_str())
                .arg(lease.token.as_str())
                .arg(lease.turn.to_string());
        }
        let connection = match &mut self.connection {
            Some(connection) => connection,
            empty => {
                let connection = self.store.link().client().get_connection_with_timeout(TIMEOUT)?;
                connection.set_read_timeout(Some(TIMEOUT))?;
                connection.set_write_timeout(Some(TIMEOUT))?;
                empty.insert(connection)
            }
        };
        // An error reply is a value here, not yet an error.
        connection.req_command(&call)?.extract_error()
    }
}
