//! The tasks that an agent holds, in the order in which they came.

use std::time::Duration;

use kernelopt_shared::broker::Receipt;
use kernelopt_shared::message::{JobId, Lease, Task};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::job::Job;

/// A task held.
pub(super) struct Holding {
    /// The task.
    pub task: Task,
    /// What settles it with the broker; none where the coordinator gave it to this very agent.
    pub receipt: Option<Box<dyn Receipt>>,
    /// When it came.
    pub since: Instant,
    /// How long it took to fetch what it needs.
    pub fetch: Duration,
    /// How far it is.
    pub stage: Stage,
    /// Its candidate was built together with others, or is now.
    pub built: bool,
}

impl Holding {
    /// True where the device has not begun.
    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Fetching { .. } | Stage::Ready(_))
    }
}

/// How far a task is.
pub(super) enum Stage {
    /// What it needs is on its way.
    Fetching { _on_its_way: Errand },
    /// It can begin.
    Ready(Job),
    /// The device is at it.
    Running,
    /// It is done, and the report is sent again and again.
    Reporting { _again_and_again: Errand },
}

/// Something that happens elsewhere until this is dropped.
pub(super) struct Errand(pub AbortHandle);

impl Drop for Errand {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// All of them: two of a lane, a few assigned.
#[derive(Default)]
pub(super) struct Holdings(Vec<Holding>);

impl Holdings {
    /// One more.
    pub(super) fn add(&mut self, holding: Holding) {
        self.0.push(holding);
    }

    /// The one of this lease.
    pub(super) fn get(&mut self, lease: Lease) -> Option<&mut Holding> {
        self.0.iter_mut().find(|holding| holding.task.lease == lease)
    }

    /// The lease of another copy of a task that is held, given out at another time.
    pub(super) fn other_lease(&self, task: &Task) -> Option<Lease> {
        self.0.iter().map(|holding| &holding.task).find(|held| held.id == task.id && held.lease != task.lease).map(|held| held.lease)
    }

    /// The one of this lease, given away.
    pub(super) fn take(&mut self, lease: Lease) -> Option<Holding> {
        let index = self.0.iter().position(|holding| holding.task.lease == lease)?;
        Some(self.0.remove(index))
    }

    /// All whose device has not begun, given away.
    pub(super) fn take_waiting(&mut self) -> Vec<Holding> {
        self.0.extract_if(.., |holding| holding.is_waiting()).collect()
    }

    /// The first that can begin.
    pub(super) fn next(&self) -> Option<(Lease, Job)> {
        self.ready().next()
    }

    /// All that can begin.
    pub(super) fn ready(&self) -> impl Iterator<Item = (Lease, Job)> + '_ {
        self.0.iter().filter_map(|holding| match &holding.stage {
            Stage::Ready(job) => Some((holding.task.lease, job.clone())),
            _ => None,
        })
    }

    /// What is built together when the task of this lease is next: nothing where it has been built, else all that wait and have not.
    pub(super) fn batch(&mut self, next: Lease) -> Vec<Job> {
        if self.get(next).is_none_or(|holding| holding.built) {
            return Vec::new();
        }
        let unbuilt = self.0.iter_mut().filter(|holding| !holding.built);
        let take = |holding: &mut Holding| match &holding.stage {
            Stage::Ready(job) => {
                holding.built = true;
                Some(job.clone())
            }
            _ => None,
        };
        unbuilt.filter_map(take).collect()
    }

    /// Leases of all, in order.
    pub(super) fn leases(&self) -> Vec<Lease> {
        self.0.iter().map(|holding| holding.task.lease).collect()
    }

    /// Leases of a job.
    pub(super) fn of_job(&self, job: &JobId) -> Vec<Lease> {
        self.0.iter().filter(|holding| holding.task.job == *job).map(|holding| holding.task.lease).collect()
    }

    /// Those that came from the coordinator and not from a lane.
    pub(super) fn assigned(&self) -> usize {
        self.0.iter().filter(|holding| holding.receipt.is_none()).count()
    }

    /// Those whose report is not yet accepted.
    pub(super) fn unaccepted(&self) -> usize {
        self.0.iter().filter(|holding| matches!(holding.stage, Stage::Reporting { .. })).count()
    }

    /// True where there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
