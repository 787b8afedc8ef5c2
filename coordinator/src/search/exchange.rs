//! What was asked of a language model, and what came of it.

use kernelopt_shared::language_model::{Answer, Question, Unanswered};
use serde::{Deserialize, Serialize};

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heard {
    /// A model spoke.
    Answer(Answer),
    /// None did, and none will.
    Unanswered(Unanswered),
}

impl From<Result<Answer, Unanswered>> for Heard {
    fn from(said: Result<Answer, Unanswered>) -> Self {
        said.map_or_else(Self::Unanswered, Self::Answer)
    }
}

/// A question about a target, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// What was asked.
    pub question: Question,
    /// What came of it; none while it is out.
    pub heard: Option<Heard>,
}

impl Exchange {
    /// The answer, where there is one.
    pub const fn answer(&self) -> Option<&Answer> {
        match &self.heard {
            Some(Heard::Answer(answer)) => Some(answer),
            Some(Heard::Unanswered(_)) | None => None,
        }
    }

    /// Why there is none, where there will be none.
    pub const fn unanswered(&self) -> Option<&Unanswered> {
        match &self.heard {
            Some(Heard::Unanswered(why)) => Some(why),
            Some(Heard::Answer(_)) | None => None,
        }
    }

    /// True while it is out.
    pub const fn is_open(&self) -> bool {
        self.heard.is_none()
    }
}
