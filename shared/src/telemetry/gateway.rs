//! What a gateway says: requests of callers, attempts at upstreams, tokens and money, queue and cache.

use std::sync::Arc;
use std::time::Duration;

use super::kinds::one_of;
use super::labels::{Capped, MOST_MODELS, MOST_UPSTREAMS};
use super::metric::{ANSWERS, Counter, Gauge, Histogram, Spec, Unit, WAITS, WORK};
use super::registry::{Registry, TelemetryError};
use crate::language_model::NanoUsd;

const REQUESTS: Spec<2> = Spec::new(
    "kernelopt_gateway_requests_total",
    Unit::Events,
    ["model", "outcome"],
    "Requests that have ended, by model and by what came of them: answered, cached, cut (an answer that broke off), cancelled, or the kind of error.",
);
const TOOK: Spec<1> =
    Spec::new("kernelopt_gateway_request_seconds", Unit::Seconds, ["model"], "From a request's body to the end of its answer.");
const OVERHEAD: Spec<0> = Spec::new(
    "kernelopt_gateway_overhead_seconds",
    Unit::Seconds,
    [],
    "What the gateway itself added to an answer: from body to first byte, without waiting in the queue and for upstreams.",
);
const QUEUED: Spec<0> = Spec::new("kernelopt_gateway_queue_wait_seconds", Unit::Seconds, [], "From asking for admission to having it.");
const WAITING: Spec<0> = Spec::new("kernelopt_gateway_queued", Unit::Things, [], "Requests that wait for admission.");
const IN_FLIGHT: Spec<1> = Spec::new("kernelopt_gateway_in_flight", Unit::Things, ["upstream"], "Requests that are at an upstream.");
const ATTEMPTS: Spec<2> = Spec::new(
    "kernelopt_gateway_attempts_total",
    Unit::Events,
    ["upstream", "outcome"],
    "Requests sent to upstreams, by what came of them; one request of a caller can be several.",
);
const FIRST_BYTE: Spec<1> = Spec::new(
    "kernelopt_gateway_upstream_first_byte_seconds",
    Unit::Seconds,
    ["upstream"],
    "From sending to an upstream to the first byte of its answer's body.",
);
const TOKENS: Spec<2> = Spec::new(
    "kernelopt_gateway_tokens_total",
    Unit::Events,
    ["model", "kind"],
    "Tokens that were settled: input (cached_input and cache_write are parts of it), output (reasoning is a part of it).",
);
const SETTLED: Spec<1> = Spec::new(
    "kernelopt_gateway_settled_total",
    Unit::Events,
    ["how"],
    "Attempts settled by the provider's own count (exact), by ours where there was none (estimated) or where it could not be true (implausible).",
);
const COST: Spec<1> =
    Spec::new("kernelopt_gateway_cost_nanousd_total", Unit::Events, ["model"], "Money spent, in billionths of a US dollar.");
const CLOSED: Spec<1> = Spec::new(
    "kernelopt_gateway_upstream_closed",
    Unit::Flag,
    ["upstream"],
    "1 while nothing is sent to an upstream's deployment, since it asked for a pause or failed too often.",
);
const CACHE: Spec<1> = Spec::new(
    "kernelopt_gateway_cache_total",
    Unit::Events,
    ["outcome"],
    "Requests that might be answered from the cache: hit, miss, or joined to one that was under way.",
);
const RELOADS: Spec<1> = Spec::new(
    "kernelopt_gateway_reloads_total",
    Unit::Events,
    ["outcome"],
    "Times that settings were read again, and whether they were taken.",
);
const STORE: Spec<0> = Spec::new(
    "kernelopt_gateway_store_up",
    Unit::Flag,
    [],
    "1 while limits are kept where all gateways see them (Redis, or the memory of the only one), 0 while each keeps a share.",
);
const BATCHES: Spec<1> =
    Spec::new("kernelopt_gateway_batch_lines_total", Unit::Events, ["outcome"], "Lines of batches that have ended, by what came of them.");

/// What came of a caller's request, besides kinds of errors.
const OUTCOMES: [&str; 18] = [
    "answered",
    "cached",
    "cut",
    "cancelled",
    "invalid",
    "context_length",
    "unauthorized",
    "forbidden",
    "not_found",
    "method_not_allowed",
    "too_large",
    "never_fits",
    "rate_limited",
    "budget_spent",
    "overloaded",
    "upstream",
    "timeout",
    "internal",
];
/// What came of an attempt.
const ATTEMPTED: [&str; 12] = [
    "answered",
    "cut",
    "cancelled",
    "rate_limited",
    "overloaded",
    "server_error",
    "timeout",
    "unreachable",
    "corrupt",
    "credential",
    "money",
    "refused",
];
const KINDS: [&str; 5] = ["input", "cached_input", "cache_write", "output", "reasoning"];
const HOW: [&str; 3] = ["exact", "estimated", "implausible"];
const CACHED: [&str; 3] = ["hit", "miss", "joined"];
const RELOADED: [&str; 2] = ["taken", "refused"];
const LINES: [&str; 4] = ["completed", "failed", "expired", "cancelled"];

/// Of a gateway. Clones are the same metrics.
#[derive(Clone)]
pub struct GatewayMetrics(Arc<Inner>);

struct Inner {
    models: Capped,
    upstreams: Capped,
    requests: Counter<2>,
    took: Histogram<1>,
    overhead: Histogram<0>,
    queued: Histogram<0>,
    waiting: Gauge<0>,
    in_flight: Gauge<1>,
    attempts: Counter<2>,
    first_byte: Histogram<1>,
    tokens: Counter<2>,
    settled: Counter<1>,
    cost: Counter<1>,
    closed: Gauge<1>,
    cache: Counter<1>,
    reloads: Counter<1>,
    store: Gauge<0>,
    lines: Counter<1>,
}

