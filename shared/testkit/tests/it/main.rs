//! The fixtures keep their promises.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]
#![allow(missing_docs, reason = "test names are sentences")]

mod deploy;
mod fault_proxy;
mod lifetime;
mod poll;
mod process;
mod redis_server;
