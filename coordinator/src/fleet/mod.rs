//! The coordinator's core: what it knows of jobs, leases and agents, and what it decides. It talks to nobody and writes nothing: every
//! input turns into events to be journaled and effects to be had once they are on the disk.

mod dispatch;
mod effect;
pub mod leases;
mod note;
mod poison;
pub mod roster;
pub mod share;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kernelopt_shared::language_model::{Answer, Unanswered};
use kernelopt_shared::message::{AgentId, Beat, Control, DeviceClass, FailureKind, JobId, Lease, Reply, Report, TaskId};
use kernelopt_shared::task::Depth;

pub use effect::{Effect, Route};
use leases::{Expiry, Held, Leases};
pub use note::{Note, Taken};
use poison::Charges;
use roster::Roster;
use share::Shares;

use crate::job::{Job, Settled};
use crate::journal::{Draft, Entry, Event};
use crate::search::plan::Step;
use crate::search::state::Ended;

/// How patient the fleet is.
#[derive(Clone, Debug)]
pub struct Policy {
    /// How long an agent may say nothing before its leases go to others.
    pub silence: Duration,
    /// What a run may take besides its limit; the agent's own clock ends it first.
    pub grace: Duration,
    /// How long a task that was sent may be unheard of before it is sent again.
    pub patience: Duration,
    /// Failures after which a task is not given out again.
    pub attempts: usize,
    /// One process, one device: a failure of the environment ends the run, so that the person in front of it can mend it.
    pub embedded: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(15),
            grace: Duration::from_secs(30),
            patience: Duration::from_secs(10),
            attempts: 3,
            embedded: false,
        }
    }
}

/// What the coordinator knows.
pub struct Fleet {
    policy: Policy,
    epoch: u64,
    serial: u64,
    jobs: BTreeMap<JobId, Job>,
    /// The class that each job was placed on.
    places: BTreeMap<JobId, DeviceClass>,
    leases: Leases,
    roster: Roster,
    shares: Shares,
    charges: Charges,
    drafts: Vec<Draft>,
    effects: Vec<Effect>,
    notes: Vec<Note>,
}

