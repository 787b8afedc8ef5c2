//! The one thread that owns the coordinator's state, and its turn: take what came, decide, journal, act.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernelopt_shared::broker::BrokerState;
use kernelopt_shared::broker::link::Received;
use kernelopt_shared::language_model::Unanswered;
use kernelopt_shared::message::{Failure, FailureKind, JobId, Lease, Pulse, Report, TaskId};
use kernelopt_shared::result::TuneResult;
use kernelopt_shared::task::AgentError;
use tokio::sync::{mpsc, oneshot, watch};

use super::courier::Errand;
use super::tally::Tally;
use super::{Ended, Outputs, Parts, ServiceError};
use crate::fleet::{Effect, Fleet, Note};
use crate::job::Job;
use crate::journal::{Draft, Entry, Journal, JournalError};
use crate::search::known::Known;
use crate::search::plan::Step;
use crate::search::state::Ended as JobEnded;
use crate::tune::{JobFolder, TuneError};

/// Most inputs of one turn, and so of one transaction.
const TURN: usize = 512;
/// Pause before an append that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Passes on what was asked for.
pub type Answer = Box<dyn FnOnce() + Send>;

/// Ordered of the core on its own thread.
pub type Question = Box<dyn FnOnce(&mut Fleet, Instant) -> Answer + Send>;

/// Asked of it there: a look changes nothing, and is answered at once.
pub type Look = Box<dyn FnOnce(&Fleet, Instant) + Send>;

/// A job that is to be taken in, with its opening.
pub struct Admission {
    pub(super) job: Job,
    pub(super) drafts: Vec<Draft>,
    /// Hears whether it is in the journal; an error is why it cannot be written.
    pub(super) answer: oneshot::Sender<Result<bool, String>>,
}

/// Something that happens to a coordinator.
pub enum Input {
    /// An agent's answer.
    Report(Received<Report>),
    /// An agent's sign of life.
    Pulse(Box<Pulse>),
    /// What came of a question that a language model was asked.
    Answered {
        /// Whose.
        job: JobId,
        /// Its id.
        question: String,
        /// What came of it.
        said: Box<Result<kernelopt_shared::language_model::Answer, Unanswered>>,
    },
    /// A task could not be sent.
    Unsent {
        /// The task.
        task: TaskId,
        /// Its lease.
        lease: Lease,
        /// Why.
        reason: String,
    },
    /// A job is to be taken in.
    Admit(Box<Admission>),
    /// What is known of the kernels of a job that was placed.
    Recalled(JobId, Known),
    /// An order; what it returns is called once the turn is on the disk.
    Ask(Question),
    /// A question.
    Look(Look),
    /// Time has passed.
    Tick,
    /// The turn to lead was lost: another coordinator may have begun.
    Deposed,
    /// It is to end.
    Stop,
}

/// Who looks on while jobs are worked on. Called on the coordinator's thread: it must not wait.
pub trait Audience: Send {
    /// A piece of work is about to be given out.
    fn step(&mut self, job: &JobId, step: &Step);

    /// An event is on the disk.
    fn event(&mut self, entry: &Entry, job: Option<&Job>);

    /// Something to be counted, after its events are on the disk.
    fn note(&mut self, _note: &Note) {}
}

/// The thread's state.
pub(super) struct Actor {
    journal: Journal,
    fleet: Fleet,
    data: PathBuf,
    outputs: Outputs,
    embedded: bool,
    courier: mpsc::Sender<Vec<Errand>>,
    broker: watch::Receiver<BrokerState>,
    inputs: mpsc::Receiver<Input>,
    audience: Box<dyn Audience>,
    tally: Tally,
    turn: Turn,
    /// When the journal, which could not be written, is tried again.
    try_again: Option<Instant>,
}

/// What was decided and is not on the disk yet: nobody has heard of it.
#[derive(Default)]
struct Turn {
    drafts: Vec<Draft>,
    effects: Vec<Effect>,
    receipts: Vec<Errand>,
    answers: Vec<Answer>,
}

impl Actor {
    pub(super) fn new(
        journal: Journal,
        fleet: Fleet,
        parts: Parts,
        courier: mpsc::Sender<Vec<Errand>>,
        broker: watch::Receiver<BrokerState>,
        inputs: mpsc::Receiver<Input>,
    ) -> Self {
        let Parts { data, outputs, policy, audience, tally, .. } = parts;
        Self {
            journal,
            fleet,
            data,
            outputs,
            embedded: policy.embedded,
            courier,
            broker,
            inputs,
            audience,
            tally,
            turn: Turn::default(),
            try_again: None,
        }
    }

    /// Turns until it is told to stop, its one job is finished, or it cannot go on.
    pub(super) fn run(mut self) -> Result<Ended, ServiceError> {
        let mut batch = Vec::with_capacity(TURN);
        loop {
            batch.clear();
            if self.inputs.blocking_recv_many(&mut batch, TURN) == 0 {
                return Ok(Ended::Stopped);
            }
            if let Some(end) = self.turn(&mut batch)? {
                return Ok(end);
            }
        }
    }

