//! What a job leaves behind: the optimised files, the summaries of its journal, and whether what they claim is true.

pub mod claim;
mod folder;
pub mod model;
pub(crate) mod outputs;
mod summary;
mod table;

use kernelopt_shared::bundle::BundleError;
use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::task::AgentError;

pub use claim::{ClaimError, rewrite_report};
pub use folder::{FolderError, JobFolder};
pub use summary::summarize;
pub use table::table;

use crate::inductor::StitchError;
use crate::inspect::InspectError;
use crate::journal::{Entry, JournalError};
use crate::search::plan::Step;
use crate::search::state::JobState;

/// Sees every event of a job as it is journaled, those of earlier runs included.
pub trait Observer: Send {
    /// A piece of work is about to be given out.
    fn step(&mut self, step: &Step);

    /// An event was journaled and applied.
    fn event(&mut self, entry: &Entry, state: &JobState);
}

/// Why a job ended early.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are those of the parts")]
pub enum TuneError {
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Inspect(#[from] InspectError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Stitch(#[from] StitchError),
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

impl TuneError {
    fn part(&self) -> &dyn UserError {
        match self {
            Self::Bundle(e) => e,
            Self::Inspect(e) => e,
            Self::Folder(e) => e,
            Self::Journal(e) => e,
            Self::Agent(e) => e,
            Self::Stitch(e) => e,
            Self::Claim(e) => e,
        }
    }
}

impl UserError for TuneError {
    fn exit_code(&self) -> ExitCode {
        self.part().exit_code()
    }

    fn remedy(&self) -> Option<String> {
        self.part().remedy()
    }
}
