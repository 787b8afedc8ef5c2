//! What takes part in a contest: loaded kernels, in the order in which they are launched, and the memory between them.

use kernelopt_shared::launch::Launch;
use kernelopt_shared::verdict::Verdict;

use super::Foul;
use super::memory::Slot;
use super::plan::Plan;
use super::workspace::Workspace;
use crate::cuda::device::{Device, Done, KernelId, Run, Step, Value};
use crate::cuda::order::{Built, Candidate};

/// Loaded kernels and how they are launched.
#[derive(Debug, Default)]
pub struct Player {
    stages: Vec<Stage>,
    /// Scratch memory.
    pub workspace: Workspace,
}

#[derive(Debug)]
struct Stage {
    kernel: KernelId,
    launch: Launch,
}

impl Player {
    /// Loads one kernel, which has no scratch.
    pub fn one(device: &mut dyn Device, built: &Built) -> Done<Self> {
        let kernel = device.load(&built.binary)?;
        Ok(Self { stages: vec![Stage { kernel, launch: built.launch.clone() }], workspace: Workspace::default() })
    }

    /// Loads a candidate, with scratch for `count` launches at a time. What was loaded until an error is given back.
    pub fn load(
        device: &mut dyn Device,
        plan: &Plan,
        candidate: &Candidate,
        count: usize,
        blame: impl Fn(crate::cuda::device::DeviceError) -> Foul,
    ) -> Result<Self, Foul> {
        let first = candidate.stages.first().ok_or_else(|| rejected("nothing is launched".into()))?;
        candidate.stages.iter().try_for_each(|stage| plan.grid(&stage.launch).map(drop))?;
        let mut player = Self::default();
        for built in &candidate.stages {
            match device.load(&built.binary) {
                Ok(kernel) => player.stages.push(Stage { kernel, launch: built.launch.clone() }),
                Err(error) => {
                    player.unload(device)?;
                    return Err(blame(error));
                }
            }
        }
        match Workspace::allocate(device, plan, &candidate.scratch, &first.launch, count) {
            Ok(workspace) => player.workspace = workspace,
            Err(foul) => {
                player.unload(device)?;
                return Err(foul);
            }
        }
        Ok(player)
    }

    /// Gives everything back.
    pub fn unload(self, device: &mut dyn Device) -> Done<()> {
        self.stages.into_iter().try_for_each(|stage| device.unload(stage.kernel))?;
        self.workspace.free(device)
    }

    /// All that one launch of the target is on `slot`, with scratch set `set`.
    pub fn steps(&self, plan: &Plan, slot: &Slot, set: usize) -> Result<Vec<Step>, Foul> {
        let mut steps: Vec<Step> = self.workspace.zeroing(set).collect();
        for Stage { kernel, launch } in &self.stages {
            let arguments = self.arguments(launch, plan, slot, set)?;
            steps.push(Step::Launch(Run { kernel: *kernel, grid: plan.grid(launch)?, arguments }));
        }
        Ok(steps)
    }

    fn arguments(&self, launch: &Launch, plan: &Plan, slot: &Slot, set: usize) -> Result<Vec<Value>, Foul> {
        let is_fixed = |name: &str| launch.constants.contains_key(name);
        if launch.arguments.is_empty() {
            return Ok(slot.arguments(plan, &is_fixed)?);
        }
        let value = |name: &String| match self.workspace.address(set, name) {
            Some(address) => Ok(Value::Pointer(address)),
            None => slot.argument(plan, name)?.ok_or_else(|| rejected(format!("{} is passed {name}, which is not there", launch.entry))),
        };
        launch.arguments.iter().filter(|name| !is_fixed(name)).map(value).collect()
    }
}

fn rejected(reason: String) -> Foul {
    Foul::Candidate(Verdict::Rejected { reason })
}
