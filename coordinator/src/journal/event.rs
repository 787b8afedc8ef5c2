//! What a job records.

use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::task::{Depth, ModelCheck, ModelProfile};
use kernelopt_shared::verdict::Outcome;
use serde::{Deserialize, Serialize};

/// One thing that happened. Variants are only ever added.
#[expect(clippy::large_enum_variant, reason = "one is made, written and let go at a time")]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs, reason = "fields are explained by their variant")]
pub enum Event {
    /// The job began: always the first event.
    Opened { bundle: Digest, bundle_path: String, model: String, program_version: String, seed: u64, proposers: Vec<String> },
    /// The compiled model was measured.
    Profiled { profile: ModelProfile },
    /// A proposer offered candidates for a target; they were built together in `build_ms` of wall time.
    Proposed { target: String, proposer: String, candidates: Vec<Candidate>, build_ms: u64 },
    /// No proposer has more for a target.
    Exhausted { target: String },
    /// A target cannot be judged: the compiler's own code stands.
    Abandoned { target: String, reason: String },
    /// The referee spoke.
    Judged { target: String, depth: Depth, outcome: Outcome },
    /// A set of winners was tried in the whole model.
    ModelChecked { winners: Vec<WinnerRef>, check: ModelCheck, verdict: ModelVerdictRecord },
    /// The job ended and its outputs are written.
    Finished { frontier: Digest },
}

impl Event {
    /// Name of the variant, as serialised.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "opened",
            Self::Profiled { .. } => "profiled",
            Self::Proposed { .. } => "proposed",
            Self::Exhausted { .. } => "exhausted",
            Self::Abandoned { .. } => "abandoned",
            Self::Judged { .. } => "judged",
            Self::ModelChecked { .. } => "model_checked",
            Self::Finished { .. } => "finished",
        }
    }
}

/// A confirmed candidate of a target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WinnerRef {
    /// Label of the target.
    pub target: String,
    /// Digest of the candidate.
    pub candidate: Digest,
}

/// What was decided about a set of winners.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelVerdictRecord {
    /// True when every output was right.
    pub right: bool,
    /// True when it was also faster.
    pub improved: bool,
    /// Why, in a sentence.
    pub reason: String,
}
