//! A reservation that settles itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kernelopt_shared::language_model::NanoUsd;
use tokio::time::Instant;

use super::admission::Core;
use super::state::{Grant, refused};
use super::{Ask, Headers, Refused};
use crate::estimate::Estimate;
use crate::limit::gate::Health;
use crate::limit::ledger::{AccountName, Denied};
use crate::limit::shared::{Place, Reserved, SharedBooks};
use crate::limit::{Amounts, Kind};
use crate::names::ModelName;
use crate::settings::{Deployment, Dialect};
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
    core: Arc<Core>,
    /// None once it is settled.
    grant: Option<Grant>,
    deployment: Arc<Deployment>,
    model: ModelName,
    estimate: Estimate,
    sent: bool,
    /// It has closed the gate itself.
    closed: AtomicBool,
    /// Where it is reserved too.
    place: Option<Place>,
}

impl Permit {
    pub(super) fn new(core: Arc<Core>, grant: Grant, ask: &Ask) -> Self {
        Self {
            core,
            deployment: grant.choice.deployment.clone(),
            grant: Some(grant),
            model: ask.model.clone(),
            estimate: ask.estimate,
            sent: false,
            closed: AtomicBool::new(false),
            place: None,
        }
    }

    /// Reserves in the shared books what is reserved in ours.
    pub(super) async fn reserve(&self, shared: &SharedBooks) -> Reserved {
        match &self.grant {
            Some(grant) => shared.reserve(grant.ticket, &grant.choice.wanted).await,
            None => Reserved::Taken(Place::Part),
        }
    }

    /// It is reserved there.
    pub(super) fn shared(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// A denial for good, in the caller's words.
    pub(super) fn refused(&self, denied: &Denied) -> Refused {
        refused(denied, &self.model)
    }

    /// Where to send it.
    pub fn deployment(&self) -> &Arc<Deployment> {
        &self.deployment
    }

    /// It is being sent: from here a drop costs.
    pub fn sent(&mut self) {
        self.sent = true;
    }

    /// The provider answered, also where it refused the request itself: charges `usage` and gives the rest back.
    pub fn settle(mut self, usage: Usage) -> Settled {
        let health = if self.closed.load(Ordering::Relaxed) { Health::Bad } else { Health::Good };
        self.book(usage, health)
    }

    /// The attempt failed by the provider's fault: as [`Permit::settle`], and a deployment that is being probed is not taken for healthy.
    pub fn fail(mut self, usage: Usage) -> Settled {
        self.book(usage, Health::Bad)
    }

    /// Takes over what the provider says of its limits.
    pub fn observe(&self, seen: &Headers) {
        let name = AccountName::deployment(&self.deployment.id);
        let kinds = [seen.requests, seen.tokens, seen.input_tokens, seen.output_tokens];
        if kinds.iter().all(|seen| seen.limit.is_none() && seen.remaining.is_none()) {
            return;
        }
        self.core.change(|state, now| {
            for (kind, seen) in Kind::ALL.into_iter().zip(kinds) {
                state.books.ledger.observe(&name, &self.deployment.limits, kind, seen.limit, seen.remaining, now);
            }
        });
    }

    /// Closes the whole deployment until then, or as long as it is closed already where that is longer; then it is probed.
    pub fn close(&self, until: Instant) {
        self.closed.store(true, Ordering::Relaxed);
        self.core.close(&self.deployment.id, until);
    }

    fn book(&mut self, usage: Usage, health: Health) -> Settled {
        let usage = usage.sane();
        let cost = self.deployment.price.map(|price| price.cost(&usage));
        if usage.exact && usage.input > 0 {
            self.core.estimator().learn(&self.model, self.estimate.bytes, usage.input);
        }
        // Anthropic does not count what its cache had against the rates; OpenAI does.
        let counted = match self.deployment.upstream.dialect {
            Dialect::Anthropic => usage.input - usage.cached_input,
            Dialect::Openai => usage.input,
        };
        let used =
            Amounts { requests: 1, input: counted, output: usage.output, money: cost.unwrap_or_default(), budget_tokens: usage.total() };
        let reserved = self.grant.as_ref().map(|grant| grant.choice.wanted.amounts).unwrap_or_default();
        let beyond = used.money > reserved.money || used.budget_tokens > reserved.budget_tokens;
        self.end(&used, health);
        Settled { usage, cost, beyond }
    }

    fn end(&mut self, used: &Amounts, health: Health) {
        let Some(grant) = self.grant.take() else { return };
        if let (Some(shared), Some(place)) = (&self.core.shared, self.place) {
            shared.settle(place, grant.ticket, grant.choice.wanted.clone(), *used);
        }
        self.core.change(|state, now| {
            state.books.settle(grant.ticket, &grant.choice.deployment.id, used, grant.pass, health, now);
            state.pump(now);
        });
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(grant) = &self.grant else { return };
        let used = if self.sent { grant.choice.wanted.amounts } else { Amounts::default() };
        let health = if self.closed.load(Ordering::Relaxed) { Health::Bad } else { Health::Unknown };
        self.end(&used, health);
    }
}
