//! A worker in this process on a private Redis, with the test in the gateway's place.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]
#![allow(missing_docs, unreachable_pub, reason = "test code")]

mod a2a_agent;
mod a2a_crash;
mod a2a_hostile;
mod a2a_scene;
mod a2a_upstream;
mod agents;
mod artifact_files;
mod artifacts;
mod fixture;
mod model;
mod model_trouble;
mod process_crash;
mod process_examples;
mod process_harness;
mod process_life;
mod process_lines;
mod process_sessions;
mod profiles;
mod retention;
mod storages;
mod suspended;
mod turns;
mod upstream_tls;
mod waiting;
