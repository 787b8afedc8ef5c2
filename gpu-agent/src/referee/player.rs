//! One side of a contest: a process and the memory that only it and the referee see.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kernelopt_shared::meaning::storage::{ArgumentPlace, Layout};
use kernelopt_shared::task::AgentError;

use super::case::Case;
use crate::cpu::arena::Arena;
use crate::cpu::fault::Fault;
use crate::cpu::runner::{ArgumentPlan, Limits, Plan, Runner, Zygote};

/// Memory for all slots of a small kernel: enough that a block is long, little enough to stay near the processor.
const NEAR_BYTES: usize = 8 << 20;
/// Most memory for slots.
const MOST_BYTES: usize = 512 << 20;
/// Most slots.
const MOST_SLOTS: usize = 64;
/// Least.
const LEAST_SLOTS: usize = 2;
/// Launches that are timed one by one in a fresh process.
const FIRST_LAUNCHES: usize = 6;
/// How long a launch may take before its process counts as hung.
pub const LAUNCH_TIMEOUT: Duration = Duration::from_secs(5);

/// A process, ready to be launched.
pub struct Player {
    /// Its memory.
    pub arena: Arena,
    /// Its process.
    pub runner: Runner,
}

/// What a fresh process does at first.
#[derive(Clone, Copy, Debug)]
pub struct FirstLaunches {
    /// The shortest of the later ones.
    pub steady: Duration,
    /// All of them together.
    pub total: Duration,
}

/// How the kernels of one target are launched on this host.
#[derive(Clone)]
pub struct Stage {
    zygote: Arc<Zygote>,
    arguments: Vec<ArgumentPlan>,
    sizes: Vec<usize>,
    flush_denormal: bool,
}

impl Stage {
    /// For a target of this layout.
    pub fn new(zygote: &Arc<Zygote>, layout: &Layout, flush_denormal: bool) -> Self {
        let plan = |place: &ArgumentPlace| match *place {
            ArgumentPlace::Pointer { storage, offset_bytes, .. } => ArgumentPlan::Pointer { storage, offset_bytes },
            ArgumentPlace::Int(value) => ArgumentPlan::Int(value),
            // No meaning of C++ has one.
            ArgumentPlace::Number(value) => ArgumentPlan::Int(value as i64),
        };
        let arguments = layout.arguments.iter().map(plan).collect();
        Self { zygote: zygote.clone(), arguments, sizes: layout.storages.iter().map(|s| s.bytes).collect(), flush_denormal }
    }

    /// Starts a process for `library` on fresh memory.
    ///
    /// # Errors
    /// Memory or a process cannot be had; the inner error is the library's own fault.
    pub fn enter(&self, library: &Path) -> Result<Result<Player, Fault>, AgentError> {
        let limit = (MOST_BYTES as u64).max(2 * LEAST_SLOTS as u64 * self.slot_bytes() as u64);
        let arena = Arena::new(self.slots(), &self.sizes, limit).map_err(|e| AgentError::Internal(e.to_string()))?;
        let plan = Plan {
            library: library.to_owned(),
            arguments: self.arguments.clone(),
            flush_denormal: self.flush_denormal,
            limits: Limits::default(),
        };
        Ok(Runner::start(&self.zygote, &plan, &arena).map(|runner| Player { arena, runner }))
    }

    fn slot_bytes(&self) -> usize {
        self.sizes.iter().sum::<usize>() + 2 * 4096 * self.sizes.len().max(1)
    }

    fn slots(&self) -> u32 {
        let near = (NEAR_BYTES / self.slot_bytes()).clamp(16, MOST_SLOTS);
        near.min((MOST_BYTES / self.slot_bytes()).max(LEAST_SLOTS)) as u32
    }
}

impl Player {
    /// All storages of a slot.
    pub fn storages(&self, slot: u32) -> Vec<&[u8]> {
        (0..self.arena.storages()).map(|storage| self.arena.bytes(slot, storage)).collect()
    }

    /// Launches once on `case`, in `slot`.
    pub fn launch(&mut self, case: &Case, slot: u32) -> Result<Duration, Fault> {
        case.load(&mut self.arena, slot);
        self.runner.run(&[slot], LAUNCH_TIMEOUT)
    }

    /// The first launches of a fresh process.
    pub fn first_launches(&mut self, case: &Case) -> Result<FirstLaunches, Fault> {
        let times = (0..FIRST_LAUNCHES).map(|_| self.launch(case, 0)).collect::<Result<Vec<_>, _>>()?;
        let steady = times[FIRST_LAUNCHES / 2..].iter().min().copied().unwrap_or_default();
        Ok(FirstLaunches { steady, total: times.iter().sum() })
    }
}
