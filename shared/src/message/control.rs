//! What a coordinator tells agents.

use serde::{Deserialize, Serialize};

use super::identity::JobId;
use super::task::{Lease, Task, TaskId};

/// Told to one agent, or to all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control {
    /// A coordinator leads with this epoch; whatever is of an earlier one is refused from now on. Answered by a beat.
    Leading {
        /// Its term.
        epoch: u64,
    },
    /// A report is on the coordinator's disk, or of no use to it: the agent may forget it and acknowledge the task.
    Accepted {
        /// The task.
        task: TaskId,
        /// The lease in the report.
        lease: Lease,
    },
    /// Work for this very agent: a confirmation on another device than the first.
    Assigned(Box<Task>),
    /// Stop work on a task; nothing comes back.
    Cancel {
        /// The lease.
        lease: Lease,
    },
    /// Stop work on all tasks of a job, those that are still in a queue included.
    CancelJob {
        /// The job.
        job: JobId,
    },
    /// End what it has, take no more and leave.
    Drain,
    /// Take no more until told.
    Quarantine {
        /// Why.
        reason: String,
    },
    /// Take tasks again.
    Readmit,
}
