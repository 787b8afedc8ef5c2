//! What a coordinator says.

use std::sync::Arc;

use super::jobs::JobMetrics;
use super::journal::JournalMetrics;
use super::labels::Capped;
use super::lanes::{LaneMetrics, LaneNow};
use super::leases::LeaseMetrics;
use super::queues::QueueMetrics;
use super::registry::{Registry, TelemetryError};
use super::tasks::TaskMetrics;
use crate::message::AgentId;

/// Of a coordinator, by noun.
pub struct CoordinatorMetrics {
    /// Leases and attempts.
    pub leases: LeaseMetrics,
    /// Tasks, verdicts and their clocks.
    pub tasks: TaskMetrics,
    /// Jobs.
    pub jobs: JobMetrics,
    /// The journal.
    pub journal: JournalMetrics,
    /// The broker's queues.
    pub queues: QueueMetrics,
    lanes: LaneMetrics,
    classes: Arc<Capped>,
}

impl CoordinatorMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        Ok(Self {
            leases: LeaseMetrics::new(registry)?,
            tasks: TaskMetrics::new(registry)?,
            jobs: JobMetrics::new(registry)?,
            journal: JournalMetrics::new(registry)?,
            queues: QueueMetrics::new(registry)?,
            lanes: LaneMetrics::new(registry)?,
            classes: registry.classes(),
        })
    }

    /// These are all lanes: those with tasks, and those with agents. To be said about once a second.
    pub fn lanes(&self, lanes: &[LaneNow]) {
        for lane in lanes {
            let class = self.classes.label(lane.class.as_str());
            self.leases.expect(class);
            self.tasks.expect(class);
            self.jobs.expect(class);
        }
        self.lanes.replace(lanes);
    }

    /// These are all agents in quarantine.
    pub fn quarantined<'a>(&self, agents: impl IntoIterator<Item = &'a AgentId>) {
        self.lanes.quarantined(agents);
    }
}
