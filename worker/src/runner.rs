//! One turn's life on a worker: taken, renewed, run, written, ended or given back.

pub(crate) mod control;
pub(crate) mod draft;
pub(crate) mod leases;
mod opening;
pub(crate) mod past;
mod projection;
pub(crate) mod renew;
pub(crate) mod sink;
pub(crate) mod stow;
pub(crate) mod take;
pub(crate) mod turn;
pub(crate) mod write;
