//! What the agent asks of the process that owns the device, and what comes back.

use std::collections::BTreeSet;

use kernelopt_shared::launch::{Launch, Scratch};
use kernelopt_shared::target::Target;
use kernelopt_shared::task::{BandwidthCurve, Depth};
use kernelopt_shared::verdict::{Evidence, Verdict};
use serde::{Deserialize, Serialize};

use super::device::{Binary, DeviceFacts};

/// A kernel, built, with its launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Built {
    /// Machine code.
    pub binary: Binary,
    /// How it is launched.
    pub launch: Launch,
}

/// A candidate, built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its kernels in the order of their launches, at least one.
    pub stages: Vec<Built>,
    /// Its temporary memory.
    pub scratch: Vec<Scratch>,
}

/// The compiler's kernel in float64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Twin {
    /// Machine code and launch.
    pub built: Built,
    /// Pointer arguments that point to float64 instead of their own type: all floating-point outputs.
    pub widened: BTreeSet<String>,
}

/// Everything that judging one target needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenTarget {
    /// The target.
    pub target: Target,
    /// The compiler's kernel as it runs in the model.
    pub baseline: Built,
    /// The truth.
    pub twin: Twin,
    /// The truth with re-read stores rounded to their type, where the kernel has any.
    pub rounded: Option<Twin>,
    /// The roof.
    pub bandwidth: BandwidthCurve,
    /// Seed of the draws with which it is opened.
    pub seed: u64,
}

/// One evaluation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judge {
    /// The candidate.
    pub candidate: Candidate,
    /// How much to spend.
    pub depth: Depth,
    /// Seed of all draws and orders.
    pub seed: u64,
}

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// What the device is, and how fast its memory.
    Describe,
    /// Make this the target at hand; the former one's memory is given back.
    Open(Box<OpenTarget>),
    /// Judge a candidate for the target at hand.
    Judge(Box<Judge>),
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// To [`Request::Describe`].
    Described {
        /// The device.
        facts: DeviceFacts,
        /// Its memory.
        bandwidth: BandwidthCurve,
    },
    /// To [`Request::Open`].
    Opened {
        /// Nanoseconds that one launch of the compiler's kernel takes.
        launch_ns: f64,
    },
    /// To [`Request::Judge`].
    Judged {
        /// The decision.
        verdict: Verdict,
        /// What it rests on.
        evidence: Box<Evidence>,
        /// The context is lost: this process must not be asked again.
        lost: bool,
    },
    /// The compiler's own code cannot be judged by; the sentence goes on "the compiler's own code for KERNEL ...".
    Baseline {
        /// How it ends.
        what: String,
        /// The context is lost.
        lost: bool,
    },
    /// The device or the process failed; nobody's code is to blame.
    Failed {
        /// How.
        what: String,
        /// The context is lost.
        lost: bool,
    },
}
