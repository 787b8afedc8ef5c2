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

use kernelopt_shared::language_model::{Answer, Question, Unanswered};
use kernelopt_shared::message::{AgentId, DeviceIdentity, Failure, FailureKind, JobId, Lease, Reply, TaskId};

pub use drill::{Course, Drill};
pub use kernel_search::KernelSearch;
pub use order::{Order, StoredBlob, task_id};
pub use plan::{Ahead, Plan, UnderWay};
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
    /// The same steps, and questions, as the plan looks them up.
    under_way: UnderWay,
    /// Those of the questions that will be answered some other time.
    postponed: BTreeSet<String>,
    clock: Stopwatch,
}

/// What a job wants next.
#[derive(Clone, Debug)]
pub enum Wish {
    /// Have this done.
    Run(Box<Order>),
    /// Put this to a language model.
    Ask(Box<Question>),
    /// Answers are of no use any more: drop what is out.
    Hush,
    /// Nothing, until something that is under way has ended.
    Wait,
    /// Nothing, until answers that will come some other time are there.
    Pause,
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
        let mut job = Self::new(id, terms, plan, Duration::ZERO);
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
        Self::new(id, terms, plan, active)
    }

    fn new(id: JobId, terms: Terms, plan: Box<dyn Plan>, active: Duration) -> Self {
        let (running, under_way, postponed) = (BTreeMap::new(), UnderWay::default(), BTreeSet::new());
        Self { id, terms, plan, running, under_way, postponed, clock: Stopwatch::at(active) }
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

    /// Questions that a language model has, with those that it will answer some other time.
    pub fn asking(&self) -> usize {
        self.under_way.questions.len()
    }

    /// Time that it has been worked on.
    pub fn active(&self, now: Instant) -> Duration {
        self.clock.read(now)
    }

    /// The next piece of work. `batch` is how many of its tasks all devices like to hold. A piece that is handed out is under way until
    /// [`Job::settle`], [`Job::release`] or [`Job::quarantine`].
    pub fn next(&mut self, batch: usize, now: Instant, drafts: &mut Vec<Draft>) -> Wish {
        while !self.plan.is_over() {
            if !self.under_way.questions.is_empty() && !self.plan.listens(&self.under_way) {
                self.forget_questions(now);
                return Wish::Hush;
            }
            match self.plan.next(&self.under_way, batch.max(1), self.clock.read(now)) {
                Ahead::Run(step) => match self.plan.order(&self.id, &self.terms, &step) {
                    Ok(order) => {
                        self.adopt(order.task, step, now);
                        return Wish::Run(Box::new(order));
                    }
                    Err(reason) => self.record(Event::Failed { reason }, now, drafts),
                },
                Ahead::Ask(question) => {
                    self.under_way.questions.insert(question.id.clone());
                    self.keep_time(now);
                    return Wish::Ask(Box::new(question));
                }
                Ahead::Record(event) => self.record(event, now, drafts),
                Ahead::Wait if self.waits_for_later() => return Wish::Pause,
                Ahead::Wait => return Wish::Wait,
                Ahead::Finish => return Wish::Finish,
            }
        }
        Wish::Wait
    }

    /// Marks a task as under way: handed out now, or by a coordinator before this one.
    pub fn adopt(&mut self, task: TaskId, step: Step, now: Instant) {
        self.under_way.steps.insert(step.clone());
        self.running.insert(task, step);
        self.keep_time(now);
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
        self.under_way.steps.clear();
        self.forget_questions(now);
        self.record(event, now, drafts);
    }

    fn stop_running(&mut self, task: TaskId, now: Instant) {
        if let Some(step) = self.running.remove(&task) {
            self.under_way.steps.remove(&step);
        }
        self.keep_time(now);
    }

    fn forget_questions(&mut self, now: Instant) {
        self.under_way.questions.clear();
        self.postponed.clear();
        self.keep_time(now);
    }

    /// Time counts while an agent or a model is at work; an answer that will come some other time costs none.
    fn keep_time(&mut self, now: Instant) {
        let at_work = !self.running.is_empty() || self.under_way.questions.len() > self.postponed.len();
        self.clock.run(at_work, now);
    }

    fn waits_for_later(&self) -> bool {
        self.running.is_empty() && !self.postponed.is_empty() && self.under_way.questions.len() == self.postponed.len()
    }

    /// Takes what came of a question. An answer to one that is recorded is never lost, since it was paid for.
    pub fn answered(&mut self, question: &str, said: Result<Answer, Unanswered>, now: Instant, drafts: &mut Vec<Draft>) {
        if matches!(said, Err(Unanswered::Later)) {
            if self.under_way.questions.contains(question) {
                self.postponed.insert(question.to_owned());
            }
        } else if let Some(target) = self.plan.awaits(question) {
            self.under_way.questions.remove(question);
            self.record(Event::Answered { target, question: question.to_owned(), heard: said.into() }, now, drafts);
        }
        self.keep_time(now);
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
