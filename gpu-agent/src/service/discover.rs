//! Which devices of this host may serve.

use std::time::Duration;

use kernelopt_shared::task::AgentError;

use super::identity;
use crate::cpu::child::Reexec;
use crate::cuda::device::DeviceFacts;
use crate::cuda::devices;
use crate::cuda::survey::{self, Survey, Surveyed};

/// How long NVML may take to answer.
const SURVEY_LIMIT: Duration = Duration::from_secs(30);
/// Part of the names of our own processes: another agent takes turns with us.
const OWN: &str = "kernelopt";

/// What the operator wants to serve with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// All GPUs; the processor where there is none.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// All GPUs.
    Gpus,
    /// The GPU of this number, among those that CUDA shows.
    Gpu(usize),
}

/// A device of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The processor.
    Cpu,
    /// A GPU and its number.
    Gpu(usize, DeviceFacts),
}

impl Found {
    /// `cpu`, `cuda0`: the device's part of its agent's name.
    pub fn name(&self) -> String {
        match self {
            Self::Cpu => "cpu".into(),
            Self::Gpu(ordinal, _) => format!("cuda{ordinal}"),
        }
    }

    /// Which device it is.
    pub fn identity(&self) -> kernelopt_shared::message::DeviceIdentity {
        match self {
            Self::Cpu => identity::processor(),
            Self::Gpu(_, facts) => identity::gpu(facts),
        }
    }
}

/// The devices that serve, and why others do not: `cuda1: ...`. A GPU that others use spoils every figure, and so it only serves where
/// the operator permits it.
///
/// # Errors
/// None may serve.
pub fn find(choice: Choice, permit_shared: bool, reexec: &Reexec) -> Result<(Vec<Found>, Vec<String>), AgentError> {
    if choice == Choice::Cpu {
        return Ok((vec![Found::Cpu], Vec::new()));
    }
    let gpus = match devices::all(reexec) {
        Ok(gpus) => gpus,
        Err(absent) if choice == Choice::Auto => return Ok((vec![Found::Cpu], vec![format!("no GPU: {absent}")])),
        Err(absent) => return Err(absent.into()),
    };
    let chosen: Vec<(usize, DeviceFacts)> = match choice {
        Choice::Gpu(ordinal) => vec![(ordinal, devices::nth(reexec, ordinal)?)],
        Choice::Auto | Choice::Gpus | Choice::Cpu => gpus.into_iter().enumerate().collect(),
    };
    let survey = survey::take(reexec, SURVEY_LIMIT);
    if let Err(unknown) = &survey {
        tracing::warn!("{unknown}: who else uses the GPUs is not known");
    }
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for (ordinal, facts) in chosen {
        match shared(&facts, &survey) {
            Some(reason) if !permit_shared => refused.push(format!("cuda{ordinal}: {reason}")),
            _ => found.push(Found::Gpu(ordinal, facts)),
        }
    }
    if found.is_empty() {
        let remedy = "Use a GPU that nobody else works on; --permit-shared-gpu takes it all the same, and its figures are of little worth.";
        return Err(AgentError::Environment { what: format!("no GPU may serve: {}", refused.join("; ")), remedy: remedy.into() });
    }
    Ok((found, refused))
}

/// How a GPU is shared, if it is.
fn shared(facts: &DeviceFacts, survey: &Survey) -> Option<String> {
    let known = survey.iter().flatten().find(|known| known.is(&facts.uuid));
    let instance = identity::gpu(facts).partition.is_some() || known.is_some_and(|known| known.gpu.sharing.mig);
    if instance {
        return Some("it is an instance of a GPU that others may use (MIG)".into());
    }
    let Surveyed { gpu, neighbours, .. } = known?;
    if gpu.sharing.mps {
        return Some("it is reached through a server that others share (MPS)".into());
    }
    let stranger = neighbours.iter().find(|process| process.name.as_ref().is_none_or(|name| !name.contains(OWN)))?;
    let name = stranger.name.as_deref().and_then(|name| name.rsplit('/').next()).unwrap_or("a process");
    Some(format!("it is used by {name} (process {})", stranger.pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::nvml::{GpuInfo, Neighbour, Settings, Sharing, Unavailable};

    fn h200() -> DeviceFacts {
        DeviceFacts {
            name: "NVIDIA H200".into(),
            uuid: "GPU-1a-2b".into(),
            architecture: 90,
            multiprocessors: 132,
            l2_bytes: 60 << 20,
            memory_bytes: 140 << 30,
            shared_bytes: 227 << 10,
            driver: "580.159.04".into(),
        }
    }

    fn survey(sharing: Sharing, users: &[&str]) -> Survey {
        let gpu = GpuInfo { uuid: "GPU-1A-2b".into(), name: "NVIDIA H200".into(), memory_bytes: 0, sharing };
        let neighbour = |name: &&str| Neighbour { pid: 7, name: Some((*name).to_owned()), memory_bytes: None };
        Ok(vec![Surveyed { gpu, neighbours: users.iter().map(neighbour).collect(), settings: Settings::default() }])
    }

    #[test]
    fn a_gpu_that_others_use_is_told_with_its_reason() {
        let alone = Sharing::default();
        assert_eq!(shared(&h200(), &survey(alone, &[])), None);
        assert_eq!(shared(&h200(), &survey(alone, &["/usr/bin/kernelopt"])), None, "agents take turns");
        let reason = |survey: &Survey| shared(&h200(), survey).unwrap_or_default();
        assert_eq!(reason(&survey(alone, &["/usr/bin/kernelopt", "/opt/bin/python3"])), "it is used by python3 (process 7)");
        assert!(reason(&survey(Sharing { mps: true, ..alone }, &[])).contains("MPS"));
        assert!(reason(&survey(Sharing { mig: true, ..alone }, &[])).contains("MIG"));
        assert_eq!(shared(&h200(), &Err(Unavailable("no NVML".into()))), None);
        let instance = DeviceFacts { name: "NVIDIA H200 MIG 1g.18gb".into(), ..h200() };
        assert!(shared(&instance, &Err(Unavailable("no NVML".into()))).unwrap().contains("MIG"));
    }

    #[test]
    fn the_processor_serves_where_there_is_no_gpu() {
        let nobody = Reexec { program: "/no/such/program".into(), words: Vec::new() };
        let (found, told) = find(Choice::Auto, false, &nobody).unwrap();
        assert_eq!((found[0].name().as_str(), found.len(), told.len()), ("cpu", 1, 1));
        assert!(matches!(find(Choice::Gpus, false, &nobody), Err(AgentError::Environment { .. })));
        assert_eq!(find(Choice::Cpu, false, &nobody).unwrap(), (vec![Found::Cpu], Vec::new()));
    }
}
