//! NVIDIA GPUs: a device that kernels are launched on, the process that owns it, and the referee that runs in that process.
//!
//! A GPU candidate is machine code that runs on the device only. The process that owns the context is ours, so what a
//! candidate can reach is device memory; that the truth of the inputs at hand is not there while it runs is the referee's care.
//!
//! Three kinds of process: the agent ([`CudaAgent`]), which has no context, so that nothing on the device can take it down; builders,
//! which have no device; and one runner per GPU, which has both the device and the [`referee`]. `docs/referee.md` says how a candidate is
//! judged, `ARCHITECTURE.md` where things are added.
//!
//! | module | noun |
//! |---|---|
//! | `agent` | the role that the coordinator sees: builds, asks the runner, tells a candidate's fault from the device's |
//! | [`build`] | source to machine code, in sandboxed workers |
//! | [`order`], `server` | what the runner is asked, and its answers |
//! | [`referee`] | a target's memory, its truth, comparison, contest and verdict |
//! | [`device`] | what the referee needs of a GPU, as a trait |
//! | [`driver`] | the real one, behind NVIDIA's driver |
//! | [`simulated`] | one in host memory, with faults to order |
//! | [`ops`] | our own kernels, in CUDA C++ and in Rust |
//! | [`process`] | the killable child that owns a device |
//! | [`devices`] | the GPUs that this process may use, or why there is none |
//! | [`nvml`] | which GPUs there are, what they do, who else uses them |
//! | [`survey`] | the same from a child, for people |
//! | `question` | a child that answers in time |
//! | [`bandwidth`] | the roof over a device |
//! | [`devices`] | the GPUs that this process may use |

mod agent;
pub mod bandwidth;
pub mod build;
pub mod device;
pub mod devices;
pub mod driver;
pub mod nvml;
pub mod ops;
pub mod order;
pub mod process;
mod question;
pub mod referee;
mod server;
pub mod simulated;
pub mod survey;

pub(crate) use agent::BATCH;
pub use agent::{CudaAgent, CudaOptions};
pub(crate) use server::{list_devices, own_device};
