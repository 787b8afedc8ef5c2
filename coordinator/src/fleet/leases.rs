//! Who may work on what, and until when.
//!
//! All times are the coordinator's own monotonic clock; clocks of agents are never compared with it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kernelopt_shared::message::{AgentId, DeviceClass, JobId, Lease, Task, TaskId};
use kernelopt_shared::task::Depth;

use crate::search::plan::Step;

/// Leases under which a report came that are remembered, so that one that comes twice is told from one that comes late.
const REMEMBERED: usize = 100_000;

/// The longest limit that any task has.
const UNKNOWN_LIMIT: Duration = Duration::from_secs(1500);

/// A task that is given out.
#[derive(Clone, Debug)]
pub struct Held {
    /// The task as it was sent; none where an earlier coordinator sent it.
    pub task: Option<Box<Task>>,
    /// Its identity.
    pub id: TaskId,
    /// Its job.
    pub job: JobId,
    /// What it is for.
    pub step: Step,
    /// The right to do it.
    pub lease: Lease,
    /// Devices that it is for.
    pub class: DeviceClass,
    /// The one agent that it was sent to, where it was not sent to the lane.
    pub assigned: Option<AgentId>,
    /// Who holds it, once that was heard.
    pub agent: Option<AgentId>,
    /// When it was sent last.
    pub sent: Instant,
    /// When its agent was last heard to hold it; before that, when it was sent.
    pub heard: Instant,
    /// When work on it began.
    pub started: Option<Instant>,
    /// Longest that it may run.
    pub run_limit: Duration,
}

impl Held {
    /// What the work is, in words: `a full look at a candidate of 0/triton_red_fused_0`.
    pub fn told(&self) -> String {
        match &self.step {
            Step::Profile => "the profile of the model".into(),
            Step::Evaluate { target, depth: Depth::Screen, .. } => format!("a short look at a candidate of {target}"),
            Step::Evaluate { target, depth: Depth::Full, .. } => format!("a long look at a candidate of {target}"),
            Step::Evaluate { target, depth: Depth::Confirm, .. } => format!("the confirmation of a candidate of {target}"),
            Step::CheckModel { .. } => "the check of the whole model".into(),
            Step::Nothing { number } => format!("task {number} of the drill"),
        }
    }

    /// One that an earlier coordinator gave out.
    pub fn of_journal(id: TaskId, job: JobId, step: Step, lease: Lease, class: DeviceClass, now: Instant) -> Self {
        let (sent, heard, run_limit) = (now, now, UNKNOWN_LIMIT);
        Self { task: None, id, job, step, lease, class, assigned: None, agent: None, sent, heard, started: None, run_limit }
    }
}

/// Why a lease ends against its holder's will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Its agent was not heard of for too long.
    Silent,
    /// It ran for too long.
    TooLong,
}

/// The leases that are out.
#[derive(Debug, Default)]
pub struct Leases {
    held: BTreeMap<TaskId, Held>,
    by_lease: BTreeMap<Lease, TaskId>,
    by_class: BTreeMap<DeviceClass, usize>,
    filed: BTreeSet<Lease>,
    order: VecDeque<Lease>,
}

impl Leases {
    /// Gives a task out. It must not be out already.
    pub fn grant(&mut self, held: Held) {
        *self.by_class.entry(held.class.clone()).or_default() += 1;
        self.by_lease.insert(held.lease, held.id);
        self.held.insert(held.id, held);
    }

    /// Ends the lease of a task.
    pub fn end(&mut self, task: TaskId) -> Option<Held> {
        let held = self.held.remove(&task)?;
        self.by_lease.remove(&held.lease);
        if let Some(count) = self.by_class.get_mut(&held.class) {
            *count -= 1;
        }
        Some(held)
    }

    /// Notes that a report came under a lease; false where one came before.
    pub fn file(&mut self, lease: Lease) -> bool {
        let first = self.filed.insert(lease);
        if first {
            self.order.push_back(lease);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.filed.remove(&oldest);
        }
        first
    }

    /// True where a report came under this lease.
    pub fn is_filed(&self, lease: Lease) -> bool {
        self.filed.contains(&lease)
    }

    /// The task's lease, if it is this one.
    pub fn current(&mut self, task: TaskId, lease: Lease) -> Option<&mut Held> {
        self.held.get_mut(&task).filter(|held| held.lease == lease)
    }

    /// The lease of a task, whichever it is.
    pub fn of_task(&mut self, task: TaskId) -> Option<&mut Held> {
        self.held.get_mut(&task)
    }

    /// The same by the lease alone.
    pub fn find(&mut self, lease: Lease) -> Option<&mut Held> {
        self.held.get_mut(self.by_lease.get(&lease)?)
    }

    /// All that are out.
    pub fn iter(&self) -> impl Iterator<Item = &Held> {
        self.held.values()
    }

    /// How many are out.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True where none is out.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many are out for devices of a class.
    pub fn of_class(&self, class: &DeviceClass) -> usize {
        self.by_class.get(class).copied().unwrap_or(0)
    }

    /// Those that have come to their end: `silence` is how long a holder may say nothing, `grace` what a run may take besides its limit.
    /// Waiting in a queue never ends one.
    pub fn expired(&self, now: Instant, silence: Duration, grace: Duration) -> Vec<(TaskId, Expiry)> {
        let expiry = |held: &Held| {
            let silent = held.agent.is_some() && now.saturating_duration_since(held.heard) > silence;
            let too_long = held.started.is_some_and(|started| now.saturating_duration_since(started) > held.run_limit + grace);
            if too_long { Some(Expiry::TooLong) } else { silent.then_some(Expiry::Silent) }
        };
        self.held.values().filter_map(|held| Some((held.id, expiry(held)?))).collect()
    }

    /// Those that nobody has been heard to hold for `patience` since they were sent: lost on the way, perhaps.
    pub fn unheard(&mut self, now: Instant, patience: Duration) -> impl Iterator<Item = &mut Held> {
        let lost = move |held: &&mut Held| held.agent.is_none() && now.saturating_duration_since(held.sent) > patience;
        self.held.values_mut().filter(lost)
    }
}
