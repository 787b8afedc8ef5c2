//! An agent, as it is shown.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::bounded::Reason;
use crate::message::{AgentId, AgentMode, DeviceClass, DeviceIdentity, JobId, TaskId};

/// Whether an agent takes tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentAvailability {
    /// It does.
    Working,
    /// It ends what it has and takes no more.
    Draining,
    /// It takes none until it is readmitted.
    Quarantined,
    /// It went away in good order: drained, or its process was told to end.
    Left,
    /// Nothing was heard of it for longer than a lease lasts.
    Silent,
}

impl AgentAvailability {
    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Draining => "draining",
            Self::Quarantined => "quarantined",
            Self::Left => "left",
            Self::Silent => "silent",
        }
    }
}

impl From<&AgentMode> for AgentAvailability {
    fn from(mode: &AgentMode) -> Self {
        match mode {
            AgentMode::Working => Self::Working,
            AgentMode::Draining => Self::Draining,
            AgentMode::Quarantined { .. } => Self::Quarantined,
        }
    }
}

/// One device of one agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentView {
    /// `HOST/cuda0`.
    pub id: AgentId,
    /// Class of its device.
    pub class: DeviceClass,
    /// Its device.
    pub device: DeviceIdentity,
    /// Whether it takes tasks.
    pub mode: AgentAvailability,
    /// Why it does not.
    pub reason: Option<String>,
    /// Tasks that it holds.
    pub holds: Vec<HeldTask>,
    /// Share of the time in which its device verified or measured, lately: zero to one.
    pub busy: f64,
    /// Version of the program.
    pub version: String,
    /// Time since it was last heard, in milliseconds.
    pub last_beat_ms: u64,
    /// Tasks that it has done.
    pub done: u64,
    /// Tasks that it could not do.
    pub failed: u64,
}

/// A task that an agent holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldTask {
    /// The task.
    pub task: TaskId,
    /// Its job.
    pub job: JobId,
    /// `profile`, `screen`, `full`, `confirm`, `check_model` or `nothing`.
    pub work: String,
    /// Label of the target that it is for.
    pub target: Option<String>,
    /// How long it has run, in milliseconds; none before it starts.
    pub running_ms: Option<u64>,
}

/// All agents, in order of their names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentList {
    /// The agents.
    pub agents: Vec<AgentView>,
}

/// Keeps a host's devices from taking tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuarantineOrder {
    /// What was seen.
    pub reason: Reason,
}
