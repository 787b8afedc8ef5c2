//! One piece of work for an agent.

use serde::{Deserialize, Serialize};

use crate::candidate::Candidate;
use crate::target::Target;

/// How much to spend on an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// A short look: few input sets, few blocks. Rejects what is wrong or clearly slower.
    Screen,
    /// All input regimes, long measurement.
    Full,
    /// `Full` from scratch: a rebuilt artefact, fresh processes, new seeds.
    Confirm,
}

/// Judge one candidate against a target's baseline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Evaluate {
    /// The target.
    pub target: Target,
    /// The candidate.
    pub candidate: Candidate,
    /// How much to spend.
    pub depth: Depth,
    /// Seed of inputs, orders and draws.
    pub seed: u64,
}
