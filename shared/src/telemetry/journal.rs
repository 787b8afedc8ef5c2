//! The journal: how fast it takes events, and how many it has not yet taken.

use std::time::Duration;

use super::metric::{ANSWERS, Counter, Gauge, Histogram, Spec, Unit};
use super::registry::{Registry, TelemetryError};

const APPEND: Spec<0> = Spec::new(
    "kernelopt_journal_append_seconds",
    Unit::Seconds,
    [],
    "Appending one batch of events to the journal, to when it is on the disk.",
);
const EVENTS: Spec<0> = Spec::new("kernelopt_journal_events_total", Unit::Events, [], "Events of the journal that are on the disk.");
const FAILURES: Spec<0> = Spec::new(
    "kernelopt_journal_failures_total",
    Unit::Events,
    [],
    "Batches that could not be appended: a full disk, a newer coordinator.",
);
const UNWRITTEN: Spec<0> = Spec::new("kernelopt_journal_unwritten_events", Unit::Things, [], "Events that are not yet on the disk.");

/// The journal.
pub struct JournalMetrics {
    append: Histogram<0>,
    events: Counter<0>,
    failures: Counter<0>,
    unwritten: Gauge<0>,
}

impl JournalMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        let metrics = Self {
            append: registry.histogram(&APPEND, ANSWERS)?,
            events: registry.counter(&EVENTS)?,
            failures: registry.counter(&FAILURES)?,
            unwritten: registry.gauge(&UNWRITTEN)?,
        };
        metrics.append.expect([]);
        metrics.events.add([], 0);
        metrics.failures.add([], 0);
        metrics.unwritten.set([], 0.0);
        Ok(metrics)
    }

    /// A batch is on the disk.
    pub fn appended(&self, events: u64, took: Duration) {
        self.events.add([], events);
        self.append.observe([], took);
    }

    /// A batch could not be appended.
    pub fn failed(&self) {
        self.failures.add_one([]);
    }

    /// So many events are not yet on the disk.
    pub fn unwritten(&self, events: u64) {
        self.unwritten.set([], events as f64);
    }
}
