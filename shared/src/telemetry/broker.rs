//! The broker as a process meets it.

use std::sync::Arc;
use std::time::Duration;

use super::kinds::{self, BROKER_STATES, FRAMES, UNREADABLE, one_of};
use super::metric::{ANSWERS, Counter, Gauge, Histogram, Spec, Unit};
use super::registry::{Registry, TelemetryError};
use crate::broker::{BrokerError, BrokerState};

const STATE: Spec<1> = Spec::new("kernelopt_broker_state", Unit::Flag, ["state"], "1 for how the broker is now, 0 for how it is not.");
const RECONNECTS: Spec<0> =
    Spec::new("kernelopt_broker_reconnects_total", Unit::Events, [], "Times that a lost connection to the broker was made again.");
const PUBLISHED: Spec<1> =
    Spec::new("kernelopt_broker_published_total", Unit::Events, ["kind"], "Frames that the broker took, by kind of message.");
const PUBLISH: Spec<0> = Spec::new("kernelopt_broker_publish_seconds", Unit::Seconds, [], "From a publication to its confirmation.");
const FAILED: Spec<1> = Spec::new(
    "kernelopt_broker_publish_failures_total",
    Unit::Events,
    ["cause"],
    "Frames that the broker did not take: unconfirmed, returned (nobody was there to take it), down, topology, full, too_large.",
);
const RECEIVED: Spec<1> = Spec::new("kernelopt_broker_received_total", Unit::Events, ["kind"], "Frames that came, by kind of message.");
const REDELIVERED: Spec<1> =
    Spec::new("kernelopt_broker_redelivered_total", Unit::Events, ["kind"], "Frames that came and that the broker had delivered before.");
const MALFORMED: Spec<1> = Spec::new(
    "kernelopt_messages_malformed_total",
    Unit::Events,
    ["reason"],
    "Frames that could not be read: foreign, torn, checksum, version, kind, unexpected, too_large, payload.",
);
const DEAD: Spec<1> =
    Spec::new("kernelopt_dead_letters_total", Unit::Events, ["kind"], "Frames sent to the dead letter queue, by the kind that they claim.");
/// Causes of a frame not taken.
const CAUSES: [&str; 6] = ["unconfirmed", "returned", "down", "topology", "full", "too_large"];

/// The broker as a process meets it. Clones are the same metrics.
#[derive(Clone)]
pub struct BrokerMetrics(Arc<Inner>);

struct Inner {
    state: Gauge<1>,
    reconnects: Counter<0>,
    published: Counter<1>,
    publish: Histogram<0>,
    failed: Counter<1>,
    received: Counter<1>,
    redelivered: Counter<1>,
    malformed: Counter<1>,
    dead: Counter<1>,
}

impl BrokerMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        let inner = Inner {
            state: registry.gauge(&STATE)?,
            reconnects: registry.counter(&RECONNECTS)?,
            published: registry.counter(&PUBLISHED)?,
            publish: registry.histogram(&PUBLISH, ANSWERS)?,
            failed: registry.counter(&FAILED)?,
            received: registry.counter(&RECEIVED)?,
            redelivered: registry.counter(&REDELIVERED)?,
            malformed: registry.counter(&MALFORMED)?,
            dead: registry.counter(&DEAD)?,
        };
        inner.reconnects.add([], 0);
        inner.publish.expect([]);
        CAUSES.iter().for_each(|cause| inner.failed.add([cause], 0));
        for counter in [&inner.published, &inner.received, &inner.redelivered, &inner.dead] {
            FRAMES.iter().for_each(|kind| counter.add([kind], 0));
        }
        UNREADABLE.iter().for_each(|reason| inner.malformed.add([reason], 0));
        Ok(Self(Arc::new(inner)))
    }

    /// It is so now.
    pub fn state(&self, state: &BrokerState) {
        self.0.state.choose(&BROKER_STATES, kinds::broker_state(state), |state| [state.to_owned()]);
    }

    /// A lost connection was made again.
    pub fn reconnected(&self) {
        self.0.reconnects.add_one([]);
    }

    /// The broker took a frame, after so long.
    pub fn published(&self, kind: &str, took: Duration) {
        self.0.published.add_one([one_of(&FRAMES, kind)]);
        self.0.publish.observe([], took);
    }

    /// The broker did not take a frame.
    pub fn not_published(&self, error: &BrokerError) {
        let [unconfirmed, returned, down, topology, full, too_large] = CAUSES;
        self.0.failed.add_one([match error {
            BrokerError::Unconfirmed(_) => unconfirmed,
            BrokerError::Unroutable(_) => returned,
            BrokerError::Down(_) => down,
            BrokerError::Topology(_) => topology,
            BrokerError::Full(_) => full,
            BrokerError::TooLarge { .. } => too_large,
        }]);
    }

    /// A frame came.
    pub fn received(&self, kind: &str, redelivered: bool) {
        let kind = one_of(&FRAMES, kind);
        self.0.received.add_one([kind]);
        self.0.redelivered.add([kind], u64::from(redelivered));
    }

    /// A frame could not be read; `reason` is that of the wire's error.
    pub fn malformed(&self, reason: &str) {
        self.0.malformed.add_one([one_of(&UNREADABLE, reason)]);
    }

    /// A frame went to the dead letters; `kind` is what it claims to be.
    pub fn dead_letter(&self, kind: &str) {
        self.0.dead.add_one([one_of(&FRAMES, kind)]);
    }
}
