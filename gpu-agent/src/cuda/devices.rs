//! The GPUs of this host, as a child process sees them: the driver is not loaded into the agent.

use std::time::Duration;

use kernelopt_shared::bundle::CapturedDevice;
use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::task::AgentError;
use serde::{Deserialize, Serialize};

use super::device::{DeviceError, DeviceFacts};
use super::question::{self, Unanswered};
use crate::cpu::child::Reexec;

/// The first driver that can say what a kernel's parameters are, as `cuDriverGetVersion` counts: 12.4.
pub const LEAST_DRIVER: i32 = 12_040;
/// Longest that the driver may take to start. On a host with eight GPUs and without persistence mode that is half a minute.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Environment variable by which CUDA's own library hides GPUs.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Why there is no GPU to work on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Absent {
    /// Nothing to ask.
    #[error("no NVIDIA driver: libcuda.so is not there")]
    Driver,
    /// One that cannot do what we need.
    #[error("the NVIDIA driver is for CUDA {}.{}; 12.4 (driver 550) or later is needed", version / 1000, version % 1000 / 10)]
    Old {
        /// As `cuDriverGetVersion` counts.
        version: i32,
    },
    /// The driver shows none.
    #[error("the driver shows no GPU")]
    Gpu,
    /// The driver shows none of those that the variable names.
    #[error("the driver shows no GPU, and CUDA_VISIBLE_DEVICES is {value:?}")]
    Hidden {
        /// Of `CUDA_VISIBLE_DEVICES`.
        value: String,
    },
    /// The driver fails, in its own words.
    #[error("{0}")]
    Broken(String),
    /// The driver does not answer.
    #[error("the driver did not answer within {seconds} s")]
    Silent {
        /// How long it had.
        seconds: u64,
    },
}

impl Absent {
    /// The driver shows no GPU to this process.
    pub(super) fn gpu() -> Self {
        std::env::var_os(VISIBLE).map_or(Self::Gpu, |value| Self::Hidden { value: value.to_string_lossy().into_owned() })
    }
}

impl UserError for Absent {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Environment
    }

    fn remedy(&self) -> Option<String> {
        let remedy = match self {
            Self::Driver => {
                "Install NVIDIA's driver, 550 or later (https://www.nvidia.com/drivers); a container must be given the GPU (--gpus all)."
            }
            Self::Old { .. } => {
                "Update NVIDIA's driver (https://www.nvidia.com/drivers, or the distribution's nvidia-driver package) and restart; a container \
                 uses its host's driver."
            }
            Self::Gpu => "Look whether nvidia-smi shows a GPU; a container must be given it (--gpus all).",
            Self::Hidden { .. } => "Unset CUDA_VISIBLE_DEVICES, or let it name a GPU that nvidia-smi -L shows.",
            Self::Broken(_) => "Look what nvidia-smi says; after an update of the driver the machine must be restarted.",
            Self::Silent { .. } => {
                "Look whether nvidia-smi answers, and what the kernel's log says of the GPU (lines with Xid): a GPU that hangs must be reset."
            }
        };
        Some(remedy.into())
    }
}

impl From<Absent> for AgentError {
    fn from(absent: Absent) -> Self {
        let remedy = absent.remedy().unwrap_or_default();
        Self::Environment { what: format!("no GPU can be used: {absent}"), remedy }
    }
}

impl From<Absent> for DeviceError {
    fn from(absent: Absent) -> Self {
        Self::Device(absent.to_string())
    }
}

/// All GPUs that this process may use, at least one.
///
/// # Errors
/// There is none.
pub fn all(reexec: &Reexec) -> Result<Vec<DeviceFacts>, Absent> {
    all_within(reexec, PATIENCE)
}

fn all_within(reexec: &Reexec, limit: Duration) -> Result<Vec<DeviceFacts>, Absent> {
    question::ask::<Result<Vec<DeviceFacts>, Absent>>(reexec, "gpus", limit).unwrap_or_else(|error| match error {
        Unanswered::Silent(limit) => Err(Absent::Silent { seconds: limit.as_secs() }),
        Unanswered::Ended(status) => Err(Absent::Broken(format!("the driver ended the process that asked it ({status})"))),
        Unanswered::Io(error) => Err(Absent::Broken(format!("the driver could not be asked: {error}"))),
    })
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

/// Why kernels captured on one GPU cannot be tuned on another, if so. The compiler chose block sizes, warps and instructions for one
/// architecture: elsewhere its kernels may not even start, and a win over them would say nothing.
pub fn other_architecture(captured: &CapturedDevice, gpu: &DeviceFacts) -> Option<String> {
    let wanted = captured.architecture().filter(|wanted| *wanted != gpu.architecture)?;
    Some(format!(
        "the bundle was captured on {} (sm_{wanted}), and {} is sm_{}: the compiler's configurations are for the other architecture",
        captured.name, gpu.name, gpu.architecture
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_the_way_from_the_child_and_has_a_remedy() {
        let hidden = Absent::Hidden { value: "7".into() };
        for absent in [
            Absent::Driver,
            Absent::Old { version: 11_080 },
            Absent::Gpu,
            hidden,
            Absent::Broken("x".into()),
            Absent::Silent { seconds: 9 },
        ] {
            let said = serde_json::to_string(&Err::<Vec<DeviceFacts>, _>(&absent)).unwrap();
            let script = format!("echo '{said}'");
            let child = Reexec { program: "sh".into(), words: vec!["-c".into(), script] };
            assert_eq!(all_within(&child, Duration::from_secs(20)), Err(absent.clone()));
            assert!(absent.remedy().is_some_and(|remedy| remedy.ends_with('.')));
        }
        assert!(Absent::Old { version: 11_080 }.to_string().contains("CUDA 11.8"));
    }

    #[test]
    fn a_driver_that_hangs_or_crashes_is_told_from_one_that_is_not_there() {
        let child = |script: &str| Reexec { program: "sh".into(), words: vec!["-c".into(), script.into()] };
        assert_eq!(all_within(&child("exec sleep 60"), Duration::from_millis(50)), Err(Absent::Silent { seconds: 0 }));
        assert!(matches!(all_within(&child("kill -SEGV $$"), Duration::from_secs(20)), Err(Absent::Broken(why)) if why.contains("signal")));
    }
}
