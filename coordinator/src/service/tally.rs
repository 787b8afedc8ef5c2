//! What a coordinator counts: its events in the words of the telemetry. Without metrics, as in one process with its agent, nothing is counted.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kernelopt_shared::frontier::{Offer, Offered};
use kernelopt_shared::message::JobId;
use kernelopt_shared::telemetry::Offered as OfferResult;
use kernelopt_shared::telemetry::health::Health;
use kernelopt_shared::telemetry::{BrokerMetrics, Charge, CoordinatorMetrics, Done, Expiry, FrontierMetrics, Registry, TelemetryError};

use crate::fleet::leases;
use crate::fleet::{Note, Taken};

/// The condition that the journal can be written, as `/readyz` names it.
pub const JOURNAL_WRITABLE: &str = "journal";
/// That the broker can be reached.
pub const BROKER: &str = "broker";

/// Longest that the loop may be silent before a probe says that it hangs.
const LONGEST_TURN: Duration = Duration::from_secs(30);

/// Counts, or does not.
#[derive(Clone, Default)]
pub struct Tally {
    metrics: Option<Arc<Metrics>>,
    /// Why the journal cannot be written.
    unwritable: Arc<Mutex<Option<String>>>,
}

/// Metrics and health of a coordinator.
pub struct Metrics {
    /// Its own.
    pub coordinator: CoordinatorMetrics,
    /// Of the broker.
    pub broker: BrokerMetrics,
    /// Of the frontier.
    pub frontier: FrontierMetrics,
    /// Whether it lives and can work.
    pub health: Health,
}

impl Metrics {
    /// All of a coordinator's.
    ///
    /// # Errors
    /// The registry has them already.
    pub fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        Ok(Self {
            coordinator: CoordinatorMetrics::new(registry)?,
            broker: BrokerMetrics::new(registry)?,
            frontier: FrontierMetrics::new(registry)?,
            health: Health::new(LONGEST_TURN, [JOURNAL_WRITABLE, BROKER]),
        })
    }
}

impl Tally {
    /// Counts.
    pub fn of(metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), unwritable: Arc::default() }
    }

    /// The metrics, where it counts.
    pub fn metrics(&self) -> Option<&Metrics> {
        self.metrics.as_deref()
    }

    /// Why the journal cannot be written, if it cannot.
    pub fn unwritable(&self) -> Option<String> {
        self.unwritable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_unwritable(&self, why: Option<String>) {
        *self.unwritable.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    pub(super) fn malformed(&self, reason: &str) {
        self.metrics().iter().for_each(|metrics| metrics.broker.malformed(reason));
    }

    pub(super) fn unwritten(&self, events: usize) {
        let Some(metrics) = self.metrics() else { return };
        metrics.coordinator.journal.unwritten(events as u64);
    }

    pub(super) fn appended(&self, events: usize, took: Duration) {
        self.set_unwritable(None);
        let Some(metrics) = self.metrics() else { return };
        metrics.coordinator.journal.appended(events as u64, took);
        metrics.coordinator.journal.unwritten(0);
        metrics.health.met(JOURNAL_WRITABLE);
    }

    pub(super) fn not_appended(&self, error: &impl Display) {
        tracing::error!(%error, "the journal cannot be written; nothing goes on until it can");
        self.set_unwritable(Some(error.to_string()));
        let Some(metrics) = self.metrics() else { return };
        metrics.coordinator.journal.failed();
        metrics.health.unmet(JOURNAL_WRITABLE, error.to_string());
    }

    pub(super) fn ended(&self, job: &JobId) {
        let Some(metrics) = self.metrics() else { return };
        metrics.coordinator.jobs.ended(job);
    }

    pub(super) fn frontier_down(&self, error: &str) {
        let Some(metrics) = self.metrics() else { return };
        tracing::warn!(error, "the frontier cannot be kept up; it will catch up from the journal");
        metrics.frontier.up(false);
    }

    pub(super) fn rebuilt(&self, took: Duration) {
        let Some(metrics) = self.metrics() else { return };
        metrics.frontier.up(true);
        metrics.frontier.rebuilt(took);
    }

    pub(super) fn offered(&self, offer: &Offer, offered: &Offered, took: Duration) {
        let Some(metrics) = self.metrics() else { return };
        let result = match offered {
            Offered::Improved { .. } => OfferResult::Improved,
            Offered::Kept { .. } => OfferResult::Kept,
            Offered::Stale { .. } => OfferResult::Stale,
        };
        metrics.frontier.up(true);
        metrics.frontier.offered(result, took);
        if matches!(offered, Offered::Improved { .. }) {
            metrics.coordinator.jobs.improved(&offer.class);
        }
    }

    pub(super) fn note(&self, note: &Note) {
        let Some(Metrics { coordinator: CoordinatorMetrics { leases, tasks, .. }, .. }) = self.metrics() else { return };
        match note {
            Note::Granted { class, again } => leases.granted(class, *again),
            Note::Expired { class, expiry: leases::Expiry::Silent } => leases.expired(class, Expiry::Silent),
            Note::Expired { class, expiry: leases::Expiry::TooLong } => leases.expired(class, Expiry::Overrun),
            Note::Stale => leases.stale_report(),
            Note::Charged(None) => leases.charged(Charge::LeaseLost),
            Note::Charged(Some(kind)) => Charge::of(*kind).into_iter().for_each(|charge| leases.charged(charge)),
            Note::Forgiven(attempts) => leases.forgiven(*attempts as u64),
            Note::Poisoned(work) => tasks.poisoned(work),
            Note::Done(taken) => {
                let Taken { class, work, reply, times, queued, leased } = &**taken;
                tasks.done(&Done { class, work, reply, times, queued: *queued, leased: *leased });
            }
        }
    }
}
