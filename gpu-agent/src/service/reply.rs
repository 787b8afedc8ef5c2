//! What the device's thread says, in the fleet's words.

use kernelopt_shared::exit::UserError;
use kernelopt_shared::message::{Failure, FailureKind, Reply};
use kernelopt_shared::task::AgentError;

use super::fetch::FetchError;

/// Longest text of a failure, in bytes: a compiler's or Python's words are in it.
const QUOTED_BYTES: usize = 8 << 10;

/// A failure of the agent's.
pub(super) fn failed(error: &AgentError) -> Reply {
    let kind = match error {
        AgentError::Environment { .. } | AgentError::Io { .. } => FailureKind::Environment,
        AgentError::Baseline { .. } => FailureKind::Baseline,
        // A stop that nobody asked for.
        AgentError::Stopped | AgentError::Internal(_) => FailureKind::Internal,
    };
    failure(kind, error.to_string(), error.remedy().unwrap_or_default())
}

/// Something that cannot be fetched.
pub(super) fn unusable(error: &FetchError) -> Reply {
    failure(FailureKind::Environment, error.to_string(), "Look whether agents and coordinator use the same store of blobs.".into())
}

/// A failure in words.
pub(super) fn failure(kind: FailureKind, what: String, remedy: String) -> Reply {
    let what = what[..what.floor_char_boundary(QUOTED_BYTES)].to_owned();
    Reply::Failed(Failure { kind, what, remedy })
}

/// Work that nobody is to blame for.
pub(super) fn handed_back(reason: &str) -> Reply {
    Reply::HandedBack { reason: reason.to_owned() }
}
