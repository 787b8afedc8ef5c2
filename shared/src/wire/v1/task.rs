use serde::{Deserialize, Serialize};

use super::identity::{Hash, Lease, hash, job};
use crate::digest::Digest;
use crate::message;
use crate::task;
use crate::wire::document::Document;
use crate::wire::error::WireError;
use crate::wire::kind::Kind;

/// [`message::Task`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::wire) struct Task {
    id: Hash,
    job: String,
    lease: Lease,
    epoch: u64,
    bundle: Hash,
    work: Work,
    seed: u64,
    run_limit_ms: u64,
}

/// [`message::Work`]; the candidate is a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Work {
    Profile,
    Evaluate { target: Hash, candidate: Document, depth: Depth },
    CheckModel { optimized: Hash },
    Nothing { busy_us: u64 },
}

/// [`task::Depth`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Depth {
    Screen,
    Full,
    Confirm,
}

impl TryFrom<&message::Task> for Task {
    type Error = WireError;

    fn try_from(task: &message::Task) -> Result<Self, WireError> {
        let message::Task { id, job, lease, epoch, bundle, work, seed, run_limit_ms } = task;
        Ok(Self {
            id: hash(id),
            job: job.to_string(),
            lease: (*lease).into(),
            epoch: *epoch,
            bundle: hash(bundle),
            work: work.try_into()?,
            seed: *seed,
            run_limit_ms: *run_limit_ms,
        })
    }
}

impl TryFrom<Task> for message::Task {
    type Error = WireError;

    fn try_from(task: Task) -> Result<Self, WireError> {
        let Task { id, job: name, lease, epoch, bundle, work, seed, run_limit_ms } = task;
        Ok(Self {
            id: Digest::from_bytes(id),
            job: job(Kind::Task, &name)?,
            lease: lease.into(),
            epoch,
            bundle: Digest::from_bytes(bundle),
            work: work.try_into()?,
            seed,
            run_limit_ms,
        })
    }
}

impl TryFrom<&message::Work> for Work {
    type Error = WireError;

    fn try_from(work: &message::Work) -> Result<Self, WireError> {
        Ok(match work {
            message::Work::Profile => Self::Profile,
            message::Work::Evaluate { target, candidate, depth } => Self::Evaluate {
                target: hash(target),
                candidate: Document::of(Kind::Task, candidate)?,
                depth: match depth {
                    task::Depth::Screen => Depth::Screen,
                    task::Depth::Full => Depth::Full,
                    task::Depth::Confirm => Depth::Confirm,
                },
            },
            message::Work::CheckModel { optimized } => Self::CheckModel { optimized: hash(optimized) },
            message::Work::Nothing { busy_us } => Self::Nothing { busy_us: *busy_us },
        })
    }
}

impl TryFrom<Work> for message::Work {
    type Error = WireError;

    fn try_from(work: Work) -> Result<Self, WireError> {
        Ok(match work {
            Work::Profile => Self::Profile,
            Work::Evaluate { target, candidate, depth } => Self::Evaluate {
                target: Digest::from_bytes(target),
                candidate: candidate.read(Kind::Task)?,
                depth: match depth {
                    Depth::Screen => task::Depth::Screen,
                    Depth::Full => task::Depth::Full,
                    Depth::Confirm => task::Depth::Confirm,
                },
            },
            Work::CheckModel { optimized } => Self::CheckModel { optimized: Digest::from_bytes(optimized) },
            Work::Nothing { busy_us } => Self::Nothing { busy_us },
        })
    }
}
