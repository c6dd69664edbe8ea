//! Test fixtures, used by the `tests/` folders of every package and shipped with none.
//!
//! Owns: private Redis servers, child processes, a proxy that breaks connections, waiting for conditions, and the judge of what
//! a server of A2A answers.
//! Refuses: to know anything about Relevo's own types. It does not depend on `relevo-shared`, so that the load test,
//! which sees the cluster from outside only, can use it too.
//!
//! Fixtures fail the test by panicking with what they saw. Everything that they start dies with the test process, even
//! when that is killed with SIGKILL; see `child.rs`.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "fixtures fail the test by panicking"
)]

pub mod authority;
pub mod chat_model;
mod child;
pub mod docs;
pub mod fault_proxy;
pub mod haproxy;
pub mod hostile;
pub mod poll;
pub mod process;
pub mod redis_cluster;
pub mod redis_server;
pub mod schema;
mod scratch;
pub mod scripted;
pub mod tls;

pub use authority::{Authority, Certificate};
pub use fault_proxy::{FaultProxy, Upstream};
pub use haproxy::HaProxy;
pub use process::{Process, Ready, binary};
pub use redis_cluster::RedisCluster;
pub use redis_server::{RedisBuilder, RedisServer};
pub use scratch::Scratch;
pub use scripted::{Reply, Scripted};
pub use tls::{Identity, TlsFront};
