//! Why a request had no answer, or only half of one.

use std::error::Error as StdError;
use std::time::Duration;

use super::guard::Refused;
use crate::platform::config::print_duration;

/// What went wrong. The text is for logs: it names hosts and addresses, never credentials.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EgressError {
    /// The guard refuses where it should go.
    #[error("the address is refused: {0}")]
    Refused(#[from] Refused),
    /// The server failed again and again: it is left alone for a while.
    #[error("{origin} failed again and again; it is tried again in {} s", seconds(*.again))]
    Open {
        /// The server.
        origin: String,
        /// When a call may go out again.
        again: Duration,
    },
    /// It cannot show that it is who it should be: the request was not sent.
    #[error(
        "{origin} has a certificate that is not trusted: {text}; egress.ca_file names authorities that are, beside the public ones"
    )]
    Untrusted {
        /// The server.
        origin: String,
        /// Why not.
        text: String,
    },
    /// No connection: the request was not sent.
    #[error("{origin} cannot be reached: {text}")]
    Connect {
        /// The server.
        origin: String,
        /// What the system says.
        text: String,
    },
    /// The request went out, and what came back is no answer.
    #[error("{origin} broke off: {text}")]
    Broken {
        /// The server.
        origin: String,
        /// What the connection says.
        text: String,
    },
    /// Nothing came for so long.
    #[error("{origin} said nothing for {}", print_duration(*.waited))]
    Silent {
        /// The server.
        origin: String,
        /// How long.
        waited: Duration,
    },
    /// A redirect; none is followed.
    #[error(
        "{origin} answers with a redirect ({status}) to {to}; write the address that it leads to into the configuration"
    )]
    Redirect {
        /// The server.
        origin: String,
        /// The status.
        status: u16,
        /// The origin that it names.
        to: String,
    },
    /// The answer is larger than it may be.
    #[error("the answer of {origin} is larger than {limit} bytes")]
    TooLarge {
        /// The server.
        origin: String,
        /// How large it may be.
        limit: usize,
    },
}

impl EgressError {
    /// Whether the server cannot have got the request: sending it again does nothing twice.
    pub const fn is_unsent(&self) -> bool {
        matches!(
            self,
            Self::Refused(_) | Self::Open { .. } | Self::Untrusted { .. } | Self::Connect { .. }
        )
    }

    /// Whether the same request may have another outcome a while later.
    pub const fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Open { .. } | Self::Connect { .. } | Self::Broken { .. } | Self::Silent { .. }
        )
    }

    /// For those who may not know which hosts and addresses there are: completes "the upstream server …".
    pub fn public(&self) -> String {
        match self {
            Self::Refused(_) => "has an address that is refused (egress.allow, egress.deny)".to_owned(),
            Self::Open { again, .. } => {
                format!("failed again and again; it is tried again in {} s", seconds(*again))
            }
            Self::Untrusted { .. } => "has a certificate that is not trusted (egress.ca_file)".to_owned(),
            Self::Connect { .. } => "cannot be reached".to_owned(),
            Self::Broken { .. } => "broke off its answer".to_owned(),
            Self::Silent { waited, .. } => format!("said nothing for {}", print_duration(*waited)),
            Self::Redirect { status, .. } => format!("answers with a redirect ({status}), which is not followed"),
            Self::TooLarge { limit, .. } => format!("gave an answer of more than {limit} bytes"),
        }
    }

    /// The label in metrics.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Open { .. } => "breaker",
            Self::Untrusted { .. } => "certificate",
            Self::Connect { .. } => "connect",
            Self::Broken { .. } => "broken",
            Self::Silent { .. } => "silent",
            Self::Redirect { .. } => "redirect",
            Self::TooLarge { .. } => "too_large",
        }
    }

    /// What the HTTP client says. Its own text holds the whole URL; the causes do not.
    pub(super) fn from_client(origin: &str, error: &reqwest::Error) -> Self {
        if let Some(refused) = causes(error).find_map(|cause| cause.downcast_ref::<Refused>()) {
            return Self::Refused(refused.clone());
        }
        if let Some(text) = causes(error).find_map(untrusted) {
            let origin = origin.to_owned();
            return Self::Untrusted { origin, text };
        }
        let last = causes(error).last().map(ToString::to_string);
        let text = last.unwrap_or_else(|| "no reason is known".to_owned());
        let origin = origin.to_owned();
        if error.is_connect() {
            Self::Connect { origin, text }
        } else {
            Self::Broken { origin, text }
        }
    }
}

/// Seconds, begun ones included.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Why a certificate is not trusted, if that is what this cause says.
fn untrusted(cause: &(dyn StdError + 'static)) -> Option<String> {
    let mut error = cause;
    // An error of input and output hides what it was made of.
    while let Some(outer) = error.downcast_ref::<std::io::Error>() {
        error = outer.get_ref()?;
    }
    let error: &rustls::Error = error.downcast_ref()?;
    matches!(error, rustls::Error::InvalidCertificate(_)).then(|| error.to_string())
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}
