//! How a command ends: its exit code, and what it says when it could not do its work.
//!
//! The codes are part of the interface and are listed in `--help`; scripts depend on them.

use std::process::ExitCode;

use relevo_shared::platform::config::{ConfigErrors, EXIT_CONFIG};
use relevo_shared::store::StoreError;

use crate::client::{ClientError, RpcError};

/// What a command found, when it could do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: done, ended well, or waits for input.
    Good,
    /// 1: the task failed, was rejected or canceled.
    Bad,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Good => Self::SUCCESS,
            Exit::Bad => Self::FAILURE,
        }
    }
}

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// A server or Redis cannot be reached, or does not answer as it should.
    #[error(transparent)]
    Unreachable(anyhow::Error),
    /// The server refused the call.
    #[error("refused: {0}")]
    Refused(RpcError),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// Anything else.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
    /// Nobody reads the output any more.
    #[error("nobody reads the output")]
    Closed,
}

impl Problem {
    /// A failure with a sentence.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(anyhow::Error::msg(text.into()))
    }

    /// Something that is not there or not in time, with a sentence.
    pub(crate) fn unreachable(text: impl Into<String>) -> Self {
        Self::Unreachable(anyhow::Error::msg(text.into()))
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Refused(_) | Self::Closed => 1,
            Self::Usage(_) => 2,
            Self::Unreachable(_) => 3,
            Self::Config(_) => EXIT_CONFIG,
        }
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(error) => Self::Refused(error),
            other @ ClientError::Unauthorized { .. } => Self::Failed(other.into()),
            other @ (ClientError::Unreachable { .. }
            | ClientError::Broken { .. }
            | ClientError::Silent { .. }
            | ClientError::Status { .. }
            | ClientError::Foreign { .. }) => Self::Unreachable(other.into()),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) | StoreError::Unreachable { .. } => Self::Unreachable(error.into()),
            StoreError::Command { .. } | StoreError::Corrupt { .. } | StoreError::Refused { .. } => {
                Self::Failed(error.into())
            }
        }
    }
}

/// An error with its causes. Of those below the HTTP client only the last: four say the same.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let (mut cause, mut below_http) = (error.source(), false);
    while let Some(error) = cause {
        cause = error.source();
        below_http |= error.is::<reqwest::Error>();
        if cause.is_none() || !below_http {
            text = format!("{text}: {error}");
        }
    }
    text
}

/// What `relevo call` and `relevo task watch` exit with, for their help.
pub(crate) const HELP: &str = "\
Exit codes:
  0  the turn ended well, or the task waits for input (the state is on standard error)
  1  the task failed, was rejected or canceled; or the server refused the call or the message
  2  the command line is wrong
  3  the server cannot be reached, or was lost for too long";

/// The same for commands that ask a server one thing.
pub(crate) const HELP_ASK: &str = "\
Exit codes:
  0  done
  1  the server refused
  2  the command line is wrong
  3  the server cannot be reached";

/// The same for commands that read Redis.
pub(crate) const HELP_REDIS: &str = "\
Exit codes:
  0   done
  1   it could not be done
  2   the command line is wrong
  3   Redis cannot be reached
  64  the configuration is wrong";