    fn turn(&mut self, batch: &mut Vec<Input>) -> Result<Option<Ended>, ServiceError> {
        let mut stop = false;
        for input in batch.drain(..) {
            let now = Instant::now();
            match input {
                Input::Report(Received { message, receipt, .. }) => {
                    self.fleet.report(message, now);
                    self.turn.receipts.push(Errand::Acknowledge(receipt));
                }
                Input::Pulse(pulse) => self.hear(*pulse, now),
                Input::Answered { job, question, said } => self.fleet.answered(&job, &question, *said, now),
                Input::Unsent { task, lease, reason } => self.fleet.unsent(task, lease, &reason, now),
                Input::Admit(admission) => self.admit(*admission)?,
                Input::Recalled(job, known) => {
                    if let Some(job) = self.fleet.job_mut(&job) {
                        job.recall(known);
                    }
                }
                Input::Ask(ask) => self.turn.answers.push(ask(&mut self.fleet, now)),
                Input::Look(look) => look(&self.fleet, now),
                Input::Tick => self.fleet.tick(now),
                Input::Deposed => tracing::warn!("the turn to lead was lost; the next append shows whether another coordinator began"),
                Input::Stop => stop = true,
            }
        }
        // What a broker that is down, or a journal that cannot be written, would not take stays in the backlog.
        if *self.broker.borrow() == BrokerState::Up && self.try_again.is_none() && !stop {
            self.fleet.dispatch(Instant::now());
        }
        let ended = self.conclude()?;
        Ok(ended.or(stop.then_some(Ended::Stopped)))
    }

    /// Takes a job in, once its opening is in the journal. A journal that cannot be written is not waited for: whoever asks is refused, and
    /// nothing has happened.
    fn admit(&mut self, Admission { job, drafts, answer }: Admission) -> Result<(), JournalError> {
        // Who was not answered in time takes it for refused.
        if answer.is_closed() {
            return Ok(());
        }
        if self.fleet.jobs().contains_key(job.id()) {
            let _ = answer.send(Ok(false));
            return Ok(());
        }
        let started = Instant::now();
        let said = match self.journal.append(&drafts) {
            Ok(entries) => {
                self.tally.appended(entries.len(), started.elapsed());
                self.fleet.admit(job, Vec::new());
                entries.iter().for_each(|entry| self.show(entry));
                Ok(true)
            }
            Err(error) if error.is_transient() => {
                self.not_appended(&error, started);
                Err(error.to_string())
            }
            Err(error) => return Err(error),
        };
        // It is in the journal all the same.
        let _ = answer.send(said);
        Ok(())
    }

    /// Shows an event to whoever looks on.
    fn show(&mut self, entry: &Entry) {
        self.audience.event(entry, entry.job.as_ref().and_then(|job| self.fleet.jobs().get(job)));
    }

    fn hear(&mut self, pulse: Pulse, now: Instant) {
        match pulse {
            Pulse::Beat(beat) => self.fleet.beat(beat, now),
            Pulse::Started { agent, task, lease } => self.fleet.started(agent, task, lease, now),
            Pulse::Leaving { agent } => self.fleet.leaving(&agent, now),
        }
    }

    /// Journals what was decided, then has it happen. While the journal cannot be written nothing happens, and what comes is added to the turn.
    fn conclude(&mut self) -> Result<Option<Ended>, ServiceError> {
        let (drafts, effects) = self.fleet.take();
        self.turn.drafts.extend(drafts);
        self.turn.effects.extend(effects);
        if !self.write_turn()? {
            return Ok(None);
        }
        let Turn { effects, receipts, answers, .. } = std::mem::take(&mut self.turn);
        let ended = self.happen(effects, receipts)?;
        answers.into_iter().for_each(|answer| answer());
        Ok(ended)
    }

