//! The load driver: sends turns to a cluster as its clients do, measures them, and with `--verify` checks each of them.
//!
//! ```text
//! settings ──> driver ──> turn ──> client ──> sse     one turn on the wire, resumed when it breaks
//!                │          └────> verify ──> expect  pure: what was promised and what came
//!                └──> recorder ──> report             figures
//! ```
//!
//! It sees the cluster over the wire only. Clusters are tested with the same client and the same checks
//! (`tests/cluster`).

pub mod chaos;
pub mod client;
pub mod driver;
pub mod expect;
pub mod recorder;
pub mod report;
pub mod settings;
pub mod sse;
pub mod turn;
pub mod verify;
