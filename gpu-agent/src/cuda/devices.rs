//! The GPUs of this host, as a child process sees them: the driver is not loaded into the agent.

use kernelopt_shared::task::AgentError;

use super::device::DeviceFacts;
use crate::cpu::child::Reexec;

/// What to do where no GPU is found.
const REMEDY: &str = "Install NVIDIA's driver (570 or later), and look whether nvidia-smi shows a GPU and CUDA_VISIBLE_DEVICES does not hide it. \
                      In a container, the GPU must be passed in (--gpus all).";

/// All GPUs that this process may use.
///
/// # Errors
/// There is no driver, or it is too old.
pub fn all(reexec: &Reexec) -> Result<Vec<DeviceFacts>, AgentError> {
    let doing = "looking for GPUs";
    let output = reexec.command("gpus").output().map_err(|source| AgentError::Io { doing: doing.into(), source })?;
    let found: Result<Result<Vec<DeviceFacts>, String>, _> = serde_json::from_slice(&output.stdout);
    match found {
        Ok(Ok(devices)) if devices.is_empty() => Err(none("the driver shows no GPU")),
        Ok(Ok(devices)) => Ok(devices),
        Ok(Err(reason)) => Err(none(&reason)),
        Err(_) => Err(none(&format!("the driver ended the process that asked it ({})", output.status))),
    }
}

/// The GPU number `ordinal`.
///
/// # Errors
/// There is none.
pub fn nth(reexec: &Reexec, ordinal: usize) -> Result<DeviceFacts, AgentError> {
    let devices = all(reexec)?;
    let names: Vec<String> = devices.iter().enumerate().map(|(i, device)| format!("cuda:{i} is {}", device.name)).collect();
    devices.into_iter().nth(ordinal).ok_or_else(|| AgentError::Environment {
        what: format!("there is no GPU cuda:{ordinal}; {}", names.join(", ")),
        remedy: "Name one of these with --device cuda:N.".into(),
    })
}

fn none(reason: &str) -> AgentError {
    AgentError::Environment { what: format!("no GPU can be used: {reason}"), remedy: REMEDY.into() }
}
