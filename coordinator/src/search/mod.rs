//! The search: proposers make candidates, verdicts come back, the frontier moves.
//!
//! [`state`] folds the journal, [`plan`] says what to do next, [`rank`] says where time can be won. None of them acts:
//! [`crate::service`] does.

pub mod allowance;
pub mod exchange;
pub mod known;
pub mod plan;
pub mod proposer;
pub mod rank;
pub mod replay;
pub mod state;

use kernelopt_shared::bundle::Manifest;
use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::target::Language;

use crate::job::Terms;
use crate::llm::{LLM, LlmProposer};
use crate::schedule::ScheduleProposer;
use proposer::Proposer;

/// Why there is no proposer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum NoProposer {
    #[error("unknown proposer {0:?}")]
    Unknown(String),
    #[error("the proposer llm has no gateway to ask")]
    NoGateway,
    #[error("the proposer llm has no model to ask for")]
    NoModel,
    #[error("the proposer llm may take no tokens")]
    NoTokens,
}

impl UserError for NoProposer {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Usage
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Unknown(_) => "There are `schedule` and `llm`; `kernelopt tune` knows `batch` and `replay=FILE` too.".into(),
            Self::NoGateway => {
                "Name a gateway: of `kernelopt tune` with --gateway URL, of a coordinator as `[gateway] url` in its configuration.".into()
            }
            Self::NoModel => "Name it with --model, as the gateway knows it.".into(),
            Self::NoTokens => "Say how many with --max-tokens.".into(),
        })
    }
}

/// The proposer of this name that needs nothing but the bundle and, where there is one, a gateway to language models.
///
/// # Errors
/// There is none, or it lacks something.
pub fn proposer_named(name: &str, terms: &Terms, has_gateway: bool) -> Result<Box<dyn Proposer>, NoProposer> {
    match name {
        "schedule" => Ok(Box::new(ScheduleProposer::new())),
        LLM if !has_gateway => Err(NoProposer::NoGateway),
        LLM if terms.model.is_empty() => Err(NoProposer::NoModel),
        LLM if terms.max_tokens == 0 => Err(NoProposer::NoTokens),
        LLM => Ok(Box::new(LlmProposer::new(LLM, &terms.model))),
        _ => Err(NoProposer::Unknown(name.to_owned())),
    }
}

/// Language of the kernels that the compiler generates for the device of a capture.
pub fn language_of(manifest: &Manifest) -> Language {
    if manifest.device.kind == "cuda" { Language::Triton } else { Language::Cpp }
}
