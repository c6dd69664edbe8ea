//! Everything that dials out to a server of someone else: agents behind a URL, and whoever else sends requests.
//!
//! Owns the guard against requests to where they must not go (SSRF), the HTTP client built on it, the credentials of a server and the
//! circuit breaker. The client judges every address at the moment it is dialled, so what was judged is what is connected to, whatever a
//! name server says the second time. It follows no redirect, reads no proxy variables, and shows credentials to their own origin only.
//! It refuses to repeat a request: whoever calls knows what may be sent twice. Errors for people come in two texts: the whole one for
//! logs, and a public one without names of hosts and addresses.

mod address;
mod answer;
mod breaker;
mod client;
mod credentials;
mod error;
mod guard;
mod metrics;
mod rules;
mod upstreams;

pub use address::{Kind, kind};
pub use answer::Answer;
pub use breaker::{Breaker, BreakerSettings, Ticket, Weight};
pub use client::{Call, Client, Egress, SetupError};
pub(crate) use credentials::header_name;
pub use credentials::{Credentials, CredentialsError};
pub use error::EgressError;
pub use guard::{Guard, Looking, Lookup, Refused, SystemLookup, parse_url};
pub use metrics::EgressMetrics;
pub use reqwest::{Method, StatusCode, Url, header};
pub(crate) use rules::FORM;
pub use rules::{Reason, Rules};

#[cfg(test)]
mod tests;
