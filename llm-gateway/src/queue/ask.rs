//! What a request asks for before it is sent, and why it is refused.

use std::time::Duration;

use tokio::time::Instant;

use crate::estimate::Estimate;
use crate::names::{DeploymentId, JobName, KeyName, ModelName};

/// The priority that goes first.
pub const HIGHEST: u8 = 0;
/// The priority that goes last; batches have it.
pub const LOWEST: u8 = 9;

/// Who pays and where it may go: settled at the door.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The job that it is of.
    pub job: JobName,
    /// Who calls.
    pub key: KeyName,
    /// The model, by the name that callers use.
    pub model: ModelName,
    /// What it may take.
    pub estimate: Estimate,
    /// From [`HIGHEST`] to [`LOWEST`]. One above that of the key is lowered to the key's.
    pub priority: u8,
    /// No answer is worth anything after this.
    pub deadline: Instant,
    /// Deployments that have failed it already.
    pub without: Vec<DeploymentId>,
    /// A retry: it goes before the other requests of its job.
    pub again: bool,
}

/// Why a request may not be sent. Nothing is charged for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Refused {
    /// Which of the reasons.
    pub kind: RefusedKind,
    /// When asking again may help, as exactly as it is known; none where it does not help.
    pub retry_after: Option<Duration>,
    /// The reason in words, for the caller: names of limits, never of other callers.
    pub what: String,
}

/// The reasons for which a request may not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedKind {
    /// There is no such model, or the key may not call it.
    UnknownModel,
    /// Every deployment of the model has failed this request already.
    NoneLeft,
    /// Money or tokens are spent.
    Budget,
    /// It fits into no limit, however long it waits.
    TooLarge,
    /// It does not fit into the model's context.
    TooLong,
    /// Too many wait already.
    QueueFull,
    /// It cannot be sent before its deadline, or was not.
    Deadline,
    /// The shared limits cannot be reached, and money is spent only under them.
    LimitsDown,
}

impl RefusedKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::UnknownModel,
        Self::NoneLeft,
        Self::Budget,
        Self::TooLarge,
        Self::TooLong,
        Self::QueueFull,
        Self::Deadline,
        Self::LimitsDown,
    ];

    /// Its word in logs and labels.
    pub const fn word(self) -> &'static str {
        match self {
            Self::UnknownModel => "unknown_model",
            Self::NoneLeft => "none_left",
            Self::Budget => "budget",
            Self::TooLarge => "too_large",
            Self::TooLong => "too_long",
            Self::QueueFull => "queue_full",
            Self::Deadline => "deadline",
            Self::LimitsDown => "limits_down",
        }
    }
}

/// What a provider's answer says of its limits, in whatever words its headers have. What it does not say, or says as -1, is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Calls.
    pub requests: Seen,
    /// Tokens of input and output together.
    pub tokens: Seen,
    /// Tokens of input.
    pub input_tokens: Seen,
    /// Tokens of output.
    pub output_tokens: Seen,
}

/// One limit, as the provider sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The limit, per minute as far as is known.
    pub limit: Option<u64>,
    /// What is left of it.
    pub remaining: Option<u64>,
    /// Until it is whole again.
    pub reset: Option<Duration>,
}
