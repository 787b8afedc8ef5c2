//! What came of a task.

use serde::{Deserialize, Serialize};

use super::identity::{AgentId, DeviceIdentity, JobId};
use super::task::{Lease, TaskId};
use crate::task::{ModelCheck, ModelProfile};
use crate::verdict::Outcome;

/// An agent's answer to a task. It is sent until the coordinator says that it is on its disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The task.
    pub task: TaskId,
    /// Its job.
    pub job: JobId,
    /// The lease under which the work was done.
    pub lease: Lease,
    /// Who did it.
    pub agent: AgentId,
    /// On what.
    pub device: DeviceIdentity,
    /// What came of it.
    pub reply: Reply,
    /// How long it took.
    pub times: Times,
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The model as compiled.
    Profiled(ModelProfile),
    /// A candidate's verdict with its evidence.
    Judged(Box<Outcome>),
    /// The whole models compared.
    ModelChecked(ModelCheck),
    /// Nothing was asked for, and it was done.
    Nothing,
    /// The agent leaves or was told to stop; the work was not done, and nobody is to blame.
    HandedBack {
        /// Why, in a few words.
        reason: String,
    },
    /// It could not be done.
    Failed(Failure),
}

impl Reply {
    /// `profiled`, `judged`, ...: bounded, for metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Profiled(_) => "profiled",
            Self::Judged(_) => "judged",
            Self::ModelChecked(_) => "model_checked",
            Self::Nothing => "nothing",
            Self::HandedBack { .. } => "handed_back",
            Self::Failed(_) => "failed",
        }
    }
}

/// Why a task could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Whose fault it seems.
    pub kind: FailureKind,
    /// What happened, in a sentence.
    pub what: String,
    /// What to do about it; empty where nothing is known.
    pub remedy: String,
}

/// Whose fault a failure seems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The host's: no compiler, a lost GPU, a full disk.
    Environment,
    /// The compiler's own code cannot be run or examined here: no candidate can be judged against it.
    Baseline,
    /// It did not end within its time.
    TimedOut,
    /// Ours.
    Internal,
}

/// The clocks of a task, in milliseconds of the agent's own clock; never compared between hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// From delivery to the start of work: other tasks of this agent, builds ahead included.
    pub waited_ms: u64,
    /// Fetching what it needs.
    pub fetch_ms: u64,
    /// The work itself.
    pub run_ms: u64,
}
