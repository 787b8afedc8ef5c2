//! What a candidate's process is started with.

use std::path::PathBuf;
use std::time::Duration;

use super::Fault;
use crate::cpu::arena::Arena;
use crate::cpu::wire::Start;

/// One argument of the kernel, in the order of its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentPlan {
    /// A pointer into a storage of the slot that is launched.
    Pointer {
        /// Number of the storage in the arena.
        storage: usize,
        /// Distance from its first byte; at most its size.
        offset_bytes: usize,
    },
    /// An integer.
    Int(i64),
}

/// A library, and how to call its kernel.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Built by `Builder`; an absolute path.
    pub library: PathBuf,
    /// Arguments of every launch; pointers are those of the slot.
    pub arguments: Vec<ArgumentPlan>,
    /// Denormals count as zero, as after `torch.set_flush_denormal(True)`: on the main thread before OpenMP makes its own, which
    /// inherit it. Rounding and the rest stay at their defaults.
    pub flush_denormal: bool,
    /// Bounds.
    pub limits: Limits,
}

/// Bounds on one candidate's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest that loading may take.
    pub start: Duration,
    /// Memory that it may allocate, in bytes; the arena and the preloaded libraries are not counted.
    pub memory_bytes: u64,
    /// Stack of the main thread, in bytes.
    pub stack_bytes: u64,
    /// Processor time in its whole life, all threads together, in seconds. The wall-clock limits act first; this one is for a process
    /// that nobody watches.
    pub cpu_seconds: u64,
    /// What it may print in its whole life, in bytes.
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { start: Duration::from_secs(10), memory_bytes: 1 << 30, stack_bytes: 8 << 20, cpu_seconds: 1800, output_bytes: 64 << 10 }
    }
}

impl Plan {
    /// The zygote's orders for this plan on this arena.
    pub(super) fn start(&self, arena: &Arena, nonce: u64, permit_weak_sandbox: bool) -> Result<Start, Fault> {
        let fault = |detail: String| Fault::Sandbox { detail };
        if arena.slots() == 0 || !self.library.is_absolute() {
            return Err(fault(format!(
                "a plan needs a slot and an absolute path, not {} slots and {}",
                arena.slots(),
                self.library.display()
            )));
        }
        let (mut pointers, mut integers) = (Vec::new(), Vec::new());
        for (position, argument) in self.arguments.iter().enumerate() {
            match *argument {
                ArgumentPlan::Int(value) => integers.push(value),
                ArgumentPlan::Pointer { storage, offset_bytes }
                    if storage < arena.storages() && offset_bytes <= arena.len_bytes(storage) =>
                {
                    pointers.push(arena.offset_bytes(storage) + offset_bytes);
                }
                ArgumentPlan::Pointer { storage, offset_bytes } => {
                    return Err(fault(format!(
                        "argument {position} points at byte {offset_bytes} of storage {storage}, which is not there"
                    )));
                }
            }
        }
        Ok(Start {
            library: self.library.clone(),
            nonce,
            arena_bytes: arena.total_bytes(),
            slots: arena.slots(),
            stride_bytes: arena.stride_bytes(),
            pointers,
            integers,
            flush_denormal: self.flush_denormal,
            memory_bytes: self.limits.memory_bytes,
            stack_bytes: self.limits.stack_bytes,
            cpu_seconds: self.limits.cpu_seconds,
            permit_weak_sandbox,
        })
    }
}
