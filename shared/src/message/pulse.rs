//! Signs of life.

use serde::{Deserialize, Serialize};

use super::identity::{AgentId, DeviceIdentity};
use super::task::{Lease, TaskId};

/// A sign of life. Not confirmed and not kept: the next one says it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pulse {
    /// Everything that the coordinator must know of an agent; the first one registers it.
    Beat(Beat),
    /// Work on a task begins: its clock runs from here.
    Started {
        /// Who.
        agent: AgentId,
        /// Which task.
        task: TaskId,
        /// Under which lease.
        lease: Lease,
    },
    /// The agent goes away in good order and holds nothing.
    Leaving {
        /// Who.
        agent: AgentId,
    },
}

/// An agent's state, sent every [`crate::broker::BEAT`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// Who.
    pub agent: AgentId,
    /// Drawn at the start of the process: tells a restarted agent from a slow one.
    pub incarnation: u64,
    /// Version of the program.
    pub version: String,
    /// On what.
    pub device: DeviceIdentity,
    /// Latest epoch that it has heard of, zero before the first.
    pub epoch: u64,
    /// What it takes.
    pub mode: AgentMode,
    /// Tasks that it likes to hold at a time, the running one included: what keeps its builders busy.
    pub capacity: u32,
    /// Leases of the tasks that it holds: running, built ahead, or reported and not yet accepted.
    pub holds: Vec<Lease>,
    /// Share of the time since the last beat in which the device verified or measured.
    pub busy: f64,
}

/// Whether an agent takes tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum AgentMode {
    /// It does.
    Working,
    /// It ends what it has and takes no more.
    Draining,
    /// It failed its own test, or was told to stop taking tasks; a command lets it back in.
    Quarantined {
        /// What was seen.
        reason: String,
    },
}
