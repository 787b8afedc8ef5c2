//! One job as a state machine: it hands out work that may run in parallel, and takes what comes back. It talks to nobody and writes
//! nothing: its events are journaled by whoever owns it.
//!
//! What is to be done is a [`Plan`]'s matter: [`KernelSearch`] is what people submit, [`Drill`] measures the queue itself.

mod drill;
mod kernel_search;
mod order;
mod plan;
mod stopwatch;
mod terms;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kernelopt_shared::message::{AgentId, DeviceIdentity, Failure, FailureKind, JobId, Lease, Reply, TaskId};

pub use drill::{Course, Drill};
pub use kernel_search::KernelSearch;
pub use order::{Order, StoredBlob, task_id};
pub use plan::{Ahead, Plan};
pub use stopwatch::Stopwatch;
pub use terms::{PRIORITY, Terms, WEIGHT};

use crate::journal::{Draft, Entry, Event};
use crate::search::known::Known;
use crate::search::plan::Step;
use crate::search::state::Ended;

/// A job at work.
pub struct Job {
    id: JobId,
    terms: Terms,
    plan: Box<dyn Plan>,
    running: BTreeMap<TaskId, Step>,
    /// The same steps, as the plan looks them up.
    steps: BTreeSet<Step>,
    clock: Stopwatch,
}

/// What a job wants next.
#[derive(Clone, Debug)]
pub enum Wish {
    /// Have this done.
    Run(Box<Order>),
    /// Nothing, until something that is under way has ended.
    Wait,
    /// Its outputs can be written.
    Finish,
}

/// What a reply did to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was taken; the task is done.
    Done,
    /// The task was not done, and can be given out again.
    Undone(Failure),
    /// It is not what was asked for: the agent cannot be believed.
    Foreign,
}

impl Job {
    /// Begins a job.
    pub fn open(id: JobId, terms: Terms, plan: Box<dyn Plan>, drafts: &mut Vec<Draft>) -> Self {
        let opening = plan.opening(&terms);
        let mut job = Self { id, terms, plan, running: BTreeMap::new(), steps: BTreeSet::new(), clock: Stopwatch::at(Duration::ZERO) };
        job.record(opening, Instant::now(), drafts);
        job
    }

