//! The agent: devices, builders, the referee with its runner processes.

pub mod agent;
pub mod bandwidth;
pub mod cpu;
pub mod cuda;
pub mod host;
pub mod lock;
mod model_gate;
pub mod python;
pub mod referee;
pub mod service;
pub mod truth;
