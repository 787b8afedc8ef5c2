//! The agent: devices, builders, the referee with its runner processes.

pub mod truth;
