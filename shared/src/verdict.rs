//! What an agent says of a candidate. No verdict without its evidence.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::stats::Interval;

/// The referee's decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// Right, and faster than the baseline: the interval's low end is above the noise floor.
    Accepted {
        /// Baseline time over candidate time.
        speedup: Interval,
    },
    /// Right, and not told apart from the baseline.
    NoChange {
        /// Baseline time over candidate time.
        speedup: Interval,
    },
    /// Right, and slower.
    Slower {
        /// Baseline time over candidate time.
        speedup: Interval,
    },
    /// Some output is not what the meaning says.
    Wrong {
        /// Which output, under which inputs, by how much.
        reason: String,
    },
    /// The compiler refused it.
    BuildFailed {
        /// The compiler's words, cut.
        reason: String,
    },
    /// The process died: a signal or an exit.
    Crashed {
        /// `signal 11 (SIGSEGV)`, `exit status 0 in the middle of a run`.
        reason: String,
    },
    /// It did not answer in time.
    Hung {
        /// How long the referee waited, in milliseconds.
        waited_ms: u64,
    },
    /// It broke the contract: forbidden system call, forged message, impossible speed.
    Rejected {
        /// Which rule, and how.
        reason: String,
    },
    /// Its time cannot be stated: it changes from call to call beyond what the baseline does.
    Unstable {
        /// What was seen.
        reason: String,
    },
}

impl Verdict {
    /// The kind as serialised: `accepted`, `no_change`, ...
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::NoChange { .. } => "no_change",
            Self::Slower { .. } => "slower",
            Self::Wrong { .. } => "wrong",
            Self::BuildFailed { .. } => "build_failed",
            Self::Crashed { .. } => "crashed",
            Self::Hung { .. } => "hung",
            Self::Rejected { .. } => "rejected",
            Self::Unstable { .. } => "unstable",
        }
    }

    /// True where every output was right.
    pub const fn is_right(&self) -> bool {
        matches!(self, Self::Accepted { .. } | Self::NoChange { .. } | Self::Slower { .. })
    }

    /// The measured speed-up, where there is one.
    pub const fn speedup(&self) -> Option<Interval> {
        match self {
            Self::Accepted { speedup } | Self::NoChange { speedup } | Self::Slower { speedup } => Some(*speedup),
            _ => None,
        }
    }
}

/// Everything needed to recompute a verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Seed from which all inputs, orders and draws of this evaluation follow.
    pub seed: u64,
    /// One row per output and input set that was compared.
    pub checks: Vec<Check>,
    /// Paired samples: nanoseconds per launch of the baseline and of the candidate in one block.
    pub pairs_ns: Vec<(f64, f64)>,
    /// The baseline a second time in the same rounds, on a CPU in a process of its own: nanoseconds per launch. Empty in a short look
    /// on a CPU.
    #[serde(default)]
    pub control_ns: Vec<f64>,
    /// Rounds that were thrown away because the host gave the processors to others meanwhile, or a GPU's clock changed.
    #[serde(default)]
    pub rounds_disturbed: u64,
    /// Timed launches whose outputs were compared afterwards.
    pub timed_outputs_checked: u64,
    /// Milliseconds spent building, in the compiler.
    pub build_ms: u64,
    /// Milliseconds spent computing truth and comparing.
    pub verify_ms: u64,
    /// Milliseconds of the measuring blocks, set-up included.
    pub measure_ms: u64,
    /// Device and environment: processor, threads, denormal mode, compiler.
    pub device: String,
    /// What a GPU was doing meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
    /// What is known of a GPU kernel's machine code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeFacts>,
    /// The same of the kernels that are launched after the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_code: Vec<CodeFacts>,
    /// Temporary device memory of one launch of a candidate that has several.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub scratch_bytes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// What a GPU was doing while something was measured on it (NVML).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Least and greatest clock of the multiprocessors.
    pub sm_mhz: [u32; 2],
    /// Clock of the memory.
    pub memory_mhz: u32,
    /// Greatest board power.
    pub power_mw: u32,
    /// Greatest temperature.
    pub celsius: u32,
    /// Every clocks-event (throttle) reason that was seen, as NVML's bit mask.
    pub throttle: u64,
}

/// What a compiler made of a GPU kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodeFacts {
    /// Registers of a thread.
    pub registers: u32,
    /// Local memory of a thread that spilled registers take.
    pub spill_bytes: u32,
    /// Shared memory of a block.
    pub shared_bytes: u32,
    /// Warps that fit on a multiprocessor over those that it can hold (CUDA C++ Best Practices Guide, 11.1), where the
    /// architecture is known.
    pub occupancy: Option<f64>,
    /// What keeps more from fitting: `registers`, `shared`, `threads` or `blocks`.
    pub limiter: Option<String>,
}

/// One compared output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Name of the input regime.
    pub regime: String,
    /// Argument compared.
    pub output: String,
    /// Greatest distance to the truth over the tolerance at that element; above one is wrong.
    pub worst: f64,
    /// Greatest absolute distance to the truth.
    pub max_error: f64,
}

/// An agent's answer to an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The candidate judged.
    pub candidate: Digest,
    /// The decision.
    pub verdict: Verdict,
    /// What it rests on.
    pub evidence: Evidence,
}
