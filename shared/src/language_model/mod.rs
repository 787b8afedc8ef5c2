//! What a search says to a language model, and what it hears.
//!
//! The search knows nothing of providers, keys or limits: it has a [`LanguageModel`]. The gateway is one, in the same process or over HTTP;
//! a batch file that somebody sends off is one; so is a file of recorded answers.

mod money;

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use money::NanoUsd;

/// Who speaks in a turn of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Standing instructions.
    System,
    /// The search.
    User,
    /// The model, in an earlier turn.
    Assistant,
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Turn {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

/// A conversation that awaits its next turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Names it within its job, and stays the same when a job is resumed: answers in files are matched by it. At most 64 characters of
    /// `a-z 0-9 . _ -`.
    pub id: String,
    /// The model, by the name that the gateway knows it by.
    pub model: String,
    /// The conversation. What many questions share comes first, so that providers' prompt caches hit.
    pub turns: Vec<Turn>,
    /// Tokens that the answer may have.
    pub max_output_tokens: u32,
    /// Randomness of the answer; the model's own default where there is none.
    pub temperature: Option<f32>,
    /// Which of several answers to the same conversation this asks for.
    pub sample: u32,
}

/// Why an answer ends where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model had said all.
    End,
    /// It ran into the limit of output tokens: what is there is cut.
    Length,
    /// It would not answer.
    Refusal,
}

/// Tokens that one call took, as the provider counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Tokens of the prompt, those read from the provider's cache included.
    pub input_tokens: u64,
    /// Tokens of the prompt that were read from the provider's cache.
    pub cached_input_tokens: u64,
    /// Tokens of the answer, hidden reasoning included.
    pub output_tokens: u64,
}

impl TokenUsage {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// What a model said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Its words.
    pub text: String,
    /// Why they end.
    pub stop: StopReason,
    /// The model that spoke, as the provider names it.
    pub model: String,
    /// What it took.
    pub usage: TokenUsage,
    /// What it cost; zero where no price is known.
    pub cost: NanoUsd,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum Unanswered {
    /// A batch is out, or an answer is not on record: the same question can be asked again later, at no cost.
    #[error("the answer is not there yet")]
    Later,
    /// Money or tokens are spent; asking again does not help.
    #[error("the budget is spent: {what}")]
    Spent { what: String },
    /// No provider could be reached in the time; asking again later may help.
    #[error("no model answered: {what}")]
    Unavailable { what: String, retry_after: Option<Duration> },
    /// The question cannot be answered as it is: an unknown model, a wrong key, a prompt that is too long.
    #[error("the question was refused: {what}")]
    Refused { what: String },
}

/// Something that answers questions. Dropping the future of [`LanguageModel::ask`] cancels the call, all the way to the provider.
#[async_trait]
pub trait LanguageModel: Send + Sync {
    /// Asks; waits for the answer.
    ///
    /// # Errors
    /// See [`Unanswered`].
    async fn ask(&self, job: &str, question: &Question) -> Result<Answer, Unanswered>;
}
