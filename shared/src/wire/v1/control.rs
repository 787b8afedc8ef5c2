use serde::{Deserialize, Serialize};

use super::identity::{Hash, Lease, hash, job};
use super::task::Task;
use super::text::cut;
use crate::digest::Digest;
use crate::message;
use crate::wire::error::WireError;
use crate::wire::kind::Kind;

/// [`message::Control`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::wire) enum Control {
    Leading { epoch: u64 },
    Accepted { task: Hash, lease: Lease },
    Assigned(Box<Task>),
    Cancel { lease: Lease },
    CancelJob { job: String },
    Drain,
    Quarantine { reason: String },
    Readmit,
}

impl TryFrom<&message::Control> for Control {
    type Error = WireError;

    fn try_from(control: &message::Control) -> Result<Self, WireError> {
        Ok(match control {
            message::Control::Leading { epoch } => Self::Leading { epoch: *epoch },
            message::Control::Accepted { task, lease } => Self::Accepted { task: hash(task), lease: (*lease).into() },
            message::Control::Assigned(task) => Self::Assigned(Box::new(task.as_ref().try_into()?)),
            message::Control::Cancel { lease } => Self::Cancel { lease: (*lease).into() },
            message::Control::CancelJob { job } => Self::CancelJob { job: job.to_string() },
            message::Control::Drain => Self::Drain,
            message::Control::Quarantine { reason } => Self::Quarantine { reason: cut(reason) },
            message::Control::Readmit => Self::Readmit,
        })
    }
}

impl TryFrom<Control> for message::Control {
    type Error = WireError;

    fn try_from(control: Control) -> Result<Self, WireError> {
        Ok(match control {
            Control::Leading { epoch } => Self::Leading { epoch },
            Control::Accepted { task, lease } => Self::Accepted { task: Digest::from_bytes(task), lease: lease.into() },
            Control::Assigned(task) => Self::Assigned(Box::new((*task).try_into()?)),
            Control::Cancel { lease } => Self::Cancel { lease: lease.into() },
            Control::CancelJob { job: name } => Self::CancelJob { job: job(Kind::Control, &name)? },
            Control::Drain => Self::Drain,
            Control::Quarantine { reason } => Self::Quarantine { reason },
            Control::Readmit => Self::Readmit,
        })
    }
}
