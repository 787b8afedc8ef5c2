//! What an agent remembers of tasks that it no longer holds: bounded, oldest forgotten first.

use std::collections::VecDeque;

use kernelopt_shared::message::{JobId, Lease, Report, Task};

/// Reports kept for copies of their tasks that come late. A report with its evidence is a few tens of kilobytes.
const REPORTS: usize = 32;
/// Cancelled leases and jobs kept: their tasks may still be in a queue.
const CANCELLED: usize = 256;

/// Of what was done and what must not be.
#[derive(Debug, Default)]
pub(super) struct Memory {
    done: VecDeque<Report>,
    leases: VecDeque<Lease>,
    jobs: VecDeque<JobId>,
}

impl Memory {
    /// A report was accepted.
    pub(super) fn keep(&mut self, report: Report) {
        self.done.retain(|kept| kept.lease != report.lease);
        push(&mut self.done, report, REPORTS);
    }

    /// The report of a task that was done under the same lease.
    pub(super) fn report_of(&self, task: &Task) -> Option<&Report> {
        self.done.iter().find(|report| report.lease == task.lease && report.task == task.id)
    }

    /// Nobody wants the result of this lease.
    pub(super) fn cancel(&mut self, lease: Lease) {
        push(&mut self.leases, lease, CANCELLED);
    }

    /// Nobody wants a result of this job.
    pub(super) fn cancel_job(&mut self, job: JobId) {
        push(&mut self.jobs, job, CANCELLED);
    }

    /// True where nobody wants its result.
    pub(super) fn is_cancelled(&self, task: &Task) -> bool {
        self.leases.contains(&task.lease) || self.jobs.contains(&task.job)
    }
}

fn push<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    queue.push_back(item);
    if queue.len() > most {
        queue.pop_front();
    }
}
