//! Tasks that are done, what came of them, and their clocks: waiting, building, verifying, measuring and the lease, each its own.

use std::sync::Arc;
use std::time::Duration;

use super::kinds::{REPLIES, VERDICTS, WORKS};
use super::labels::Capped;
use super::metric::{Counter, Histogram, Spec, Unit, WAITS, WORK};
use super::registry::{Registry, TelemetryError};
use crate::message::{DeviceClass, Reply, Times, Work};
use crate::verdict::{Evidence, Verdict};

const DONE: Spec<2> =
    Spec::new("kernelopt_tasks_done_total", Unit::Events, ["class", "reply"], "Reports taken, by device class and what came of the task.");
const VERDICT: Spec<2> =
    Spec::new("kernelopt_verdicts_total", Unit::Events, ["class", "verdict"], "Verdicts on candidates by device class.");
const POISONED: Spec<1> = Spec::new(
    "kernelopt_tasks_poisoned_total",
    Unit::Events,
    ["work"],
    "Tasks put in quarantine because attempts on several agents failed.",
);
const ABANDONED: Spec<0> = Spec::new(
    "kernelopt_targets_abandoned_total",
    Unit::Events,
    [],
    "Targets given up because several of their tasks were put in quarantine.",
);
const QUEUED: Spec<1> = Spec::new(
    "kernelopt_task_queue_wait_seconds",
    Unit::Seconds,
    ["class"],
    "From when a task could have been given out to when an agent started it, by the coordinator's clock.",
);
const LEASED: Spec<1> =
    Spec::new("kernelopt_task_lease_seconds", Unit::Seconds, ["work"], "From a task's lease to its report, by the coordinator's clock.");
const RUN: Spec<1> = Spec::new("kernelopt_task_run_seconds", Unit::Seconds, ["work"], "The work of a task itself, by the agent's clock.");
const FETCH: Spec<1> =
    Spec::new("kernelopt_task_fetch_seconds", Unit::Seconds, ["work"], "Fetching what a task needs, by the agent's clock.");
const HELD: Spec<1> = Spec::new(
    "kernelopt_task_agent_wait_seconds",
    Unit::Seconds,
    ["work"],
    "From a task's delivery to its start, by the agent's clock: builds ahead, other tasks.",
);
const BUILD: Spec<1> = Spec::new("kernelopt_build_seconds", Unit::Seconds, ["work"], "Building one candidate, in the compiler.");
const VERIFY: Spec<1> =
    Spec::new("kernelopt_verify_seconds", Unit::Seconds, ["work"], "Computing the truth for one candidate and comparing.");
const MEASURE: Spec<1> = Spec::new("kernelopt_measure_seconds", Unit::Seconds, ["work"], "Measuring one candidate, set-up included.");
const DISTURBED: Spec<1> = Spec::new(
    "kernelopt_rounds_disturbed_total",
    Unit::Events,
    ["class"],
    "Rounds of measurement thrown away because others used the processors or the GPU's clock changed.",
);

/// A task whose report was taken.
#[derive(Clone, Copy, Debug)]
pub struct Done<'a> {
    /// Class of the device that did it.
    pub class: &'a DeviceClass,
    /// What was asked for.
    pub work: &'a Work,
    /// What came of it.
    pub reply: &'a Reply,
    /// The agent's clocks.
    pub times: &'a Times,
    /// From when it could have been given out to its start.
    pub queued: Duration,
    /// From its lease to its report.
    pub leased: Duration,
}

/// Tasks and verdicts.
pub struct TaskMetrics {
    classes: Arc<Capped>,
    done: Counter<2>,
    verdicts: Counter<2>,
    poisoned: Counter<1>,
    abandoned: Counter<0>,
    disturbed: Counter<1>,
    queued: Histogram<1>,
    leased: Histogram<1>,
    run: Histogram<1>,
    fetch: Histogram<1>,
    held: Histogram<1>,
    build: Histogram<1>,
    verify: Histogram<1>,
    measure: Histogram<1>,
}

impl TaskMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        let metrics = Self {
            classes: registry.classes(),
            done: registry.counter(&DONE)?,
            verdicts: registry.counter(&VERDICT)?,
            poisoned: registry.counter(&POISONED)?,
            abandoned: registry.counter(&ABANDONED)?,
            disturbed: registry.counter(&DISTURBED)?,
            queued: registry.histogram(&QUEUED, WAITS)?,
            leased: registry.histogram(&LEASED, WAITS)?,
            run: registry.histogram(&RUN, WORK)?,
            fetch: registry.histogram(&FETCH, WORK)?,
            held: registry.histogram(&HELD, WAITS)?,
            build: registry.histogram(&BUILD, WORK)?,
            verify: registry.histogram(&VERIFY, WORK)?,
            measure: registry.histogram(&MEASURE, WORK)?,
        };
        metrics.abandoned.add([], 0);
        for work in WORKS {
            metrics.poisoned.add([work], 0);
        }
        Ok(metrics)
    }

    /// Makes the series of a class appear.
    pub(super) fn expect(&self, class: &str) {
        REPLIES.iter().for_each(|reply| self.done.add([class, reply], 0));
        VERDICTS.iter().for_each(|verdict| self.verdicts.add([class, verdict], 0));
        self.disturbed.add([class], 0);
        self.queued.expect([class]);
    }

    /// A report under the current lease was taken; of one with a verdict also the verdict and its clocks.
    pub fn done(&self, task: &Done<'_>) {
        let (class, work) = (self.classes.label(task.class.as_str()), task.work.kind());
        self.done.add_one([class, task.reply.kind()]);
        self.queued.observe([class], task.queued);
        self.leased.observe([work], task.leased);
        self.held.observe([work], Duration::from_millis(task.times.waited_ms));
        self.fetch.observe([work], Duration::from_millis(task.times.fetch_ms));
        self.run.observe([work], Duration::from_millis(task.times.run_ms));
        if let Reply::Judged(outcome) = task.reply {
            self.verdict(class, &outcome.verdict);
            self.evidence(class, work, &outcome.evidence);
        }
    }

    fn verdict(&self, class: &str, verdict: &Verdict) {
        self.verdicts.add_one([class, verdict.kind()]);
    }

    fn evidence(&self, class: &str, work: &str, evidence: &Evidence) {
        self.build.observe([work], Duration::from_millis(evidence.build_ms));
        self.verify.observe([work], Duration::from_millis(evidence.verify_ms));
        self.measure.observe([work], Duration::from_millis(evidence.measure_ms));
        self.disturbed.add([class], evidence.rounds_disturbed);
    }

    /// A task was put in quarantine.
    pub fn poisoned(&self, work: &Work) {
        self.poisoned.add_one([work.kind()]);
    }

    /// A target was given up.
    pub fn abandoned(&self) {
        self.abandoned.add_one([]);
    }
}
