//! One request of a caller, as it is counted and logged. Whatever becomes of it, it is counted once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::gateway::Gateway;

/// A request that is under way. Dropped without an outcome, it was cancelled.
pub struct Record {
    gateway: Arc<Gateway>,
    request_id: Option<String>,
    model: String,
    job: String,
    key: String,
    began: Instant,
    /// Time that was spent waiting for admission and for upstreams.
    elsewhere: Duration,
    outcome: &'static str,
    attempts: u32,
}

impl Record {
    /// Of a request for `model`, a name that is served.
    pub fn new(gateway: Arc<Gateway>, request_id: Option<String>, model: String, job: String, key: String) -> Self {
        Self { gateway, request_id, model, job, key, began: Instant::now(), elsewhere: Duration::ZERO, outcome: "cancelled", attempts: 0 }
    }

    /// The request's name.
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// So long nothing was for the gateway to do.
    pub fn elsewhere(&mut self, time: Duration) {
        self.elsewhere += time;
    }

    /// One more attempt is made.
    pub const fn attempt(&mut self) {
        self.attempts += 1;
    }

    /// What came of it.
    pub const fn outcome(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }

    /// The first byte of its answer goes out.
    pub fn first_byte(&self) {
        self.gateway.metrics.overhead(self.began.elapsed().saturating_sub(self.elsewhere));
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        self.gateway.metrics.ended(&self.model, self.outcome, took);
        let Self { model, job, key, outcome, attempts, request_id, .. } = self;
        let id = request_id.as_deref().unwrap_or("-");
        tracing::debug!(model, job, key, outcome, attempts, ms = took.as_millis() as u64, id, "completion");
    }
}
