//! A job, as it is shown.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::digest::Digest;
use crate::message::{DeviceClass, JobId};
use crate::stats::Interval;

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// No agent has begun with it.
    Waiting,
    /// The compiled model is measured.
    Profiling,
    /// Candidates are proposed and judged.
    Searching,
    /// The fastest are measured again from scratch.
    Confirming,
    /// The whole optimised model is compared with the original.
    CheckingModel,
    /// Done; its outputs can be fetched.
    Finished,
    /// Somebody ended it.
    Cancelled,
    /// It could not be done; the reason says why.
    Failed,
}

impl Phase {
    /// True where nothing more will happen.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Finished | Self::Cancelled | Self::Failed)
    }

    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Profiling => "profiling",
            Self::Searching => "searching",
            Self::Confirming => "confirming",
            Self::CheckingModel => "checking the model",
            Self::Finished => "finished",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// A job in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobRow {
    /// Identity.
    pub id: JobId,
    /// What people call it.
    pub name: String,
    /// Factory of the model, as captured.
    pub model: String,
    /// How far it is.
    pub phase: Phase,
    /// Why it waits, failed or was cancelled.
    pub reason: Option<String>,
    /// Class of the devices that it is tuned for; none before an agent with a device like the capturing one was heard of.
    pub class: Option<DeviceClass>,
    /// Higher goes first.
    pub priority: u8,
    /// When it was submitted, in milliseconds since 1970.
    pub submitted_unix_ms: u64,
    /// Time that it has been worked on.
    pub active_seconds: f64,
    /// Candidates judged.
    pub judged: u64,
    /// Speed-up of the whole model, once checked and improved.
    pub speedup: Option<Interval>,
}

/// Everything that is shown of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// Identity.
    pub id: JobId,
    /// What people call it.
    pub name: String,
    /// Factory of the model, as captured.
    pub model: String,
    /// Blob of its bundle.
    pub bundle: Digest,
    /// How far it is.
    pub phase: Phase,
    /// Why it waits, failed or was cancelled.
    pub reason: Option<String>,
    /// Class of the devices that it is tuned for; none before an agent with a device like the capturing one was heard of.
    pub class: Option<DeviceClass>,
    /// Higher goes first.
    pub priority: u8,
    /// Fair share among jobs of one priority.
    pub weight: u8,
    /// When it was submitted, in milliseconds since 1970.
    pub submitted_unix_ms: u64,
    /// Time that it has been worked on.
    pub active_seconds: f64,
    /// What it may spend.
    pub budget: Budget,
    /// Candidates judged.
    pub judged: u64,
    /// Number of its latest event, zero before the first; those of the stream after it are new.
    pub last_event: u64,
    /// Its targets, greatest share first.
    pub targets: Vec<TargetView>,
    /// What was decided of the whole model, once checked.
    pub verdict: Option<ModelVerdictView>,
}

impl From<&JobView> for JobRow {
    fn from(job: &JobView) -> Self {
        Self {
            id: job.id.clone(),
            name: job.name.clone(),
            model: job.model.clone(),
            phase: job.phase,
            reason: job.reason.clone(),
            class: job.class.clone(),
            priority: job.priority,
            submitted_unix_ms: job.submitted_unix_ms,
            active_seconds: job.active_seconds,
            judged: job.judged,
            speedup: job.verdict.as_ref().filter(|verdict| verdict.improved).and_then(|verdict| verdict.speedup),
        }
    }
}

/// What a job may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Budget {
    /// Time that it may be worked on.
    pub seconds: u64,
    /// Candidates that it may judge.
    pub max_candidates: u64,
}

/// Search of one target, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TargetView {
    /// Graph and kernel, `0/triton_red_fused_sum_0`.
    pub label: String,
    /// Share of the model's time; none before the profile.
    pub share: Option<f64>,
    /// Time of one launch of the compiler's own code; none before a measurement.
    pub baseline_us: Option<f64>,
    /// The fastest that was right.
    pub best: Option<Best>,
    /// Candidates judged.
    pub tried: u64,
    /// How far its search is.
    pub state: TargetPhase,
    /// Why it was left.
    pub reason: Option<String>,
}

/// How far the search of a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetPhase {
    /// Nothing was tried yet.
    Waiting,
    /// Candidates are proposed and judged.
    Searching,
    /// No proposer has more.
    Exhausted,
    /// A candidate was confirmed.
    Confirmed,
    /// It cannot be judged: the compiler's own code stands.
    Abandoned,
}

/// The best candidate of a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Best {
    /// Baseline time over candidate time, with its 95 % interval.
    pub speedup: Interval,
    /// True where it was measured again from scratch.
    pub confirmed: bool,
}

/// What was decided of the whole model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelVerdictView {
    /// True where the optimised files are right and faster; otherwise the compiler's own code is kept.
    pub improved: bool,
    /// Original time over optimised time, on the captured inputs.
    pub speedup: Option<Interval>,
    /// Why, in a sentence.
    pub reason: String,
}

/// Some jobs, latest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<JobRow>,
    /// Where the next page begins: its `after`. None where this is the last.
    pub next: Option<JobId>,
}

/// Why a job is where it is, or why nothing happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The job.
    pub job: JobId,
    /// Sentences, most important first.
    pub sentences: Vec<String>,
}
