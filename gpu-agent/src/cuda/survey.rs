//! What NVML knows of this host's GPUs, asked in a child: for people, before anything is measured.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::nvml::{GpuInfo, Monitor, Neighbour, Settings, Unavailable};
use super::question;
use crate::cpu::child::Reexec;

/// What NVML says, or why it says nothing.
pub type Survey = Result<Vec<Surveyed>, Unavailable>;

/// One GPU, or a MIG instance of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surveyed {
    /// Which, and how it is divided.
    pub gpu: GpuInfo,
    /// Who has a context on it.
    pub neighbours: Vec<Neighbour>,
    /// What is set on it.
    pub settings: Settings,
}

impl Surveyed {
    /// True of the GPU of this UUID. The driver and NVML begin the name of an instance differently (`GPU-`, `MIG-`).
    pub fn is(&self, uuid: &str) -> bool {
        let digits = |uuid: &str| uuid.split_once('-').map(|(_, digits)| digits.to_ascii_lowercase());
        digits(&self.gpu.uuid).is_some() && digits(&self.gpu.uuid) == digits(uuid)
    }
}

/// Asks NVML, in a child that has `limit`.
///
/// # Errors
/// No NVML, or no answer.
pub fn take(reexec: &Reexec, limit: Duration) -> Survey {
    question::ask(reexec, "nvml", limit).unwrap_or_else(|error| Err(Unavailable(error.to_string())))
}

/// `nvml`: prints the survey as JSON.
pub(crate) fn print() -> Result<(), String> {
    let survey: Survey = Monitor::open().map(|monitor| {
        let look = |gpu: GpuInfo| Surveyed {
            neighbours: monitor.neighbours(&gpu.uuid, &[std::process::id()]),
            settings: monitor.settings(&gpu.uuid),
            gpu,
        };
        monitor.gpus().into_iter().map(look).collect()
    });
    serde_json::to_writer(std::io::stdout(), &survey).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::nvml::Sharing;
    use super::*;

    #[test]
    fn an_instance_is_the_same_under_both_of_its_names() {
        let known = |uuid: &str| {
            let gpu = GpuInfo { uuid: uuid.into(), name: String::new(), memory_bytes: 0, sharing: Sharing::default() };
            Surveyed { gpu, neighbours: Vec::new(), settings: Settings::default() }
        };
        assert!(known("MIG-1a-2b").is("GPU-1A-2b"));
        assert!(!known("GPU-1a-2b").is("GPU-1a-2c") && !known("odd").is("odd"));
    }
}
