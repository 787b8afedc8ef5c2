//! The agent: devices, builders, the referee with its runner processes.

pub mod agent;
pub mod bandwidth;
pub mod host;
pub mod python;
pub mod referee;
