//! The driver and the GPUs. Where there is none, that is one line and no fault.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kernelopt_gpu_agent::cuda::device::DeviceFacts;
use kernelopt_gpu_agent::cuda::devices::{self, Absent};
use kernelopt_gpu_agent::cuda::survey;
use kernelopt_shared::exit::UserError;

use super::{Check, Places, gpu_builder, gpu_python, gpu_use};

/// Longest that NVML may take.
const NVML_LIMIT: Duration = Duration::from_secs(60);
const GIB: f64 = (1u64 << 30) as f64;
/// Least architecture that torch's Triton kernels run on.
const LEAST_ARCHITECTURE: u32 = 70;
/// What a host without a GPU is still good for.
const CALM: &str = "Triton bundles can be inspected, not tuned here";
/// Vendor number of NVIDIA on the PCI bus.
const NVIDIA: &str = "0x10de";
/// First digits of the class of what draws or computes, on the PCI bus.
const DISPLAY: &str = "0x03";

/// Everything about GPUs: the driver, the devices, who uses them, and what builds for them.
pub(super) fn checks(places: &Places) -> Vec<Check> {
    let gpus = match devices::all(&places.reexec) {
        Ok(gpus) => gpus,
        Err(absent) => return vec![without(&absent, plugged_in(Path::new("/sys/bus/pci/devices")))],
    };
    let mut checks = Vec::new();
    checks.extend(gpus.first().map(|gpu| Check::ok("driver", gpu.driver.clone())));
    checks.extend(gpus.iter().enumerate().map(|(ordinal, gpu)| describe(ordinal, gpu)));
    checks.extend(gpu_use::checks(&gpus, &survey::take(&places.reexec, NVML_LIMIT)));
    checks.extend(gpu_python::checks(&places.python));
    checks.extend(gpus.first().map(|gpu| gpu_builder::check(places, gpu.architecture)));
    checks
}

fn describe(ordinal: usize, gpu: &DeviceFacts) -> Check {
    let memory = gpu.memory_bytes as f64 / GIB;
    let detail = format!("cuda:{ordinal} {}, {memory:.1} GiB, sm_{}, {}", gpu.name, gpu.architecture, gpu.uuid);
    if gpu.architecture < LEAST_ARCHITECTURE {
        return Check::warn("gpu", detail, "Use a GPU of compute capability 7.0 or later: Triton's kernels do not run on older ones.");
    }
    Check::ok("gpu", detail)
}

/// No GPU to work on. A fault only where somebody means there to be one: a driver that does not work, or a GPU that lacks one.
fn without(absent: &Absent, plugged_in: bool) -> Check {
    let remedy = absent.remedy().unwrap_or_default();
    match absent {
        Absent::Driver | Absent::Gpu if !plugged_in => Check::ok("gpu", format!("no GPU: {CALM}")),
        Absent::Hidden { value } if matches!(value.trim(), "" | "-1") => {
            Check::ok("gpu", format!("no GPU, since CUDA_VISIBLE_DEVICES is {value:?}: {CALM}"))
        }
        Absent::Driver => Check::warn("gpu", "an NVIDIA GPU is plugged in, and libcuda.so is not there", remedy),
        Absent::Gpu => Check::warn("gpu", "an NVIDIA GPU is plugged in, and the driver shows none", remedy),
        Absent::Hidden { .. } => Check::warn("gpu", absent.to_string(), remedy),
        Absent::Old { .. } | Absent::Broken(_) | Absent::Silent { .. } => Check::missing("driver", absent.to_string(), remedy),
    }
}

/// Is there an NVIDIA GPU on the bus? Containers see their host's bus.
fn plugged_in(bus: &Path) -> bool {
    let Ok(devices) = fs::read_dir(bus) else { return false };
    let starts = |path: &Path, start: &str| fs::read_to_string(path).is_ok_and(|text| text.starts_with(start));
    devices.flatten().any(|device| starts(&device.path().join("vendor"), NVIDIA) && starts(&device.path().join("class"), DISPLAY))
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn no_gpu_is_calm_and_a_broken_driver_is_not() {
        let hidden = |value: &str| Absent::Hidden { value: value.into() };
        let status = |absent: &Absent, plugged_in| without(absent, plugged_in).status;
        assert_eq!(without(&Absent::Driver, false).detail, "no GPU: Triton bundles can be inspected, not tuned here");
        assert_eq!([status(&Absent::Gpu, false), status(&hidden(""), true), status(&hidden("-1"), false)], [Status::Ok; 3]);
        assert_eq!([status(&Absent::Driver, true), status(&Absent::Gpu, true), status(&hidden("7"), false)], [Status::Warn; 3]);
        for absent in [Absent::Old { version: 11_080 }, Absent::Broken("x".into()), Absent::Silent { seconds: 90 }] {
            let check = without(&absent, false);
            assert_eq!((check.name, check.status), ("driver", Status::Missing));
            assert!(check.remedy.is_some_and(|remedy| remedy.contains("driver") || remedy.contains("reset")));
        }
    }

    #[test]
    fn a_gpu_is_found_on_the_bus_by_its_vendor_and_class() {
        let bus = tempfile::tempdir().unwrap();
        let plug = |slot: &str, vendor: &str, class: &str| {
            let slot = bus.path().join(slot);
            fs::create_dir(&slot).unwrap();
            fs::write(slot.join("vendor"), vendor).unwrap();
            fs::write(slot.join("class"), class).unwrap();
        };
        plug("0000:00:01.0", "0x1002\n", "0x030000\n");
        plug("0000:00:02.0", "0x10de\n", "0x040300\n");
        assert!(!plugged_in(bus.path()));
        plug("0000:00:03.0", "0x10de\n", "0x030200\n");
        assert!(plugged_in(bus.path()));
        assert!(!plugged_in(&bus.path().join("none")));
    }

    #[test]
    fn a_gpu_is_described_as_device_names_it() {
        let gpu = DeviceFacts {
            name: "NVIDIA H200".into(),
            uuid: "GPU-210d51c9-3f18-3025-9912-b3cad644277e".into(),
            architecture: 90,
            multiprocessors: 132,
            l2_bytes: 60 << 20,
            memory_bytes: 150_109_880_320,
            shared_bytes: 227 << 10,
            driver: "580.159.04".into(),
        };
        let check = describe(1, &gpu);
        assert_eq!(check.detail, "cuda:1 NVIDIA H200, 139.8 GiB, sm_90, GPU-210d51c9-3f18-3025-9912-b3cad644277e");
        assert_eq!(describe(0, &DeviceFacts { architecture: 61, ..gpu }).status, Status::Warn);
    }
}
