//! A piece of work and the right to do it.

use serde::{Deserialize, Serialize};

use super::identity::JobId;
use crate::candidate::Candidate;
use crate::digest::Digest;
use crate::task::Depth;

/// Identity of a piece of work: the same however often it is given out.
pub type TaskId = Digest;

/// The right to work on a task. A task has one at a time; what comes back under another changes nothing (a fencing token, Kleppmann 2016).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lease {
    /// The coordinator's term: rises with every start of a coordinator.
    pub epoch: u64,
    /// Number within the epoch.
    pub serial: u64,
}

/// One piece of work, given to one agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Which work.
    pub id: TaskId,
    /// The job that it is for.
    pub job: JobId,
    /// The right to do it.
    pub lease: Lease,
    /// The coordinator's term when it was sent; an agent that has heard of a later one refuses it.
    pub epoch: u64,
    /// Blob of the bundle.
    pub bundle: Digest,
    /// What to do.
    pub work: Work,
    /// Seed of every draw.
    pub seed: u64,
    /// Longest that it may run, from when it starts, in milliseconds. Waiting in a queue does not count.
    pub run_limit_ms: u64,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Measure the model as compiled.
    Profile,
    /// Judge a candidate.
    Evaluate {
        /// Blob of the target ([`crate::target::Target`] as JSON).
        target: Digest,
        /// The candidate.
        candidate: Candidate,
        /// How much to spend.
        depth: Depth,
    },
    /// Compare the whole optimised model with the original.
    CheckModel {
        /// Blob of the optimised files: a tar file.
        optimized: Digest,
    },
    /// Keep the device busy for a while: what the queue itself costs is measured with it.
    Nothing {
        /// How long, in microseconds.
        busy_us: u64,
    },
}

impl Work {
    /// `profile`, `screen`, `full`, `confirm`, `check_model` or `nothing`: bounded, for metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Evaluate { depth: Depth::Screen, .. } => "screen",
            Self::Evaluate { depth: Depth::Full, .. } => "full",
            Self::Evaluate { depth: Depth::Confirm, .. } => "confirm",
            Self::CheckModel { .. } => "check_model",
            Self::Nothing { .. } => "nothing",
        }
    }
}
