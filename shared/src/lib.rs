//! What gateways and workers must agree on.
//!
//! ```text
//! gateway, worker ──> platform                      process plumbing; knows no task
//!        └──────────> store ──────> domain ──> ids  pure from `domain` rightwards
//!                       ^
//!                    janitor ──> objects            recovery, retention; runs in every process
//! ```
//!
//! Without the feature `runtime` only [`ids`] and [`domain`] exist: that they need no clock, no network and no Redis is
//! checked by the compiler.

#[cfg(feature = "runtime")]
pub mod agents;
pub mod domain;
pub mod ids;
#[cfg(feature = "runtime")]
pub mod janitor;
#[cfg(feature = "runtime")]
pub mod objects;
#[cfg(feature = "runtime")]
pub mod platform;
#[cfg(feature = "runtime")]
pub mod store;