/// Tokens that were settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Of the prompt, those below included.
    pub input: u64,
    /// Read from a cache.
    pub cached_input: u64,
    /// Written to one.
    pub cache_write: u64,
    /// Of the answer, those below included.
    pub output: u64,
    /// Of hidden reasoning.
    pub reasoning: u64,
}

impl GatewayMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        let inner = Inner {
            models: Capped::new(MOST_MODELS),
            upstreams: Capped::new(MOST_UPSTREAMS),
            requests: registry.counter(&REQUESTS)?,
            took: registry.histogram(&TOOK, WORK)?,
            overhead: registry.histogram(&OVERHEAD, ANSWERS)?,
            queued: registry.histogram(&QUEUED, WAITS)?,
            waiting: registry.gauge(&WAITING)?,
            in_flight: registry.gauge(&IN_FLIGHT)?,
            attempts: registry.counter(&ATTEMPTS)?,
            first_byte: registry.histogram(&FIRST_BYTE, WORK)?,
            tokens: registry.counter(&TOKENS)?,
            settled: registry.counter(&SETTLED)?,
            cost: registry.counter(&COST)?,
            closed: registry.gauge(&CLOSED)?,
            cache: registry.counter(&CACHE)?,
            reloads: registry.counter(&RELOADS)?,
            store: registry.gauge(&STORE)?,
            lines: registry.counter(&BATCHES)?,
        };
        inner.overhead.expect([]);
        inner.queued.expect([]);
        inner.waiting.set([], 0.0);
        inner.store.set([], 1.0);
        HOW.iter().for_each(|how| inner.settled.add([how], 0));
        CACHED.iter().for_each(|outcome| inner.cache.add([outcome], 0));
        RELOADED.iter().for_each(|outcome| inner.reloads.add([outcome], 0));
        LINES.iter().for_each(|outcome| inner.lines.add([outcome], 0));
        let metrics = Self(Arc::new(inner));
        metrics.expect_model(super::OTHER);
        Ok(metrics)
    }

    /// A model is served: its series appear.
    pub fn expect_model(&self, model: &str) {
        let model = self.0.models.label(model);
        OUTCOMES.iter().for_each(|outcome| self.0.requests.add([model, outcome], 0));
        KINDS.iter().for_each(|kind| self.0.tokens.add([model, kind], 0));
        self.0.cost.add([model], 0);
        self.0.took.expect([model]);
    }

    /// An upstream is there: its series appear.
    pub fn expect_upstream(&self, upstream: &str) {
        let upstream = self.0.upstreams.label(upstream);
        ATTEMPTED.iter().for_each(|outcome| self.0.attempts.add([upstream, outcome], 0));
        self.0.first_byte.expect([upstream]);
        self.0.in_flight.set([upstream], 0.0);
        self.0.closed.set([upstream], 0.0);
    }

    /// A request has ended. `model` is one that is served, else [`super::OTHER`]: callers choose what they ask for.
    pub fn ended(&self, model: &str, outcome: &str, took: Duration) {
        let model = self.0.models.label(model);
        self.0.requests.add_one([model, one_of(&OUTCOMES, outcome)]);
        self.0.took.observe([model], took);
    }

    /// The gateway itself took so long for a request.
    pub fn overhead(&self, took: Duration) {
        self.0.overhead.observe([], took);
    }

    /// A request was admitted, or refused, after so long.
    pub fn admitted(&self, waited: Duration) {
        self.0.queued.observe([], waited);
    }

    /// So many wait now.
    pub fn waiting(&self, requests: usize) {
        self.0.waiting.set([], requests as f64);
    }

    /// So many are at an upstream now.
    pub fn in_flight(&self, upstream: &str, requests: usize) {
        self.0.in_flight.set([self.0.upstreams.label(upstream)], requests as f64);
    }

    /// An attempt has ended.
    pub fn attempted(&self, upstream: &str, outcome: &str) {
        self.0.attempts.add_one([self.0.upstreams.label(upstream), one_of(&ATTEMPTED, outcome)]);
    }

    /// The first byte of an upstream's answer came.
    pub fn first_byte(&self, upstream: &str, took: Duration) {
        self.0.first_byte.observe([self.0.upstreams.label(upstream)], took);
    }

    /// An attempt was settled.
    pub fn settled(&self, model: &str, how: &str, tokens: Settled, cost: NanoUsd) {
        let model = self.0.models.label(model);
        let counts = [tokens.input, tokens.cached_input, tokens.cache_write, tokens.output, tokens.reasoning];
        KINDS.iter().zip(counts).for_each(|(kind, count)| self.0.tokens.add([model, kind], count));
        self.0.settled.add_one([one_of(&HOW, how)]);
        self.0.cost.add([model], cost.0);
    }

    /// Nothing is sent to an upstream for the time being, or it is again.
    pub fn closed(&self, upstream: &str, closed: bool) {
        self.0.closed.set([self.0.upstreams.label(upstream)], f64::from(u8::from(closed)));
    }

    /// The cache was asked.
    pub fn cache(&self, outcome: &str) {
        self.0.cache.add_one([one_of(&CACHED, outcome)]);
    }

    /// Settings were read again.
    pub fn reloaded(&self, taken: bool) {
        let [yes, no] = RELOADED;
        self.0.reloads.add_one([if taken { yes } else { no }]);
    }

    /// Whether limits are kept where all gateways see them.
    pub fn store_up(&self, up: bool) {
        self.0.store.set([], f64::from(u8::from(up)));
    }

    /// A line of a batch has ended.
    pub fn batch_line(&self, outcome: &str) {
        self.0.lines.add_one([one_of(&LINES, outcome)]);
    }
}
