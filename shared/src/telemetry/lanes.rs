//! What waits for which devices, and which devices there are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::kinds::MODES;
use super::labels::{Capped, MOST_HOSTS, OTHER, Snapshot};
use super::metric::{Spec, Unit};
use super::registry::{Registry, TelemetryError};
use crate::message::{AgentId, DeviceClass};

const OUTSTANDING: Spec<2> = Spec::new(
    "kernelopt_tasks_outstanding",
    Unit::Things,
    ["class", "state"],
    "Tasks not yet done by device class: waiting in the coordinator, leased to an agent, or running. Their sum is what a fleet must be scaled to.",
);
const OLDEST: Spec<1> = Spec::new(
    "kernelopt_queue_oldest_age_seconds",
    Unit::Seconds,
    ["class"],
    "How long the oldest waiting task of a device class has waited; 0 where none waits.",
);
const AGENTS: Spec<2> =
    Spec::new("kernelopt_agents", Unit::Things, ["class", "mode"], "Agents that the coordinator hears, by device class and mode.");
const QUARANTINED: Spec<1> =
    Spec::new("kernelopt_agents_quarantined", Unit::Things, ["host"], "Agents in quarantine by host; a host without any is not said.");

/// One device class as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneNow {
    /// The class.
    pub class: DeviceClass,
    /// Tasks in the coordinator's backlog.
    pub waiting: u64,
    /// Tasks given out that no agent has started.
    pub leased: u64,
    /// Tasks that agents work on.
    pub running: u64,
    /// Age of the oldest waiting task.
    pub oldest: Option<Duration>,
    /// Agents of the class.
    pub agents: AgentCounts,
}

/// Agents by [`crate::message::AgentMode`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounts {
    /// That take tasks.
    pub working: u64,
    /// That end what they have.
    pub draining: u64,
    /// In quarantine.
    pub quarantined: u64,
}

/// Backlog, agents.
pub(super) struct LaneMetrics {
    classes: Arc<Capped>,
    outstanding: Snapshot<2>,
    oldest: Snapshot<1>,
    agents: Snapshot<2>,
    quarantined: Snapshot<1>,
}

impl LaneMetrics {
    pub fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        Ok(Self {
            classes: registry.classes(),
            outstanding: Snapshot::of(registry.gauge(&OUTSTANDING)?),
            oldest: Snapshot::of(registry.gauge(&OLDEST)?),
            agents: Snapshot::of(registry.gauge(&AGENTS)?),
            quarantined: Snapshot::of(registry.gauge(&QUARANTINED)?),
        })
    }

    /// These are all lanes.
    pub fn replace(&self, lanes: &[LaneNow]) {
        let class = |lane: &LaneNow| self.classes.label(lane.class.as_str()).to_owned();
        let sum = |a, b| a + b;
        let by = |lane: &LaneNow, values: [(&str, u64); 3]| values.map(|(label, count)| ([class(lane), label.to_owned()], count as f64));
        let tasks = |lane| by(lane, [("waiting", lane.waiting), ("leased", lane.leased), ("running", lane.running)]);
        self.outstanding.replace(lanes.iter().flat_map(tasks), sum);
        let agents = |lane: &LaneNow| {
            let AgentCounts { working, draining, quarantined } = lane.agents;
            let [first, second, third] = MODES;
            by(lane, [(first, working), (second, draining), (third, quarantined)])
        };
        self.agents.replace(lanes.iter().flat_map(agents), sum);
        let oldest = |lane: &LaneNow| ([class(lane)], lane.oldest.unwrap_or_default().as_secs_f64());
        self.oldest.replace(lanes.iter().map(oldest), f64::max);
    }

    /// These are all agents in quarantine. The first hosts in order have their names, and the rest are [`OTHER`].
    pub fn quarantined<'a>(&self, agents: impl IntoIterator<Item = &'a AgentId>) {
        let mut hosts = BTreeMap::<&str, f64>::new();
        for agent in agents {
            *hosts.entry(agent.host()).or_default() += 1.0;
        }
        let named = |(place, (host, count)): (usize, (&str, f64))| ([if place < MOST_HOSTS { host } else { OTHER }.to_owned()], count);
        self.quarantined.replace(hosts.into_iter().enumerate().map(named), |a, b| a + b);
    }
}
