//! What a coordinator records.

use std::collections::BTreeMap;

use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::language_model::Question;
use kernelopt_shared::message::{AgentId, DeviceClass, DeviceIdentity, Lease, Report, TaskId};
use kernelopt_shared::task::{Depth, ModelCheck, ModelProfile};
use kernelopt_shared::verdict::Outcome;
use serde::{Deserialize, Serialize};

use crate::job::Terms;
use crate::search::exchange::Heard;
use crate::search::plan::Step;

/// One thing that happened to a job, or to the fleet. Variants are only ever added.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs, reason = "fields are explained by their variant")]
pub enum Event {
    /// The job began: always its first event. `blob` is the packed bundle, where the job came over the network; `fingerprints` are those of
    /// its targets, by label.
    Opened {
        bundle: Digest,
        bundle_path: String,
        blob: Option<Digest>,
        model: String,
        program_version: String,
        opened_unix_ms: u64,
        terms: Terms,
        fingerprints: BTreeMap<String, Digest>,
    },
    /// The compiled model was measured.
    Profiled { profile: ModelProfile },
    /// A proposer offered candidates for a target.
    Proposed { target: String, proposer: String, candidates: Vec<Candidate> },
    /// No proposer has more for a target.
    Exhausted { target: String },
    /// A target cannot be judged: the compiler's own code stands.
    Abandoned { target: String, reason: String },
    /// The referee spoke; `device` is where.
    Judged { target: String, depth: Depth, outcome: Outcome, device: Option<DeviceIdentity> },
    /// A set of winners was tried in the whole model.
    ModelChecked { winners: Vec<WinnerRef>, check: ModelCheck, verdict: ModelVerdictRecord },
    /// The job ended and its outputs are written.
    Finished { frontier: Digest },
    /// A task was about to be given out.
    Leased { task: TaskId, lease: Lease, step: Step, class: DeviceClass },
    /// The job was placed on devices of a class: all its measurements are made there.
    Placed { class: DeviceClass },
    /// A task came back undone. `charged` is the agent that it counts against.
    Released { task: TaskId, lease: Lease, step: Step, reason: String, charged: Option<AgentId> },
    /// A task failed too often to be given out again.
    Quarantined { task: TaskId, step: Step, reason: String },
    /// A report that came too late or twice: it changes nothing, and is kept.
    Evidence { report: Box<Report> },
    /// Somebody ended the job.
    Cancelled,
    /// The job cannot go on.
    Failed { reason: String },
    /// A drill began: so many tasks that do nothing; each may run for `limit_us`, by default a minute more than it is to.
    Drill {
        tasks: u64,
        busy_us: u64,
        #[serde(default)]
        limit_us: Option<u64>,
        #[serde(default)]
        opened_unix_ms: u64,
        terms: Terms,
    },
    /// One of them was done.
    Done { number: u64 },
    /// All were.
    Drilled,
    /// Of the fleet: an agent takes no more tasks. What it was charged with in its last failures is taken back.
    AgentQuarantined { agent: AgentId, reason: String, discharged: Vec<TaskId> },
    /// Of the fleet: it takes tasks again.
    AgentReadmitted { agent: AgentId },
    /// A question about a target was about to be put to a language model.
    Asked { target: String, question: Question },
    /// What came of it: `question` is its id.
    Answered { target: String, question: String, heard: Heard },
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
            Self::Leased { .. } => "leased",
            Self::Placed { .. } => "placed",
            Self::Released { .. } => "released",
            Self::Quarantined { .. } => "quarantined",
            Self::Evidence { .. } => "evidence",
            Self::Cancelled => "cancelled",
            Self::Failed { .. } => "failed",
            Self::Drill { .. } => "drill",
            Self::Done { .. } => "done",
            Self::Drilled => "drilled",
            Self::AgentQuarantined { .. } => "agent_quarantined",
            Self::AgentReadmitted { .. } => "agent_readmitted",
            Self::Asked { .. } => "asked",
            Self::Answered { .. } => "answered",
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
