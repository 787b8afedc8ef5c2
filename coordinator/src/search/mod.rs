//! The search: proposers make candidates, verdicts come back, the frontier moves.
//!
//! [`state`] folds the journal, [`plan`] says what to do next, [`rank`] says where time can be won. None of them acts:
//! [`crate::service`] does.

pub mod known;
pub mod plan;
pub mod proposer;
pub mod rank;
pub mod replay;
pub mod state;

use kernelopt_shared::bundle::Manifest;
use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::target::Language;

use crate::schedule::ScheduleProposer;
use proposer::Proposer;

/// No proposer has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown proposer {0:?}")]
pub struct UnknownProposer(pub String);

impl UserError for UnknownProposer {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Usage
    }

    fn remedy(&self) -> Option<String> {
        Some("There is `schedule`; `kernelopt tune` knows `replay=FILE` too.".into())
    }
}

/// The proposer of this name that needs nothing but the bundle.
///
/// # Errors
/// There is none.
pub fn proposer_named(name: &str) -> Result<Box<dyn Proposer>, UnknownProposer> {
    match name {
        "schedule" => Ok(Box::new(ScheduleProposer::new())),
        _ => Err(UnknownProposer(name.to_owned())),
    }
}

/// Language of the kernels that the compiler generates for the device of a capture.
pub fn language_of(manifest: &Manifest) -> Language {
    if manifest.device.kind == "cuda" { Language::Triton } else { Language::Cpp }
}
