//! The command line from outside: the binary against a server that plays a part, against clusters of its own, against Redis.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "nobody reads the documentation of a test binary"
)]

mod call;
mod command;
mod dead;
mod demo;
mod dev;
mod operator;
mod resume;
mod scripted;
