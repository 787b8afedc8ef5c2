//! Jobs: how many are in which phase, and how the shown ones fare.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::labels::{Capped, Snapshot};
use super::metric::{Counter, Gauge, Spec, Unit};
use super::registry::{Registry, TelemetryError};
use crate::message::{DeviceClass, JobId};

/// Most jobs that have series of their own; others get a place when one of these ends.
pub const MOST_JOBS: usize = 50;

const JOBS: Spec<1> = Spec::new("kernelopt_jobs", Unit::Things, ["phase"], "Jobs that the coordinator knows, by phase.");
const SPEEDUP: Spec<1> = Spec::new(
    "kernelopt_job_best_speedup_ratio",
    Unit::Ratio,
    ["job_id"],
    "Best confirmed speed-up over the compiler's kernel of any target of a running job; 1 before the first. At most fifty jobs are shown.",
);
const OUTSTANDING: Spec<1> = Spec::new(
    "kernelopt_job_tasks_outstanding",
    Unit::Things,
    ["job_id"],
    "Tasks of a running job that are waiting, leased or running. At most fifty jobs are shown.",
);
const JUDGED: Spec<1> = Spec::new(
    "kernelopt_job_candidates_judged",
    Unit::Things,
    ["job_id"],
    "Candidates of a running job that have a verdict. At most fifty jobs are shown.",
);
const WINNERS: Spec<1> = Spec::new(
    "kernelopt_job_targets_won",
    Unit::Things,
    ["job_id"],
    "Targets of a running job with a confirmed winner. At most fifty jobs are shown.",
);
const SPENT: Spec<1> = Spec::new(
    "kernelopt_job_budget_spent_ratio",
    Unit::Ratio,
    ["job_id"],
    "Spent share of the budget that a running job is nearest to the end of. At most fifty jobs are shown.",
);
const IMPROVEMENTS: Spec<1> = Spec::new(
    "kernelopt_frontier_improvements_total",
    Unit::Events,
    ["class"],
    "Confirmed candidates that became the best known of their kernel and device class.",
);

/// A running job as it is now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobNow {
    /// Best confirmed speed-up of any target; one before the first.
    pub best_speedup: f64,
    /// Tasks that are waiting, leased or running.
    pub tasks_outstanding: u64,
    /// Candidates with a verdict.
    pub candidates_judged: u64,
    /// Targets with a confirmed winner.
    pub targets_won: u64,
    /// Spent share of the tightest budget.
    pub budget_spent: f64,
}

/// Jobs and what they found.
pub struct JobMetrics {
    classes: Arc<Capped>,
    phases: Snapshot<1>,
    shown: Mutex<BTreeSet<JobId>>,
    /// In the order of [`JobNow`]'s fields.
    figures: [Gauge<1>; 5],
    improvements: Counter<1>,
}

impl JobMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        Ok(Self {
            classes: registry.classes(),
            phases: Snapshot::of(registry.gauge(&JOBS)?),
            shown: Mutex::default(),
            figures: [
                registry.gauge(&SPEEDUP)?,
                registry.gauge(&OUTSTANDING)?,
                registry.gauge(&JUDGED)?,
                registry.gauge(&WINNERS)?,
                registry.gauge(&SPENT)?,
            ],
            improvements: registry.counter(&IMPROVEMENTS)?,
        })
    }

    pub(super) fn expect(&self, class: &str) {
        self.improvements.add([class], 0);
    }

    /// So many jobs are in each phase; name every phase, with zero where there is none. A phase's name is one of the program's own words.
    pub fn phases(&self, counts: impl IntoIterator<Item = (&'static str, u64)>) {
        let counts = counts.into_iter().map(|(phase, count)| ([phase.to_owned()], count as f64));
        self.phases.replace(counts, |a, b| a + b);
    }

    /// A running job; not shown where [`MOST_JOBS`] are.
    pub fn running(&self, job: &JobId, now: &JobNow) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if !shown.contains(job) && shown.len() >= MOST_JOBS {
            return;
        }
        let JobNow { best_speedup, tasks_outstanding, candidates_judged, targets_won, budget_spent } = *now;
        let values = [best_speedup, tasks_outstanding as f64, candidates_judged as f64, targets_won as f64, budget_spent];
        for (figure, value) in self.figures.iter().zip(values) {
            figure.set([job.as_str()], value);
        }
        shown.insert(job.clone());
    }

    /// A job ended: nothing more is said of it.
    pub fn ended(&self, job: &JobId) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.remove(job) {
            self.figures.iter().for_each(|figure| figure.remove([job.as_str()]));
        }
    }

    /// A confirmed candidate became the best known.
    pub fn improved(&self, class: &DeviceClass) {
        self.improvements.add_one([self.classes.label(class.as_str())]);
    }
}
