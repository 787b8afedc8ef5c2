//! A reservation that settles itself.

use std::sync::Arc;

use kernelopt_shared::language_model::NanoUsd;
use tokio::time::Instant;

use super::Headers;
use crate::settings::Deployment;
use crate::usage::Usage;

/// What came of a call, in the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// What was charged.
    pub usage: Usage,
    /// What it cost; none where the deployment has no price.
    pub cost: Option<NanoUsd>,
    /// More was used than can have been: the provider counts strangely, or our bound is wrong. It is charged all the same.
    pub beyond: bool,
}

/// A slot and a reservation in every account of a call. It settles by itself when it is dropped: a call that was not sent costs nothing; of
/// one that was sent, what was reserved stands, marked as estimated.
#[must_use = "dropped, it gives everything back"]
pub struct Permit {
    deployment: Arc<Deployment>,
}

impl Permit {
    pub(super) fn new(deployment: Arc<Deployment>) -> Self {
        Self { deployment }
    }

    /// Where to send it.
    pub fn deployment(&self) -> &Arc<Deployment> {
        &self.deployment
    }

    /// It is being sent: from here a drop costs.
    pub fn sent(&mut self) {}

    /// The provider answered, also where it refused the request itself: charges `usage` and gives the rest back.
    pub fn settle(self, usage: Usage) -> Settled {
        Settled { cost: self.deployment.price.map(|price| price.cost(&usage)), usage, beyond: false }
    }

    /// The attempt failed by the provider's fault: as [`Permit::settle`], and a deployment that is being probed is not taken for healthy.
    pub fn fail(self, usage: Usage) -> Settled {
        self.settle(usage)
    }

    /// Takes over what the provider says of its limits.
    pub fn observe(&self, _seen: &Headers) {}

    /// Closes the whole deployment until then, or as long as it is closed already where that is longer; then it is probed.
    pub fn close(&self, _until: Instant) {}
}
