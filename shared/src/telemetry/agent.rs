//! What an agent's process says: one or more devices, each an agent to the coordinator.

use std::sync::Arc;
use std::time::Duration;

use super::device::DeviceMetrics;
use super::kinds::{self, MODES, REPLIES, WORKS};
use super::labels::{Capped, MOST_DEVICES};
use super::metric::{Counter, Gauge, Histogram, Spec, Unit, WAITS, WORK};
use super::registry::{Registry, TelemetryError};
use crate::message::{AgentId, Beat, Reply, Times, Work};

const MODE: Spec<2> =
    Spec::new("kernelopt_agent_mode", Unit::Flag, ["device", "mode"], "1 for what a device's agent does now, 0 for what it does not.");
const BUSY: Spec<1> = Spec::new(
    "kernelopt_device_busy_ratio",
    Unit::Ratio,
    ["device"],
    "Share of the time since the last beat in which the device verified or measured.",
);
const HELD: Spec<1> = Spec::new(
    "kernelopt_agent_tasks_held",
    Unit::Things,
    ["device"],
    "Tasks that a device's agent holds: running, built ahead, or reported and not yet accepted.",
);
const UNACCEPTED: Spec<1> = Spec::new(
    "kernelopt_agent_reports_unaccepted",
    Unit::Things,
    ["device"],
    "Reports that are sent again and again until the coordinator accepts them.",
);
const DONE: Spec<2> = Spec::new(
    "kernelopt_agent_tasks_done_total",
    Unit::Events,
    ["device", "reply"],
    "Tasks that a device's agent has ended, by what came of them.",
);
const RUN: Spec<1> =
    Spec::new("kernelopt_agent_task_run_seconds", Unit::Seconds, ["work"], "The work of a task itself, without waiting and fetching.");
const WAIT: Spec<1> = Spec::new(
    "kernelopt_agent_task_wait_seconds",
    Unit::Seconds,
    ["work"],
    "From a task's delivery to its start: builds ahead, other tasks of the device.",
);
const BUILD: Spec<1> = Spec::new(
    "kernelopt_agent_task_build_seconds",
    Unit::Seconds,
    ["work"],
    "Building what a task runs, ahead of it; of a batch that was built together, the first task's.",
);
const CANARIES: Spec<2> = Spec::new(
    "kernelopt_agent_canaries_total",
    Unit::Events,
    ["device", "result"],
    "Times that a device's agent tested itself with a kernel known to be good, after failures in a row.",
);

/// Of an agent's process.
pub struct AgentMetrics {
    /// What its devices are doing.
    pub devices: DeviceMetrics,
    names: Arc<Capped>,
    mode: Gauge<2>,
    busy: Gauge<1>,
    held: Gauge<1>,
    unaccepted: Gauge<1>,
    done: Counter<2>,
    run: Histogram<1>,
    wait: Histogram<1>,
    build: Histogram<1>,
    canaries: Counter<2>,
}

impl AgentMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        let names = Arc::new(Capped::new(MOST_DEVICES));
        let metrics = Self {
            devices: DeviceMetrics::new(registry, Arc::clone(&names))?,
            names,
            mode: registry.gauge(&MODE)?,
            busy: registry.gauge(&BUSY)?,
            held: registry.gauge(&HELD)?,
            unaccepted: registry.gauge(&UNACCEPTED)?,
            done: registry.counter(&DONE)?,
            run: registry.histogram(&RUN, WORK)?,
            wait: registry.histogram(&WAIT, WAITS)?,
            build: registry.histogram(&BUILD, WORK)?,
            canaries: registry.counter(&CANARIES)?,
        };
        for work in WORKS {
            metrics.run.expect([work]);
            metrics.wait.expect([work]);
            metrics.build.expect([work]);
        }
        Ok(metrics)
    }

    /// An agent of this process exists: its series appear, so that its first events are seen.
    pub fn expect(&self, agent: &AgentId) {
        let device = self.names.label(agent.device());
        REPLIES.iter().for_each(|reply| self.done.add([device, reply], 0));
        ["passed", "failed"].iter().for_each(|result| self.canaries.add([device, result], 0));
        self.unaccepted.set([device], 0.0);
        self.devices.expect(device);
    }

    /// What it tells the coordinator of itself.
    pub fn beat(&self, beat: &Beat) {
        let device = self.names.label(beat.agent.device());
        self.mode.choose(&MODES, kinds::mode(&beat.mode), |mode| [device.to_owned(), mode.to_owned()]);
        self.busy.set([device], beat.busy);
        self.held.set([device], beat.holds.len() as f64);
    }

    /// It has ended a task.
    pub fn task_done(&self, agent: &AgentId, work: &Work, reply: &Reply, times: &Times) {
        self.done.add_one([self.names.label(agent.device()), reply.kind()]);
        self.run.observe([work.kind()], Duration::from_millis(times.run_ms));
        self.wait.observe([work.kind()], Duration::from_millis(times.waited_ms));
        if let Reply::Judged(outcome) = reply {
            self.build.observe([work.kind()], Duration::from_millis(outcome.evidence.build_ms));
            outcome.evidence.conditions.iter().for_each(|conditions| self.devices.measured(agent, conditions));
        }
    }

    /// So many of its reports are not yet accepted.
    pub fn reports_unaccepted(&self, agent: &AgentId, reports: u64) {
        self.unaccepted.set([self.names.label(agent.device())], reports as f64);
    }

    /// It has tested itself.
    pub fn canary(&self, agent: &AgentId, passed: bool) {
        let result = if passed { "passed" } else { "failed" };
        self.canaries.add_one([self.names.label(agent.device()), result]);
    }
}
