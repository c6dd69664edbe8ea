//! The gateway: a stateless HTTP front of a Relevo cluster. Any gateway serves any request at any time.
//!
//! The way of a request: `app` accepts the connection, `router` finds the binding, `transport` reads the envelope,
//! `request` the parameters, `auth` gives the permit, `operations` do the work over `relevo_shared::store` and listen to
//! what follows through `hub`; `transport` writes the answer or the stream, and `error` knows how refusals look.
//!
//! It never runs an agent, keeps no state that another gateway would need, and tells nobody that a task exists which the
//! caller cannot see.

mod admission;
mod app;
mod auth;
mod command_line;
mod config;
mod cors;
mod drain;
mod error;
mod hub;
mod metrics;
mod observe;
mod operations;
mod request;
mod ringer;
mod router;
mod services;
mod transport;

pub use app::{App, BuildError, RunError};
pub use command_line::{Arguments, main};
pub use config::{Config, check_credentials};
pub use metrics::GatewayMetrics;
