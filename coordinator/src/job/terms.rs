//! What a job was asked to do.

use std::time::Duration;

use kernelopt_shared::api::{DrillSpec, JobSpec};
use kernelopt_shared::language_model::NanoUsd;
use kernelopt_shared::message::DeviceClass;
use serde::{Deserialize, Serialize};

use crate::search::allowance::Allowance;
use crate::search::plan::Limits;

/// Priority of a job that names none; zero to nine, higher first.
pub const PRIORITY: u8 = 5;
/// Share of a job that names none, against other jobs of its priority.
pub const WEIGHT: u32 = 10;

/// What a job was asked to do. Fixed when it is opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// What people call it; may be empty.
    pub name: String,
    /// The devices that it is for; none where any class that fits the capture will do.
    pub class: Option<DeviceClass>,
    /// Time to spend while any of its tasks is under way, in milliseconds.
    pub budget_ms: u64,
    /// Candidates to judge at most.
    pub max_candidates: u64,
    /// Seed of every draw.
    pub seed: u64,
    /// Where candidates come from, in order.
    pub proposers: Vec<String>,
    /// Zero to nine; a job of a higher priority is served first.
    pub priority: u8,
    /// Share of the devices against other jobs of its priority.
    pub weight: u32,
    /// The language model that is asked, by the gateway's name for it; empty where none is.
    #[serde(default)]
    pub model: String,
    /// Tokens that language models may take; zero: none is asked.
    #[serde(default)]
    pub max_tokens: u64,
    /// Money that language models may cost; zero: what their tokens cost.
    #[serde(default)]
    pub max_cost: NanoUsd,
}

impl From<&JobSpec> for Terms {
    fn from(spec: &JobSpec) -> Self {
        Self {
            name: spec.name.to_string(),
            class: spec.class.clone(),
            budget_ms: u64::from(spec.budget_seconds.get()) * 1000,
            max_candidates: spec.max_candidates.get().into(),
            seed: spec.seed.get(),
            proposers: spec.proposers.names().iter().map(ToString::to_string).collect(),
            priority: spec.priority.get(),
            weight: spec.weight.get().into(),
            model: spec.model.as_ref().map(ToString::to_string).unwrap_or_default(),
            max_tokens: spec.max_tokens.get(),
            max_cost: NanoUsd(spec.max_cost_microusd.get().saturating_mul(1000)),
        }
    }
}

impl From<&DrillSpec> for Terms {
    fn from(spec: &DrillSpec) -> Self {
        Self {
            name: spec.name.to_string(),
            class: spec.class.clone(),
            // It ends with its last task.
            budget_ms: 0,
            max_candidates: spec.tasks.get().into(),
            seed: 0,
            proposers: Vec::new(),
            priority: spec.priority.get(),
            weight: spec.weight.get().into(),
            model: String::new(),
            max_tokens: 0,
            max_cost: NanoUsd::ZERO,
        }
    }
}

impl Terms {
    /// When the job is to end.
    pub fn limits(&self) -> Limits {
        Limits { budget: Duration::from_millis(self.budget_ms), max_candidates: self.max_candidates }
    }

    /// What may be spent on language models.
    pub const fn allowance(&self) -> Allowance {
        Allowance { max_tokens: self.max_tokens, max_cost: self.max_cost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As jobs were journaled before there were language models.
    #[test]
    fn terms_of_an_earlier_version_ask_nobody() {
        let text = r#"{"name": "", "class": null, "budget_ms": 1, "max_candidates": 2, "seed": 3, "proposers": ["schedule"], "priority": 5, "weight": 10}"#;
        let terms: Terms = serde_json::from_str(text).unwrap();
        assert_eq!(terms.allowance(), Allowance::default());
    }
}
