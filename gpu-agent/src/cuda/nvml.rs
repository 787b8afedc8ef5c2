//! What NVML knows of the GPUs: which there are, what they are doing, and who else uses them. The one module that knows nvml-wrapper.
//!
//! A host without NVML is a normal state, with a reason.

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use serde::{Deserialize, Serialize};

use super::device::DeviceState;

/// Most bytes of a process's name.
const NAME_BYTES: usize = 256;
/// The process through which all clients of MPS reach a GPU.
const MPS_SERVER: &str = "nvidia-cuda-mps-server";

/// NVML, loaded.
#[derive(Debug)]
pub struct Monitor(Nvml);

/// Why there is no NVML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("NVML cannot be used: {0}")]
pub struct Unavailable(pub String);

/// A GPU, or a MIG instance of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInfo {
    /// `GPU-...` or `MIG-...`.
    pub uuid: String,
    /// `NVIDIA H200`.
    pub name: String,
    /// Memory in all.
    pub memory_bytes: u64,
    /// How it is divided.
    pub sharing: Sharing,
}

/// Ways in which a GPU may be shared, each of which spoils measurements by others' work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// It is divided into instances (MIG), or is one.
    pub mig: bool,
    /// Processes reach it through one server (MPS).
    pub mps: bool,
}

/// Another process with a context on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its number; in another PID namespace it may mean nothing here.
    pub pid: u32,
    /// Its name, where it can be read.
    pub name: Option<String>,
    /// Device memory that it holds, where that is told.
    pub memory_bytes: Option<u64>,
}

/// What an administrator may have set; `None` where that is not told, as in many containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The driver stays loaded when nobody uses the GPU.
    pub persistent: Option<bool>,
    /// Application clock of the multiprocessors, in MHz. A lock (`nvidia-smi -lgc`) is not among what NVML tells.
    pub application_mhz: Option<u32>,
    /// Their highest clock, in MHz.
    pub highest_mhz: Option<u32>,
}

impl Monitor {
    /// Loads NVML.
    ///
    /// # Errors
    /// No library, no driver, or no right to use it, in words.
    pub fn open() -> Result<Self, Unavailable> {
        Nvml::init().map(Self).map_err(|error| {
            Unavailable(match error {
                NvmlError::LibloadingError(_) => "libnvidia-ml.so.1 is not there (it comes with NVIDIA's driver)".into(),
                other => other.to_string(),
            })
        })
    }

    /// Version of the driver, `580.159.04`.
    pub fn driver_version(&self) -> Option<String> {
        self.0.sys_driver_version().ok()
    }

    /// Every GPU, and where MIG is on its instances instead.
    pub fn gpus(&self) -> Vec<GpuInfo> {
        let count = self.0.device_count().unwrap_or(0);
        let devices = (0..count).filter_map(|index| self.0.device_by_index(index).ok());
        devices.flat_map(|device| self.parts(device)).collect()
    }

    /// The GPU itself, or its instances.
    fn parts(&self, device: Device<'_>) -> Vec<GpuInfo> {
        let sharing = self.sharing_of(&device);
        let info = |part: &Device<'_>| {
            let memory_bytes = part.memory_info().map_or(0, |memory| memory.total);
            Some(GpuInfo { uuid: part.uuid().ok()?, name: part.name().ok()?, memory_bytes, sharing })
        };
        if !sharing.mig {
            return info(&device).into_iter().collect();
        }
        // Slots of instances that do not exist answer with an error.
        let slots = 0..device.mig_device_count().unwrap_or(0);
        slots.filter_map(|slot| device.mig_device_by_index(slot).ok()).filter_map(|part| info(&part)).collect()
    }

    /// How a GPU is shared; `None` where there is no such GPU.
    pub fn sharing(&self, uuid: &str) -> Option<Sharing> {
        self.0.device_by_uuid(uuid).ok().map(|device| self.sharing_of(&device))
    }

    fn sharing_of(&self, device: &Device<'_>) -> Sharing {
        let mig = device.mig_mode().is_ok_and(|mode| mode.current != 0) || device.mig_is_mig_device_handle().unwrap_or(false);
        let clients = device.mps_running_compute_processes().is_ok_and(|clients| !clients.is_empty());
        let server = || self.processes(device).iter().any(|process| process.name.as_ref().is_some_and(|name| name.ends_with(MPS_SERVER)));
        Sharing { mig, mps: clients || server() }
    }

    /// Processes with a context on a GPU, but for those of `own`.
    pub fn neighbours(&self, uuid: &str, own: &[u32]) -> Vec<Neighbour> {
        let mut processes = self.0.device_by_uuid(uuid).map_or_else(|_| Vec::new(), |device| self.processes(&device));
        processes.retain(|process| !own.contains(&process.pid));
        processes
    }

    fn processes(&self, device: &Device<'_>) -> Vec<Neighbour> {
        let describe = |process: nvml_wrapper::struct_wrappers::device::ProcessInfo| Neighbour {
            pid: process.pid,
            name: self.0.sys_process_name(process.pid, NAME_BYTES).ok().filter(|name| !name.is_empty()),
            memory_bytes: match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        };
        device.running_compute_processes().unwrap_or_default().into_iter().map(describe).collect()
    }

    /// What is set on a GPU.
    pub fn settings(&self, uuid: &str) -> Settings {
        self.0.device_by_uuid(uuid).map_or_else(|_| Settings::default(), |device| settings_of(&device))
    }

    /// What a GPU is doing; zero where that is not told, as of a MIG instance.
    pub fn state(&self, uuid: &str) -> DeviceState {
        self.0.device_by_uuid(uuid).map_or_else(|_| DeviceState::default(), |device| state_of(&device))
    }
}

fn settings_of(device: &Device<'_>) -> Settings {
    let parent = device.mig_parent_device().ok();
    let device = parent.as_ref().unwrap_or(device);
    Settings {
        persistent: device.is_in_persistent_mode().ok(),
        application_mhz: device.applications_clock(Clock::SM).ok(),
        highest_mhz: device.max_clock_info(Clock::SM).ok(),
    }
}

fn state_of(device: &Device<'_>) -> DeviceState {
    // An instance has no clocks of its own; those of its GPU hold.
    let parent = device.mig_parent_device().ok();
    let device = parent.as_ref().unwrap_or(device);
    let throttle = device.current_throttle_reasons().unwrap_or(ThrottleReasons::empty());
    DeviceState {
        sm_mhz: device.clock_info(Clock::SM).unwrap_or(0),
        memory_mhz: device.clock_info(Clock::Memory).unwrap_or(0),
        power_mw: device.power_usage().unwrap_or(0),
        celsius: device.temperature(TemperatureSensor::Gpu).unwrap_or(0),
        throttle: (throttle - ThrottleReasons::GPU_IDLE).bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a host with a GPU there is a GPU; on one without there is a reason.
    #[test]
    fn nvml_is_there_or_says_why_not() {
        match Monitor::open() {
            Ok(monitor) => assert!(monitor.driver_version().is_some_and(|version| version.contains('.'))),
            Err(Unavailable(reason)) => assert!(!reason.is_empty() && reason.len() < 200, "{reason}"),
        }
    }
}
