//! A gateway in this process, a private Redis, and a worker that is played by the test through the store.

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

mod artifacts;
mod auth;
mod binding;
mod bindings;
mod busy;
mod cancel;
mod card;
mod client;
mod compat;
mod cors;
mod crowd;
mod direct;
mod doorbell;
mod drain;
mod edges;
mod extensions;
mod gateway;
mod grpc;
mod grpc_bodies;
mod grpc_client;
mod hand;
mod hostile;
mod http;
mod keyed;
mod limits;
mod list;
mod old;
mod opening;
mod outage;
mod owners;
mod process;
mod reference;
mod rest;
mod resume;
mod routing;
mod seed;
mod send;
mod stream;
mod subscribe;
mod suspended;
mod v03;
