//! The worker: takes turns, runs agents under leases, writes what they say, recovers what others left.
//!
//! The way of a turn: [`runner::take`] waits for a slot and the bell and leases a turn; [`runner::turn`] runs its agent, batches what
//! it says ([`runner::draft`]) and writes it ([`runner::write`]); [`runner::renew`] keeps the lease meanwhile, on a thread of its own.
//! The turn ends by `finish`, or is given back. A worker never touches a client connection and knows no gateway.

pub mod agent;
mod app;
mod config;
mod drain;
mod files;
#[cfg(test)]
mod fixture;
mod input;
mod metrics;
mod runner;
pub mod supervise;

pub use app::{App, StartError};
pub use config::{Args, Config, Started, check_agents, drain_needs, start, warnings};
