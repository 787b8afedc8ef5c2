//! The broker's queues, as the coordinator sees them.

use std::sync::Arc;

use super::labels::{Capped, Snapshot};
use super::metric::{Spec, Unit};
use super::registry::{Registry, TelemetryError};
use crate::broker::{Address, Depth};

const READY: Spec<1> = Spec::new(
    "kernelopt_broker_queue_messages",
    Unit::Things,
    ["queue"],
    "Frames in a queue of the broker that were delivered to nobody yet.",
);
const CONSUMERS: Spec<1> = Spec::new("kernelopt_broker_queue_consumers", Unit::Things, ["queue"], "Subscribers of a queue of the broker.");

/// The broker's queues.
pub struct QueueMetrics {
    classes: Arc<Capped>,
    ready: Snapshot<1>,
    consumers: Snapshot<1>,
}

impl QueueMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        Ok(Self {
            classes: registry.classes(),
            ready: Snapshot::of(registry.gauge(&READY)?),
            consumers: Snapshot::of(registry.gauge(&CONSUMERS)?),
        })
    }

    /// These are all queues and what waits in them. Those of single agents are many and short-lived: nothing is said of them.
    pub fn replace<'a>(&self, queues: impl IntoIterator<Item = (&'a Address, Depth)>) {
        let shown: Vec<_> = queues.into_iter().filter_map(|(address, depth)| Some((self.name(address)?, depth))).collect();
        let sum = |a, b| a + b;
        self.ready.replace(shown.iter().map(|(queue, depth)| ([queue.clone()], depth.ready as f64)), sum);
        self.consumers.replace(shown.iter().map(|(queue, depth)| ([queue.clone()], depth.consumers as f64)), sum);
    }

    fn name(&self, address: &Address) -> Option<String> {
        match address {
            Address::Lane(class) => Some(format!("lane/{}", self.classes.label(class.as_str()))),
            Address::Reports => Some("reports".into()),
            Address::Pulses => Some("pulses".into()),
            Address::Dead => Some("dead".into()),
            Address::Agent(_) | Address::Everyone => None,
        }
    }
}