impl Fleet {
    /// Knows nothing yet.
    pub fn new(policy: Policy, epoch: u64) -> Self {
        Self {
            policy,
            epoch,
            serial: 0,
            jobs: BTreeMap::new(),
            places: BTreeMap::new(),
            leases: Leases::default(),
            roster: Roster::default(),
            shares: Shares::default(),
            charges: Charges::default(),
            drafts: Vec::new(),
            effects: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// What is to be journaled, and what is to be done after that.
    pub fn take(&mut self) -> (Vec<Draft>, Vec<Effect>) {
        (std::mem::take(&mut self.drafts), std::mem::take(&mut self.effects))
    }

    /// What is to be counted.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// The jobs that are at work.
    pub const fn jobs(&self) -> &BTreeMap<JobId, Job> {
        &self.jobs
    }

    /// The class that a job was placed on.
    pub fn place(&self, job: &JobId) -> Option<&DeviceClass> {
        self.places.get(job)
    }

    /// The leases that are out.
    pub const fn leases(&self) -> &Leases {
        &self.leases
    }

    /// The agents.
    pub const fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Takes a job in: a new one, or one that the journal holds. `drafts` are its opening.
    pub fn admit(&mut self, job: Job, drafts: Vec<Draft>) {
        self.shares.join(job.id(), job.terms().weight);
        if let Some(class) = &job.terms().class {
            self.places.insert(job.id().clone(), class.clone());
        }
        self.drafts.extend(drafts);
        self.jobs.insert(job.id().clone(), job);
    }

    /// Takes up the leases of a journal, after its jobs were admitted. Whoever holds one has the usual time to say so.
    pub fn restore<'e>(&mut self, entries: impl IntoIterator<Item = &'e Entry>, now: Instant) {
        let mut open: BTreeMap<TaskId, Held> = BTreeMap::new();
        for entry in entries {
            match (&entry.event, &entry.job) {
                (Event::Placed { class }, Some(job)) => drop(self.places.insert(job.clone(), class.clone())),
                (Event::Leased { task, lease, step, class }, Some(job)) => {
                    let held = Held::of_journal(*task, job.clone(), step.clone(), *lease, class.clone(), now);
                    drop(open.insert(*task, held));
                }
                (Event::Released { task, charged, .. }, _) => {
                    self.charges.add(*task, charged.clone());
                    open.remove(task);
                }
                (Event::Quarantined { task, .. }, _) => drop(open.remove(task)),
                (Event::AgentQuarantined { agent, discharged, .. }, _) => self.charges.take_back(agent, discharged),
                (Event::Evidence { report }, _) => drop(self.leases.file(report.lease)),
                _ => {}
            }
        }
        for held in open.into_values() {
            match self.jobs.get_mut(&held.job) {
                // Its agent was of the same process, and ended with it.
                Some(_) if self.policy.embedded => {}
                Some(job) if !job.plan().is_over() && !job.plan().is_settled(&held.step) => {
                    job.adopt(held.id, held.step.clone(), now);
                    self.leases.grant(held);
                }
                _ => drop(self.leases.file(held.lease)),
            }
        }
    }

    /// An agent's sign of life.
    pub fn beat(&mut self, beat: Beat, now: Instant) {
        let (agent, holds) = (beat.agent.clone(), beat.holds.clone());
        if beat.epoch < self.epoch {
            self.effects.push(Effect::Tell(agent.clone(), Control::Leading { epoch: self.epoch }));
        }
        let news = self.roster.hear(beat, now);
        for lease in holds {
            if let Some(task) = self.leases.find(lease).map(|held| held.id) {
                self.heard_to_hold(task, &agent, now);
            } else if !self.leases.is_filed(lease) {
                // It is somebody else's by now, or nobody's. Of a report that was taken it will hear.
                self.effects.push(Effect::Tell(agent.clone(), Control::Cancel { lease }));
            }
        }
        if news.restarted {
            self.release_of(&agent, "its agent was started again", now);
        }
        if let Some((reason, discharged)) = news.quarantined {
            self.charges.take_back(&agent, &discharged);
            self.notes.push(Note::Forgiven(discharged.len()));
            self.drafts.push(Draft::of_fleet(Event::AgentQuarantined { agent, reason, discharged }));
        } else if news.readmitted {
            self.drafts.push(Draft::of_fleet(Event::AgentReadmitted { agent }));
        }
    }

    /// Takes back what an agent held that it holds no more.
    fn release_of(&mut self, agent: &AgentId, reason: &str, now: Instant) {
        let lost = |held: &&Held| held.agent.as_ref() == Some(agent) && !self.roster.holds(agent, held.lease);
        let lost: Vec<(TaskId, bool)> = self.leases.iter().filter(lost).map(|held| (held.id, held.started.is_some())).collect();
        for (task, started) in lost {
            self.release(task, reason, started.then(|| agent.clone()), now);
        }
    }

    /// Work on a task begins.
    pub fn started(&mut self, agent: AgentId, task: TaskId, lease: Lease, now: Instant) {
        if self.leases.current(task, lease).is_none() {
            return self.effects.push(Effect::Tell(agent, Control::Cancel { lease }));
        }
        self.heard_to_hold(task, &agent, now);
        if let Some(held) = self.leases.current(task, lease) {
            held.started.get_or_insert(now);
        }
    }

    /// An agent says that it holds a task. Where another one had begun with it, the broker took it back from that one: its run is lost, and
    /// counts against it as if its silence had been waited for.
    fn heard_to_hold(&mut self, task: TaskId, agent: &AgentId, now: Instant) {
        let Some(held) = self.leases.of_task(task) else { return };
        let before = held.agent.replace(agent.clone()).filter(|before| before != agent);
        held.heard = now;
        let Some(before) = before.filter(|_| held.started.take().is_some()) else { return };
        self.notes.push(Note::Charged(None));
        self.roster.failed(&before, task);
        self.charges.add(task, Some(before));
        let agents = self.leases.of_task(task).map_or(0, |held| self.roster.working(&held.class).count());
        if self.charges.are_too_many(&task, self.policy.attempts, agents) {
            self.release(task, "the agents that began with it were lost", None, now);
        }
    }

    /// An agent goes away in good order.
    pub fn leaving(&mut self, agent: &AgentId, now: Instant) {
        self.roster.leave(agent);
        let held: Vec<TaskId> = self.leases.iter().filter(|held| held.agent.as_ref() == Some(agent)).map(|held| held.id).collect();
        held.into_iter().for_each(|task| self.release(task, "its agent left", None, now));
    }

    /// What came of a task. Whatever it is, the agent may forget it.
    pub fn report(&mut self, report: Report, now: Instant) {
        let accepted = Control::Accepted { task: report.task, lease: report.lease };
        self.effects.push(Effect::Tell(report.agent.clone(), accepted));
        if self.leases.current(report.task, report.lease).is_none() {
            // A lease that is not the task's own changes nothing (invariant 5); what was measured is kept, once.
            self.notes.push(Note::Stale);
            if self.leases.file(report.lease) {
                let job = Some(report.job.clone());
                self.drafts.push(Draft { job, active: Duration::ZERO, event: Event::Evidence { report: Box::new(report) } });
            }
            return;
        }
        self.take_report(report, now);
    }

    fn take_report(&mut self, report: Report, now: Instant) {
        let Some(held) = self.leases.end(report.task) else { return };
        self.leases.file(report.lease);
        self.shares.cost(&held.job, Duration::from_millis(report.times.run_ms));
        self.note_taken(&held, &report, now);
        let Some(job) = self.jobs.get_mut(&held.job) else { return };
        let handed_back = matches!(report.reply, Reply::HandedBack { .. });
        match job.settle(report.task, report.reply, &report.device, now, &mut self.drafts) {
            Settled::Done => {
                self.roster.did(&report.agent);
                self.charges.clear(report.task);
                if let Step::Evaluate { target, candidate, depth: Depth::Confirm } = held.step {
                    self.effects.push(Effect::Confirmed { job: held.job, target, candidate, class: held.class });
                }
            }
            Settled::Undone(failure) if handed_back => self.end_undone(&held, &failure.what, None, now),
            Settled::Undone(failure) if self.policy.embedded && failure.kind != FailureKind::TimedOut => {
                self.effects.push(Effect::Stop(failure));
            }
            Settled::Undone(failure) => self.charge(&held, &report.agent, &failure.what, Some(failure.kind), now),
            Settled::Foreign => {
                self.charge(&held, &report.agent, "its answer was to another question", Some(FailureKind::Internal), now);
            }
        }
    }

    fn note_taken(&mut self, held: &Held, report: &Report, now: Instant) {
        let Some(task) = &held.task else { return };
        let since = |then: Instant, until: Instant| until.saturating_duration_since(then);
        let queued = since(held.sent, held.started.unwrap_or(now));
        let (class, work, reply, times) = (held.class.clone(), task.work.clone(), report.reply.clone(), report.times);
        self.notes.push(Note::Done(Box::new(Taken { class, work, reply, times, queued, leased: since(held.sent, now) })));
    }

    fn charge(&mut self, held: &Held, agent: &AgentId, reason: &str, kind: Option<FailureKind>, now: Instant) {
        self.notes.push(Note::Charged(kind));
        self.roster.failed(agent, held.id);
        self.end_undone(held, reason, Some(agent.clone()), now);
    }

    /// A lease ended and the task was not done: it goes to somebody else, unless it has failed too often.
    fn end_undone(&mut self, held: &Held, reason: &str, charged: Option<AgentId>, now: Instant) {
        let Some(job) = self.jobs.get_mut(&held.job) else { return };
        self.charges.add(held.id, charged.clone());
        job.release(held.id, held.lease, reason, charged, now, &mut self.drafts);
        let agents = self.roster.working(&held.class).count();
        if self.charges.are_too_many(&held.id, self.policy.attempts, agents) {
            let told = format!("{} failed on {}; the last time: {reason}", held.told(), self.charges.told(&held.id));
            job.quarantine(held.id, held.step.clone(), &told, now, &mut self.drafts);
            self.notes.extend(held.task.as_ref().map(|task| Note::Poisoned(task.work.clone())));
        }
    }

    fn release(&mut self, task: TaskId, reason: &str, charged: Option<AgentId>, now: Instant) {
        if let Some(held) = self.leases.end(task) {
            match charged {
                Some(agent) => self.charge(&held, &agent, reason, None, now),
                None => self.end_undone(&held, reason, None, now),
            }
        }
    }

    /// A task could not be sent.
    pub fn unsent(&mut self, task: TaskId, lease: Lease, reason: &str, now: Instant) {
        if self.leases.current(task, lease).is_some() {
            self.release(task, reason, None, now);
        }
    }

    /// What came of a question of a job. One that is over has no use for it.
    pub fn answered(&mut self, job: &JobId, question: &str, said: Result<Answer, Unanswered>, now: Instant) {
        if let Some(job) = self.jobs.get_mut(job).filter(|job| !job.plan().is_over()) {
            job.answered(question, said, now, &mut self.drafts);
        }
    }

    /// Time has passed: leases come to their end, lost tasks are sent again, silent agents are gone.
    pub fn tick(&mut self, now: Instant) {
        for (task, expiry) in self.leases.expired(now, self.policy.silence, self.policy.grace) {
            let Some(held) = self.leases.iter().find(|held| held.id == task) else { continue };
            let (agent, lease, ran) = (held.agent.clone(), held.lease, held.started.is_some());
            self.notes.push(Note::Expired { class: held.class.clone(), expiry });
            if let Some(agent) = &agent {
                self.effects.push(Effect::Tell(agent.clone(), Control::Cancel { lease }));
            }
            let reason = match expiry {
                Expiry::Silent => "its agent was not heard of",
                Expiry::TooLong => "it ran for too long",
            };
            self.release(task, reason, agent.filter(|_| ran), now);
        }
        self.roster.silent(now, self.policy.silence);
        self.resend(now);
    }

    /// Ends a job without outputs. What it has running is cancelled.
    pub fn end(&mut self, id: &JobId, how: Ended, now: Instant) -> bool {
        let Some(job) = self.jobs.get_mut(id).filter(|job| !job.plan().is_over()) else { return false };
        let tasks: Vec<TaskId> = job.running().keys().copied().collect();
        job.end(how, now, &mut self.drafts);
        tasks.into_iter().for_each(|task| drop(self.leases.end(task)));
        self.effects.push(Effect::TellAll(Control::CancelJob { job: id.clone() }));
        true
    }

    /// Tells all agents of a host.
    pub fn tell_host(&mut self, host: &str, control: &Control) {
        let agents = self.roster.iter().map(|(agent, _)| agent).filter(|agent| agent.host() == host);
        self.effects.extend(agents.map(|agent| Effect::Tell(agent.clone(), control.clone())));
    }

    /// Takes a job that is over out, and drops what it asked.
    pub fn dismiss(&mut self, id: &JobId) -> Option<Job> {
        self.shares.leave(id);
        self.places.remove(id);
        self.effects.push(Effect::Hush(id.clone()));
        self.jobs.remove(id)
    }

    /// A job, to note that its outputs are written.
    pub fn job_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        self.jobs.get_mut(id)
    }
}
