//! The store against a real Redis, the laws between scripts and `domain`, and the rules of the repository.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]
#![allow(missing_docs, unreachable_pub, reason = "test code")]

mod acl;
mod away;
mod bells;
mod cluster_away;
mod cluster_mode;
mod cluster_nodes;
mod direct;
mod exhaustive;
mod fencing;
mod fixture;
mod flow;
mod injected;
mod invariants;
mod janitor;
mod large;
mod laws;
mod listing;
mod lost;
mod mutants;
mod objects;
mod once;
mod probe;
mod record;
mod replies;
mod s3;
mod scenes;
mod sessions;
mod storages;
mod suspended;
mod takes;
mod twice;
mod used;
mod waiting;