    /// Goes on with a job as its journal says.
    pub fn resume<'e>(id: JobId, terms: Terms, mut plan: Box<dyn Plan>, entries: impl IntoIterator<Item = &'e Entry>) -> Self {
        let mut active = Duration::ZERO;
        for entry in entries {
            active = active.max(entry.active);
            plan.apply(active, &entry.event);
        }
        Self { id, terms, plan, running: BTreeMap::new(), steps: BTreeSet::new(), clock: Stopwatch::at(active) }
    }

    /// Tells it what is known of its kernels on the class that it was placed on.
    pub fn recall(&mut self, known: Known) {
        self.plan.recall(known);
    }

    /// Its name.
    pub const fn id(&self) -> &JobId {
        &self.id
    }

    /// What it was asked to do.
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What it does.
    pub fn plan(&self) -> &dyn Plan {
        self.plan.as_ref()
    }

    /// The search, where it is one.
    pub fn search(&self) -> Option<&KernelSearch> {
        self.plan.as_search()
    }

    /// What is under way.
    pub const fn running(&self) -> &BTreeMap<TaskId, Step> {
        &self.running
    }

    /// Time that it has been worked on.
    pub fn active(&self, now: Instant) -> Duration {
        self.clock.read(now)
    }

    /// The next piece of work. `batch` is how many of its tasks all devices like to hold. A piece that is handed out is under way until
    /// [`Job::settle`], [`Job::release`] or [`Job::quarantine`].
    pub fn next(&mut self, batch: usize, now: Instant, drafts: &mut Vec<Draft>) -> Wish {
        while !self.plan.is_over() {
            match self.plan.next(&self.steps, batch.max(1), self.clock.read(now)) {
                Ahead::Run(step) => match self.plan.order(&self.id, &self.terms, &step) {
                    Ok(order) => {
                        self.adopt(order.task, step, now);
                        return Wish::Run(Box::new(order));
                    }
                    Err(reason) => self.record(Event::Failed { reason }, now, drafts),
                },
                Ahead::Record(event) => self.record(event, now, drafts),
                Ahead::Wait => return Wish::Wait,
                Ahead::Finish => return Wish::Finish,
            }
        }
        Wish::Wait
    }

    /// Marks a task as under way: handed out now, or by a coordinator before this one.
    pub fn adopt(&mut self, task: TaskId, step: Step, now: Instant) {
        self.steps.insert(step.clone());
        self.running.insert(task, step);
        self.clock.run(true, now);
    }

    /// Takes what came of a task that is under way.
    pub fn settle(&mut self, task: TaskId, reply: Reply, device: &DeviceIdentity, now: Instant, drafts: &mut Vec<Draft>) -> Settled {
        let Some(step) = self.running.get(&task).cloned() else { return Settled::Foreign };
        let failure = match reply {
            Reply::HandedBack { reason } => Some(Failure { kind: FailureKind::Internal, what: reason, remedy: String::new() }),
            Reply::Failed(failure) if failure.kind == FailureKind::Baseline => {
                self.record(baseline_event(&step, failure), now, drafts);
                self.stop_running(task, now);
                return Settled::Done;
            }
            Reply::Failed(failure) => Some(failure),
            reply => match self.plan.event_of(&step, reply, device) {
                Some(event) => {
                    self.record(event, now, drafts);
                    self.stop_running(task, now);
                    return Settled::Done;
                }
                None => None,
            },
        };
        failure.map_or(Settled::Foreign, Settled::Undone)
    }

    /// Takes back a task that was not done; it may be handed out again.
    pub fn release(&mut self, task: TaskId, lease: Lease, reason: &str, charged: Option<AgentId>, now: Instant, drafts: &mut Vec<Draft>) {
        let step = self.running.get(&task).cloned();
        self.stop_running(task, now);
        if let Some(step) = step {
            self.record(Event::Released { task, lease, step, reason: reason.to_owned(), charged }, now, drafts);
        }
    }

    /// Hands a task out no more. Without a profile, or a model that could be checked, the job has failed.
    pub fn quarantine(&mut self, task: TaskId, step: Step, reason: &str, now: Instant, drafts: &mut Vec<Draft>) {
        self.stop_running(task, now);
        let fails = !matches!(step, Step::Evaluate { .. });
        self.record(Event::Quarantined { task, step, reason: reason.to_owned() }, now, drafts);
        if fails {
            self.record(Event::Failed { reason: reason.to_owned() }, now, drafts);
        }
    }

    /// Ends the job without outputs; what is under way is forgotten.
    pub fn end(&mut self, how: Ended, now: Instant, drafts: &mut Vec<Draft>) {
        let event = match how {
            Ended::Cancelled => Event::Cancelled,
            Ended::Failed { reason } => Event::Failed { reason },
        };
        self.running.clear();
        self.steps.clear();
        self.clock.run(false, now);
        self.record(event, now, drafts);
    }

    fn stop_running(&mut self, task: TaskId, now: Instant) {
        if let Some(step) = self.running.remove(&task) {
            self.steps.remove(&step);
        }
        self.clock.run(!self.running.is_empty(), now);
    }

    /// Takes an event that concerns the job, and has it journaled.
    pub fn record(&mut self, event: Event, now: Instant, drafts: &mut Vec<Draft>) {
        let active = self.clock.read(now);
        self.plan.apply(active, &event);
        drafts.push(Draft { job: Some(self.id.clone()), active, event });
    }
}

/// The compiler's own code cannot be judged: the target is left, or the model.
fn baseline_event(step: &Step, failure: Failure) -> Event {
    match step {
        Step::Evaluate { target, .. } => {
            Event::Abandoned { target: target.clone(), reason: format!("the compiler's code {}", failure.what) }
        }
        _ => Event::Failed { reason: failure.what },
    }
}
