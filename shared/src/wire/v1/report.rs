use serde::{Deserialize, Serialize};

use super::identity::{DeviceIdentity, Hash, Lease, agent, hash, job};
use super::text::cut;
use crate::digest::Digest;
use crate::message;
use crate::wire::document::Document;
use crate::wire::error::WireError;
use crate::wire::kind::Kind;

/// [`message::Report`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::wire) struct Report {
    task: Hash,
    job: String,
    lease: Lease,
    agent: String,
    device: DeviceIdentity,
    reply: Reply,
    times: Times,
}

/// [`message::Reply`]; profile, outcome and check are documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Reply {
    Profiled(Document),
    Judged(Document),
    ModelChecked(Document),
    Nothing,
    HandedBack { reason: String },
    Failed { kind: FailureKind, what: String, remedy: String },
}

/// [`message::FailureKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum FailureKind {
    Environment,
    Baseline,
    TimedOut,
    Internal,
}

/// [`message::Times`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Times {
    waited_ms: u64,
    fetch_ms: u64,
    run_ms: u64,
}

impl TryFrom<&message::Report> for Report {
    type Error = WireError;

    fn try_from(report: &message::Report) -> Result<Self, WireError> {
        let message::Report { task, job, lease, agent, device, reply, times } = report;
        let message::Times { waited_ms, fetch_ms, run_ms } = *times;
        Ok(Self {
            task: hash(task),
            job: job.to_string(),
            lease: (*lease).into(),
            agent: agent.to_string(),
            device: device.into(),
            reply: reply.try_into()?,
            times: Times { waited_ms, fetch_ms, run_ms },
        })
    }
}

impl TryFrom<Report> for message::Report {
    type Error = WireError;

    fn try_from(report: Report) -> Result<Self, WireError> {
        let Report { task, job: job_name, lease, agent: agent_name, device, reply, times } = report;
        let Times { waited_ms, fetch_ms, run_ms } = times;
        Ok(Self {
            task: Digest::from_bytes(task),
            job: job(Kind::Report, &job_name)?,
            lease: lease.into(),
            agent: agent(Kind::Report, &agent_name)?,
            device: device.into(),
            reply: reply.try_into()?,
            times: message::Times { waited_ms, fetch_ms, run_ms },
        })
    }
}

impl TryFrom<&message::Reply> for Reply {
    type Error = WireError;

    fn try_from(reply: &message::Reply) -> Result<Self, WireError> {
        Ok(match reply {
            message::Reply::Profiled(profile) => Self::Profiled(Document::of(Kind::Report, profile)?),
            message::Reply::Judged(outcome) => Self::Judged(Document::of(Kind::Report, outcome.as_ref())?),
            message::Reply::ModelChecked(check) => Self::ModelChecked(Document::of(Kind::Report, check)?),
            message::Reply::Nothing => Self::Nothing,
            message::Reply::HandedBack { reason } => Self::HandedBack { reason: cut(reason) },
            message::Reply::Failed(message::Failure { kind, what, remedy }) => {
                Self::Failed { kind: (*kind).into(), what: cut(what), remedy: cut(remedy) }
            }
        })
    }
}

impl TryFrom<Reply> for message::Reply {
    type Error = WireError;

    fn try_from(reply: Reply) -> Result<Self, WireError> {
        Ok(match reply {
            Reply::Profiled(profile) => Self::Profiled(profile.read(Kind::Report)?),
            Reply::Judged(outcome) => Self::Judged(Box::new(outcome.read(Kind::Report)?)),
            Reply::ModelChecked(check) => Self::ModelChecked(check.read(Kind::Report)?),
            Reply::Nothing => Self::Nothing,
            Reply::HandedBack { reason } => Self::HandedBack { reason },
            Reply::Failed { kind, what, remedy } => Self::Failed(message::Failure { kind: kind.into(), what, remedy }),
        })
    }
}

impl From<message::FailureKind> for FailureKind {
    fn from(kind: message::FailureKind) -> Self {
        match kind {
            message::FailureKind::Environment => Self::Environment,
            message::FailureKind::Baseline => Self::Baseline,
            message::FailureKind::TimedOut => Self::TimedOut,
            message::FailureKind::Internal => Self::Internal,
        }
    }
}

impl From<FailureKind> for message::FailureKind {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Environment => Self::Environment,
            FailureKind::Baseline => Self::Baseline,
            FailureKind::TimedOut => Self::TimedOut,
            FailureKind::Internal => Self::Internal,
        }
    }
}
