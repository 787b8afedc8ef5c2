//! NVIDIA GPUs: a device that kernels are launched on, the process that owns it, and the referee that runs in that process.
//!
//! A GPU candidate is machine code that runs on the device only. The process that owns the context is ours, so what a
//! candidate can reach is device memory; that the truth of the inputs at hand is not there while it runs is the referee's care.

mod agent;
pub mod bandwidth;
pub mod build;
pub mod device;
pub mod devices;
pub mod driver;
pub mod lock;
pub mod nvml;
pub mod ops;
pub mod order;
pub mod process;
pub mod referee;
mod server;
pub mod simulated;

pub use agent::{CudaAgent, CudaOptions};
pub(crate) use server::{list_devices, own_device};
