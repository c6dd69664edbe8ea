//! What can go wrong below the store, in three kinds that callers act on.

use crate::platform::config::mask_url;

/// When the same call may be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Redis is away, moving or full: the same call later may work. The outcome of this one may be unknown.
    Later,
    /// It will not get better by itself.
    Never,
}

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Redis cannot be reached, is loading, failing over, read-only or full. The outcome of the call is unknown.
    // The client's error has a source of the same text, which nobody wants to read twice.
    #[error("redis is unavailable: {0}")]
    Unavailable(redis::RedisError),
    /// The same, when the first connection is made.
    #[error("the Redis at {address} cannot be used: {error}")]
    Unreachable {
        /// Where it should be, without credentials.
        address: String,
        /// Why not.
        error: redis::RedisError,
    },
    /// Redis refused a command.
    #[error("redis refused {what}")]
    Command {
        /// Script or command.
        what: &'static str,
        /// What it said.
        #[source]
        source: redis::RedisError,
    },
    /// Something in Redis is not what this version writes.
    #[error("{what} is not readable: {detail}")]
    Corrupt {
        /// Which reply or record.
        what: &'static str,
        /// What was wrong with it.
        detail: String,
    },
    /// This Redis must not be used, or the call is outside the limits of the store.
    #[error("{rule}")]
    Refused {
        /// Which rule, in words.
        rule: String,
    },
}

impl StoreError {
    pub(crate) fn corrupt(what: &'static str, detail: impl Into<String>) -> Self {
        Self::Corrupt {
            what,
            detail: detail.into(),
        }
    }

    /// Sorts a client error into its kind.
    pub(crate) fn from_redis(what: &'static str, source: redis::RedisError) -> Self {
        if is_unavailable(&source) {
            Self::Unavailable(source)
        } else {
            Self::Command { what, source }
        }
    }

    /// Names the address that could not be reached.
    pub(super) fn at(self, address: &str) -> Self {
        match self {
            Self::Unavailable(error) => Self::Unreachable {
                address: mask_url(address),
                error,
            },
            other => other,
        }
    }

    /// Whether to try again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unavailable(_) | Self::Unreachable { .. } => Retry::Later,
            Self::Command { .. } | Self::Corrupt { .. } | Self::Refused { .. } => Retry::Never,
        }
    }

    /// Whether Redis is up but has no memory left for new work: nothing was written, and trying again at once is no use.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Unavailable(source) if source.code() == Some("OOM"))
    }

    /// The metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unavailable(_) | Self::Unreachable { .. } => "unavailable",
            Self::Command { .. } => "command",
            Self::Corrupt { .. } => "corrupt",
            Self::Refused { .. } => "refused",
        }
    }
}

/// Codes of a Redis that is there but cannot serve now.
const AWAY: [&str; 12] = [
    "TRYAGAIN",
    "ASK",
    "MOVED",
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "BUSY",
    "NOREPLICAS",
    "OOM",
    "MISCONF",
    "UNKILLABLE",
];

fn is_unavailable(error: &redis::RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || error.is_connection_refusal()
        || error.code().is_some_and(|code| AWAY.contains(&code))
        || matches!(
            error.kind(),
            redis::ErrorKind::ClusterConnectionNotFound | redis::ErrorKind::Parse
        )
}

/// Whether the connection that returned this must not be used again.
pub(super) fn breaks_connection(error: &redis::RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || matches!(error.code(), Some("READONLY" | "LOADING" | "MASTERDOWN"))
}
