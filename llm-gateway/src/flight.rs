//! One attempt that is at an upstream: whatever becomes of it, it is settled, counted, and its slot comes back.

use std::sync::Arc;

use kernelopt_shared::language_model::NanoUsd;
use kernelopt_shared::telemetry;

use crate::breaker::Sign;
use crate::estimate::Estimate;
use crate::gateway::{Gateway, Place};
use crate::names::ModelName;
use crate::queue::{Headers, Permit};
use crate::settings::{Deployment, Settings};
use crate::upstream::failure::Failure;
use crate::usage::Usage;

/// Bytes of text to a token, where an answer broke off before its provider had counted.
const BYTES_PER_TOKEN: u64 = 4;

/// An attempt. Dropped, it was cancelled: what was reserved stands, unless its holder has counted.
pub struct Flight {
    gateway: Arc<Gateway>,
    settings: Arc<Settings>,
    place: Arc<Place>,
    deployment: Arc<Deployment>,
    model: ModelName,
    estimate: Estimate,
    permit: Option<Permit>,
    counted: Option<Usage>,
}

/// What an attempt took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Tokens.
    pub usage: Usage,
    /// Money; none where no price is known.
    pub cost: Option<NanoUsd>,
}

impl Flight {
    /// It is being sent.
    pub fn start(
        gateway: Arc<Gateway>,
        settings: Arc<Settings>,
        place: Arc<Place>,
        model: ModelName,
        estimate: Estimate,
        mut permit: Permit,
    ) -> Self {
        let deployment = permit.deployment().clone();
        permit.sent();
        place.enter(&gateway.metrics);
        Self { gateway, settings, place, deployment, model, estimate, permit: Some(permit), counted: None }
    }

    /// Where.
    pub fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// The provider has said what is left of its limits.
    pub fn observe(&self, seen: &Headers) {
        if let Some(permit) = self.permit.as_ref().filter(|_| *seen != Headers::default()) {
            permit.observe(seen);
        }
    }

    /// The first byte of an answer came.
    pub fn first_byte(&self, took: std::time::Duration) {
        self.gateway.metrics.first_byte(self.place.name.as_str(), took);
    }

    /// So much text has come by now, in so many parts; `input` is known where the provider has said it. Should nobody say more, this is charged.
    pub fn count(&mut self, input: Option<u64>, said_bytes: u64, parts: u64) {
        let output = parts.max(said_bytes.div_ceil(BYTES_PER_TOKEN)).min(self.estimate.output);
        self.counted = Some(Usage::estimated(input.unwrap_or(self.estimate.input), output));
    }

    /// The answer is whole, and its provider says that it took `told`.
    pub fn answered(mut self, told: Option<Usage>, said_bytes: u64, parts: u64) -> Charged {
        self.count(None, said_bytes, parts);
        let counted = self.counted.unwrap_or_default();
        let (usage, how) = match told {
            Some(told) if self.can_be(&told, said_bytes) => (told.sane(), "exact"),
            Some(told) => {
                tracing::warn!(deployment = %self.deployment.id, ?told, ?counted, "the provider says it took what cannot be");
                // What it claims beyond what it was allowed is not believed, and what it leaves out is.
                (
                    Usage {
                        exact: false,
                        input: told.input.max(counted.input).min(self.estimate.most_input.max(counted.input)),
                        output: counted.output.max(told.output.min(self.estimate.output)),
                        ..Usage::default()
                    },
                    "implausible",
                )
            }
            None => (counted, "estimated"),
        };
        self.gateway.sign(&self.settings, &self.deployment.id, Sign::Answered);
        self.end("answered", usage, how, false)
    }

    /// Words came and no tokens, or more tokens than were allowed.
    fn can_be(&self, told: &Usage, said_bytes: u64) -> bool {
        let something = told.input > 0 && (told.output > 0 || said_bytes == 0);
        something && told.output <= self.estimate.output && (self.estimate.bytes == 0 || told.input <= self.estimate.most_input)
    }

    /// It failed. Closes the deployment where its health, or its own wish, asks for that.
    pub fn failed(mut self, failure: &Failure) {
        self.observe(&failure.seen);
        if let Some(until) = self.gateway.sign(&self.settings, &self.deployment.id, failure.sign()) {
            tracing::warn!(deployment = %self.deployment.id, outcome = failure.outcome(), pause_ms = until.saturating_duration_since(tokio::time::Instant::now()).as_millis() as u64, "left alone for a while");
            if let Some(permit) = &self.permit {
                permit.close(until);
            }
        }
        let usage = match (failure.is_free(), self.counted.take()) {
            (true, None) => Usage::NONE,
            (_, Some(counted)) => counted,
            // It may have worked, and may want to be paid for it.
            (false, None) => Usage::estimated(self.estimate.input, self.estimate.output),
        };
        let is_ours = matches!(failure.sign(), Sign::Answered);
        self.end(failure.outcome(), usage, if usage.exact { "exact" } else { "estimated" }, !is_ours);
    }

    fn end(&mut self, outcome: &str, usage: Usage, how: &str, by_fault: bool) -> Charged {
        let Some(permit) = self.permit.take() else { return Charged { usage, cost: None } };
        let settled = if by_fault { permit.fail(usage) } else { permit.settle(usage) };
        let metrics = &self.gateway.metrics;
        let Usage { input, cached_input, cache_write, output, reasoning, .. } = settled.usage;
        let tokens = telemetry::Settled { input, cached_input, cache_write, output, reasoning };
        metrics.settled(self.model.as_str(), how, tokens, settled.cost.unwrap_or_default());
        metrics.attempted(self.place.name.as_str(), outcome);
        self.place.leave(metrics);
        Charged { usage: settled.usage, cost: settled.cost }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.permit.is_some() {
            let reserved = Usage::estimated(self.estimate.input, self.estimate.output);
            let usage = self.counted.take().unwrap_or(reserved);
            self.end("cancelled", usage, "estimated", false);
        }
    }
}
