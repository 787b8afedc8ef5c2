//! Where the agent of a device comes from.

use std::path::PathBuf;

use kernelopt_shared::bundle::Manifest;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::task::{Agent, AgentError};

use super::canary::Canary;
use super::settings::PREFETCH;
use crate::agent::CpuAgent;
use crate::cpu::child::Reexec;
use crate::cuda::device::DeviceFacts;
use crate::cuda::{CudaAgent, CudaOptions, devices};
use crate::lock::{self, DeviceLock};
use crate::python::Python;

/// Makes the blocking [`Agent`] of one device. Called on the device's own thread.
pub trait Workshop: Send + Sync + 'static {
    /// An agent for models captured as `manifest` says; it ends its work when `stop` is asked.
    ///
    /// # Errors
    /// The host lacks something, or the model is for another device.
    fn agent(&self, manifest: &Manifest, stop: &Stop) -> Result<Box<dyn Agent>, AgentError>;

    /// Tasks that the device likes to hold at a time: enough to keep its builders busy, few enough that the search learns meanwhile.
    fn capacity(&self) -> u16 {
        PREFETCH
    }

    /// Waits until no other process of this host measures on the device; none where the agent itself does so.
    ///
    /// # Errors
    /// As [`lock::take_turn`].
    fn turn(&self, stop: &Stop) -> Result<Option<DeviceLock>, AgentError> {
        let _ = stop;
        Ok(None)
    }

    /// What the device must get right before its failures are blamed on tasks.
    fn canary(&self) -> &Canary;

    /// Has the Python that profiles and checks models compile something small; nothing where none does.
    ///
    /// # Errors
    /// It cannot, or gets it wrong; [`AgentError::Stopped`] when `stop` is asked.
    fn test_python(&self, stop: &Stop) -> Result<(), AgentError> {
        let _ = stop;
        Ok(())
    }
}

/// Agents for this host's processor.
pub struct CpuWorkshop {
    /// How to run this program again as a child.
    pub reexec: Reexec,
    /// Folder for built kernels.
    pub cache: PathBuf,
    /// The interpreter with torch.
    pub python: Python,
    /// Name of the lock that all agents of the host share.
    pub uuid: String,
    /// Its test.
    pub canary: Canary,
}

impl Workshop for CpuWorkshop {
    fn agent(&self, manifest: &Manifest, stop: &Stop) -> Result<Box<dyn Agent>, AgentError> {
        of_kind("cpu", manifest)?;
        Ok(Box::new(CpuAgent::new(manifest, self.reexec.clone(), self.cache.clone(), self.python.clone(), stop.clone())?))
    }

    fn capacity(&self) -> u16 {
        crate::agent::BATCH
    }

    /// A processor is held for the whole task: a build disturbs another process's measurement.
    fn turn(&self, stop: &Stop) -> Result<Option<DeviceLock>, AgentError> {
        lock::take_turn(&self.uuid, stop).map(Some)
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }

    fn test_python(&self, stop: &Stop) -> Result<(), AgentError> {
        self.python.canary("cpu", stop)
    }
}

/// Agents for one GPU, which take their turns themselves: they build while another measures.
pub struct CudaWorkshop {
    /// The GPU.
    pub facts: DeviceFacts,
    /// What its agents are made with.
    pub options: CudaOptions,
    /// Its test.
    pub canary: Canary,
}

impl Workshop for CudaWorkshop {
    fn agent(&self, manifest: &Manifest, stop: &Stop) -> Result<Box<dyn Agent>, AgentError> {
        of_kind("cuda", manifest)?;
        if let Some(what) = devices::other_architecture(&manifest.device, &self.facts) {
            return Err(AgentError::Baseline { kernel: manifest.model.clone(), what: format!("cannot be run here: {what}") });
        }
        Ok(Box::new(CudaAgent::on(self.facts.clone(), self.options.clone(), stop.clone())?))
    }

    fn capacity(&self) -> u16 {
        crate::cuda::BATCH
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }

    fn test_python(&self, stop: &Stop) -> Result<(), AgentError> {
        self.options.python.clone().on_gpu(&self.facts.uuid).canary("cuda", stop)
    }
}

fn of_kind(kind: &str, manifest: &Manifest) -> Result<(), AgentError> {
    let captured = &manifest.device.kind;
    if captured == kind {
        return Ok(());
    }
    Err(AgentError::Baseline { kernel: manifest.model.clone(), what: format!("is for {captured}, and this device is {kind}") })
}
