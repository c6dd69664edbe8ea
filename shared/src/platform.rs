//! What any of our processes needs to run, whatever it does.
//!
//! Owns configuration, time, randomness, spawning, stopping, metrics, the admin listener and logging. Knows no task,
//! no agent and no Redis: `platform` never uses `store`. Called by the gateway, the worker, the command line and by
//! `store` (metrics, clock, spawn). What dials out to servers of
//! others does it through `egress`. Nothing here is a static: two processes' worth of it can live in one test.

pub mod admin;
pub(crate) mod certificates;
pub mod clock;
pub mod config;
pub mod egress;
pub mod entropy;
pub mod listen;
pub mod logging;
pub mod metrics;
pub mod readiness;
pub mod ready_file;
pub mod runtime;
pub mod shutdown;
pub mod sse;
pub mod tasks;
