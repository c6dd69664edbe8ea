//! The rules of tasks and turns as pure functions: no clock, no I/O, no randomness. What happens is an argument, what must
//! follow is a result; `store` carries it out in one script.

pub mod class;
pub mod due;
pub mod event;
pub mod fold;
pub mod page;
pub mod position;
pub mod reason;
pub mod record;
pub mod retry;
pub mod state;
pub mod suspension;
pub mod wire;
