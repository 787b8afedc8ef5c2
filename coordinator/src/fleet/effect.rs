//! What is to be done once the events before it are on the disk.

use kernelopt_shared::language_model::Question;
use kernelopt_shared::message::{AgentId, Control, DeviceClass, Failure, JobId, Task};

use crate::job::StoredBlob;

/// Something that others see.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Store what the task refers to, then send it.
    Send {
        /// Where to.
        to: Route,
        /// The task.
        task: Box<Task>,
        /// What must be stored before.
        blobs: Vec<StoredBlob>,
    },
    /// Tell an agent.
    Tell(AgentId, Control),
    /// Tell all agents.
    TellAll(Control),
    /// A job without a class was placed on one: what is known of its kernels there is to be asked for.
    Placed(JobId, DeviceClass),
    /// Put a question of a job to a language model.
    Ask(JobId, Box<Question>),
    /// Drop the calls of a job.
    Hush(JobId),
    /// Nothing of the job can go on before answers that come some other time are there.
    Pause(JobId),
    /// The job's outputs can be written.
    Finish(JobId),
    /// A winner was confirmed: the best known of its kernel on this class of device, perhaps.
    Confirmed {
        /// The job.
        job: JobId,
        /// Label of the target.
        target: String,
        /// The candidate.
        candidate: kernelopt_shared::digest::Digest,
        /// Where.
        class: DeviceClass,
    },
    /// The run is to end, with what was journaled kept.
    Stop(Failure),
}

/// Where a task goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// To whichever agent of the class is free first.
    Lane(DeviceClass),
    /// To this agent.
    Agent(AgentId),
}
