//! What is asked for.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::bounded::{BudgetSeconds, JobName, MaxCandidates, MaxCostMicroUsd, MaxTokens, ModelName, Priority, ProposerName, Seed, Weight};
use crate::digest::Digest;
use crate::message::DeviceClass;

/// A job, as submitted. Its bundle must have been stored before: `PUT /v1/blobs/{digest}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// What people call it; need not be unique.
    pub name: JobName,
    /// Blob of the bundle: a tar of its folder.
    pub bundle: Digest,
    /// Class of the devices to tune for; where none is named, that of the capturing device.
    #[serde(default)]
    pub class: Option<DeviceClass>,
    /// Time that it may be worked on.
    #[serde(default)]
    pub budget_seconds: BudgetSeconds,
    /// Candidates that it may judge.
    #[serde(default)]
    pub max_candidates: MaxCandidates,
    /// Seed of every draw.
    #[serde(default)]
    pub seed: Seed,
    /// Where candidates come from, in order.
    #[serde(default)]
    pub proposers: Proposers,
    /// Higher goes first.
    #[serde(default)]
    pub priority: Priority,
    /// Fair share among jobs of one priority.
    #[serde(default)]
    pub weight: Weight,
    /// The language model that the proposer `llm` asks, by the gateway's name for it.
    #[serde(default)]
    pub model: Option<ModelName>,
    /// Tokens that it may take, prompts and answers; none is asked where this is zero.
    #[serde(default)]
    pub max_tokens: MaxTokens,
    /// Money that it may cost, in millionths of a dollar; zero is what the tokens cost.
    #[serde(default)]
    pub max_cost_microusd: MaxCostMicroUsd,
}

/// Names of proposers, in the order in which they are asked; one to eight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Proposers(Vec<ProposerName>);

impl Proposers {
    /// Most names.
    pub const MOST: usize = 8;

    /// Checks a list.
    ///
    /// # Errors
    /// The number of names, in words.
    pub fn new(names: Vec<ProposerName>) -> Result<Self, String> {
        if (1..=Self::MOST).contains(&names.len()) {
            Ok(Self(names))
        } else {
            Err(format!("{} proposers; name 1 to {}", names.len(), Self::MOST))
        }
    }

    /// The names.
    pub fn names(&self) -> &[ProposerName] {
        &self.0
    }
}

impl Default for Proposers {
    fn default() -> Self {
        Self(ProposerName::parse("schedule").into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for Proposers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Vec::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Proposers {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::schema::ArrayBuilder::new()
            .items(ProposerName::schema())
            .min_items(Some(1))
            .max_items(Some(Self::MOST))
            .default(Some(serde_json::json!(["schedule"])))
            .into()
    }
}

impl ToSchema for Proposers {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_has_a_default_and_what_is_unknown_is_refused() {
        let spec: JobSpec = serde_json::from_str(r#"{"name": "a", "bundle": "00000000000000000000000000000000"}"#).unwrap();
        assert_eq!((spec.priority.get(), spec.budget_seconds.get(), spec.proposers.names().len()), (5, 600, 1));
        for bad in [
            r#"{"name": "a", "bundle": "00000000000000000000000000000000", "pritority": 9}"#,
            r#"{"name": "a", "bundle": "00000000000000000000000000000000", "proposers": []}"#,
            r#"{"name": "a", "bundle": "../../etc/passwd"}"#,
            r#"{"name": "a"}"#,
        ] {
            assert!(serde_json::from_str::<JobSpec>(bad).is_err(), "{bad}");
        }
    }
}
