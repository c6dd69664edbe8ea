//! A whole cluster as processes: gateways, workers and a private Redis, seen as clients see them and hurt in every way.
//!
//! Each test starts its own cluster (`fixture.rs`) and, when it ends, the cluster must be empty: no process, no lease, no
//! queue entry, no timer is left. The binaries are those of this build: `cargo build --workspace --bins` makes them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]
#![allow(clippy::disallowed_methods, reason = "tests join what they spawn")]
#![allow(missing_docs, unreachable_pub, reason = "test code")]

mod artifacts;
mod cancels;
mod deployments;
mod doorbell;
mod drains;
mod fixture;
mod kills;
mod load;
mod lost;
mod models;
mod nodes;
mod points;
mod repeats;
mod resp;
mod resumes;
mod rolling;
mod stopped;
mod suspends;
mod tls;
mod trouble;
mod wire;