    /// Appends what was decided. False where the journal cannot be written just now: a disk that is full is tried again every second.
    fn write_turn(&mut self) -> Result<bool, JournalError> {
        let now = Instant::now();
        if self.try_again.is_some_and(|then| then > now) {
            return Ok(false);
        }
        let tried = match (self.turn.drafts.is_empty(), self.try_again) {
            (true, None) => return Ok(true),
            // Nobody else may have something to append.
            (true, Some(_)) => self.journal.probe().map(|()| Vec::new()),
            (false, _) => {
                self.tally.unwritten(self.turn.drafts.len());
                self.journal.append(&self.turn.drafts)
            }
        };
        match tried {
            Ok(entries) => {
                self.try_again = None;
                self.tally.appended(entries.len(), now.elapsed());
                entries.iter().for_each(|entry| self.show(entry));
                Ok(true)
            }
            Err(error) if !self.embedded && error.is_transient() => {
                self.not_appended(&error, now);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn not_appended(&mut self, error: &JournalError, now: Instant) {
        self.tally.not_appended(error);
        self.try_again = Some(now + RETRY);
    }

    /// Has what is on the disk happen.
    fn happen(&mut self, effects: Vec<Effect>, receipts: Vec<Errand>) -> Result<Option<Ended>, ServiceError> {
        for note in self.fleet.take_notes() {
            self.tally.note(&note);
            self.audience.note(&note);
        }
        let mut errands = receipts;
        for effect in effects {
            match effect {
                Effect::Finish(job) => {
                    if let Some(end) = self.finish(&job)? {
                        return Ok(Some(end));
                    }
                }
                Effect::Pause(_) if self.embedded => return Ok(Some(Ended::Paused)),
                Effect::Stop(failure) => {
                    return Err(TuneError::from(agent_error(failure)).into());
                }
                Effect::Confirmed { job, target, candidate, class } => {
                    errands.extend(super::best_known::offer(&self.fleet, &job, &target, candidate, class).map(Errand::Offer));
                }
                Effect::Placed(job, class) => {
                    let search = self.fleet.jobs().get(&job).and_then(Job::search);
                    let kernels = search.map(|search| search.targets().iter().map(|target| target.fingerprint).collect());
                    errands.extend(kernels.map(|kernels| Errand::Recall { job, class, kernels }));
                }
                effect => {
                    if let Effect::Send { task, .. } = &effect
                        && let Some(step) = self.fleet.jobs().get(&task.job).and_then(|job| job.running().get(&task.id))
                    {
                        self.audience.step(&task.job, step);
                    }
                    errands.push(Errand::Effect(effect));
                }
            }
        }
        self.put_away()?;
        if !errands.is_empty() && self.courier.blocking_send(errands).is_err() {
            return Ok(Some(Ended::Stopped));
        }
        Ok(None)
    }

    /// Appends what a job's outputs rest on. A disk that is full, or cannot be written for the moment, is waited for.
    fn commit(&mut self, drafts: &[Draft]) -> Result<(), JournalError> {
        if drafts.is_empty() {
            return Ok(());
        }
        self.tally.unwritten(drafts.len());
        let entries = loop {
            let started = Instant::now();
            match self.journal.append(drafts) {
                Ok(entries) => {
                    self.tally.appended(drafts.len(), started.elapsed());
                    break entries;
                }
                Err(error) if !self.embedded && error.is_transient() => {
                    self.tally.not_appended(&error);
                    std::thread::sleep(RETRY);
                }
                Err(error) => return Err(error),
            }
        };
        entries.iter().for_each(|entry| self.show(entry));
        Ok(())
    }

    /// Writes a job's outputs: what stands in the compiler's place, the event that says so, then the summaries of all events.
    fn finish(&mut self, id: &JobId) -> Result<Option<Ended>, ServiceError> {
        match self.write_outputs(id) {
            Ok(result) if self.embedded => Ok(result.map(|result| Ended::Finished(Box::new(result)))),
            Ok(_) => Ok(None),
            Err(error) if self.embedded => Err(error),
            // The job is there, and is tried again with the next turn.
            Err(error @ ServiceError::Tune(TuneError::Folder(_))) => {
                tracing::error!(job = %id, %error, "the outputs cannot be written");
                Ok(None)
            }
            Err(error @ ServiceError::Tune(_)) => {
                let how = JobEnded::Failed { reason: error.to_string() };
                self.fleet.end(id, how, Instant::now());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn write_outputs(&mut self, id: &JobId) -> Result<Option<TuneResult>, ServiceError> {
        let (folder, exports) = match &self.outputs {
            Outputs::Here(folder) => (folder.clone(), false),
            Outputs::Under(root) => (Arc::new(JobFolder::take(&root.join(id.as_str())).map_err(TuneError::from)?), true),
        };
        let mut drafts = Vec::new();
        let Some(job) = self.fleet.job_mut(id) else { return Ok(None) };
        let Some(event) = job.search().map(|search| search.write_model(&folder)).transpose()? else { return Ok(None) };
        job.record(event, Instant::now(), &mut drafts);
        self.commit(&drafts)?;
        let entries = Journal::reader(&self.data)?.of_job(id)?;
        let search = self.fleet.jobs().get(id).and_then(Job::search);
        Ok(search.map(|search| search.write_summaries(&folder, &entries, exports)).transpose()?)
    }

    /// Jobs that are over are remembered by the journal alone.
    fn put_away(&mut self) -> Result<(), ServiceError> {
        let over: Vec<JobId> = self.fleet.jobs().iter().filter(|(_, job)| job.plan().is_over()).map(|(id, _)| id.clone()).collect();
        for id in over {
            let job = self.fleet.dismiss(&id);
            self.tally.ended(&id);
            let ended = job.as_ref().and_then(Job::search).and_then(|search| search.state().ended.clone());
            if let (true, Some(JobEnded::Failed { reason })) = (self.embedded, ended) {
                return Err(TuneError::from(AgentError::Internal(reason)).into());
            }
        }
        Ok(())
    }
}

/// What an agent of the same process could not do, as its caller would have heard it.
fn agent_error(failure: Failure) -> AgentError {
    match failure.kind {
        FailureKind::Environment | FailureKind::TimedOut => AgentError::Environment { what: failure.what, remedy: failure.remedy },
        FailureKind::Baseline | FailureKind::Internal => AgentError::Internal(failure.what),
    }
}
