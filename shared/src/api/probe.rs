//! Whether a coordinator can do its work.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether a coordinator can do its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// True where every check holds.
    pub ready: bool,
    /// What was looked at.
    pub checks: Vec<ReadinessCheck>,
}

impl Readiness {
    /// Ready where every one of `checks` holds.
    pub fn of(checks: Vec<ReadinessCheck>) -> Self {
        Self { ready: checks.iter().all(|check| check.holds), checks }
    }
}

/// One thing that a coordinator needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadinessCheck {
    /// `journal`, `broker`, `leading`, ...
    pub what: String,
    /// Whether it has it.
    pub holds: bool,
    /// What was seen, where it has not.
    pub detail: Option<String>,
}
