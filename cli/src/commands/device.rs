//! The agent for the device that a bundle is for.

use std::sync::Arc;

use kernelopt_gpu_agent::cpu::child::Reexec;
use kernelopt_gpu_agent::cuda::device::DeviceFacts;
use kernelopt_gpu_agent::cuda::{CudaOptions, devices};
use kernelopt_gpu_agent::lock;
use kernelopt_gpu_agent::python::Python;
use kernelopt_gpu_agent::service::{Canary, CpuWorkshop, CudaWorkshop, Served, identity};
use kernelopt_shared::bundle::{CapturedDevice, Manifest};
use kernelopt_shared::exit::ExitCode;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::task::Agent;

use crate::args::Device;
use crate::failure::Failure;

/// An agent for `device`, which must be of the kind that the model was captured on. Says on stderr which GPU it is.
pub fn agent_for(manifest: &Manifest, device: Device, stop: &Stop) -> Result<Box<dyn Agent>, Failure> {
    Ok(serving(manifest, device)?.workshop.agent(manifest, stop)?)
}

/// The same as what an agent service serves with.
pub fn serving(manifest: &Manifest, device: Device) -> Result<Served, Failure> {
    let (python, reexec, cache) = (Python::find(), super::reexec()?, super::cache_folder());
    let canary = |canary: Result<Canary, serde_json::Error>| canary.map_err(|e| Failure::new(ExitCode::Failure, e, "Report this."));
    match (manifest.device.kind.as_str(), device) {
        ("cpu", Device::Auto | Device::Cpu) => {
            let identity = identity::processor();
            let (uuid, canary) = (identity.uuid.clone(), canary(Canary::cpu())?);
            let workshop = CpuWorkshop { reexec, cache: cache.join("builds"), python, uuid, canary };
            Ok(Served { name: "cpu".into(), identity, workshop: Arc::new(workshop) })
        }
        ("cuda", Device::Auto) => serving(manifest, Device::Cuda(0)),
        ("cuda", Device::Cuda(ordinal)) => {
            let facts = gpu_for(&manifest.device, &reexec, ordinal)?;
            let (identity, options) = (identity::gpu(&facts), CudaOptions { reexec, cache: cache.join("kernels"), python, ordinal });
            let workshop = CudaWorkshop { facts, options, canary: canary(Canary::cuda())? };
            Ok(Served { name: format!("cuda{ordinal}"), identity, workshop: Arc::new(workshop) })
        }
        (captured, _) => {
            let message = format!("the bundle was captured on {captured}; its kernels are for that device alone");
            Err(Failure::new(ExitCode::BadInput, message, "Leave --device out, or capture the model with --device of the other kind."))
        }
    }
}

/// The GPU number `ordinal`, on which kernels of the capturing one can run.
fn gpu_for(captured: &CapturedDevice, reexec: &Reexec, ordinal: usize) -> Result<DeviceFacts, Failure> {
    let gpu = devices::nth(reexec, ordinal)?;
    if let Some(problem) = of_another_architecture(captured, &gpu) {
        return Err(problem);
    }
    eprintln!("device: cuda:{ordinal}, {}, driver {}, {}", gpu.name, gpu.driver, short(&gpu.uuid));
    if captured.name != gpu.name && !captured.name.is_empty() {
        eprintln!(
            "note: captured on {}, where the compiler chose its configurations; capture here to compare with its best",
            captured.name
        );
    }
    if let Some(holder) = lock::holder_of(&gpu.uuid) {
        eprintln!("note: {holder} measures on this GPU; measurements take turns, and waiting counts as time spent");
    }
    Ok(gpu)
}

/// A bundle for another architecture than the GPU's.
fn of_another_architecture(captured: &CapturedDevice, gpu: &DeviceFacts) -> Option<Failure> {
    let message = devices::other_architecture(captured, gpu)?;
    let remedy = "Capture the model again on this machine: python -m kernelopt capture MODULE:FACTORY -o BUNDLE --device cuda";
    Some(Failure::new(ExitCode::BadInput, message, remedy))
}

/// Enough of a UUID to tell a host's GPUs apart, `GPU-210d51c9`.
fn short(uuid: &str) -> String {
    uuid.split('-').take(2).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> DeviceFacts {
        DeviceFacts {
            name: "NVIDIA H200".into(),
            uuid: "GPU-210d51c9-3f18-3025-9912-b3cad644277e".into(),
            architecture: 90,
            multiprocessors: 132,
            l2_bytes: 60 << 20,
            memory_bytes: 140 << 30,
            shared_bytes: 227 << 10,
            driver: "580.159.04".into(),
        }
    }

    fn captured(capability: Option<&str>) -> CapturedDevice {
        CapturedDevice { kind: "cuda".into(), name: "NVIDIA L4".into(), threads: 1, capability: capability.map(str::to_owned) }
    }

    #[test]
    fn only_kernels_of_the_same_architecture_are_tuned() {
        let refused = of_another_architecture(&captured(Some("8.9")), &h200()).unwrap();
        assert_eq!(refused.code(), ExitCode::BadInput);
        assert!(of_another_architecture(&captured(Some("9.0")), &h200()).is_none());
        assert!(of_another_architecture(&captured(Some("12.0")), &h200()).is_some());
        // A capture without a GPU says nothing of the architecture, and its kernels have no launch.
        assert!(of_another_architecture(&captured(None), &h200()).is_none());
        assert!(of_another_architecture(&captured(Some("new")), &h200()).is_none());
    }

    #[test]
    fn a_uuid_is_cut_where_people_cut_it() {
        assert_eq!(short(&h200().uuid), "GPU-210d51c9");
        assert_eq!(short("odd"), "odd");
    }
}
