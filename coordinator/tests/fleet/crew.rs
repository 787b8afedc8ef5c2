//! Agents that live in the test: they take tasks, hold them for a while, and misbehave as told. Time is simulated.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use kernelopt_coordinator::fleet::{Effect, Fleet, Policy, Route};
use kernelopt_coordinator::job::{Drill, Job, Terms};
use kernelopt_coordinator::journal::{Draft, Entry, Event};
use kernelopt_shared::language_model::NanoUsd;
use kernelopt_shared::message::{
    AgentId, AgentMode, Beat, Control, DeviceClass, DeviceIdentity, DeviceKind, Failure, FailureKind, JobId, Lease, Reply, Report, Task,
    Times,
};

/// Time between two beats, and between two looks of the coordinator at its clock.
pub const BEAT: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(100);

/// One simulated agent.
pub struct Hand {
    pub id: AgentId,
    pub device: DeviceIdentity,
    pub mode: AgentMode,
    /// Dead or stopped: says and does nothing.
    pub mute: bool,
    /// Fails everything at once.
    pub broken: bool,
    queue: VecDeque<Task>,
    running: Option<(Task, Duration)>,
    incarnation: u64,
    beat_at: Duration,
    pub did: u64,
}

/// A coordinator's core with agents around it.
pub struct Crew {
    pub fleet: Fleet,
    pub hands: Vec<Hand>,
    pub journal: Vec<Entry>,
    /// Tasks in the broker, by class.
    pub lanes: BTreeMap<DeviceClass, VecDeque<Task>>,
    start: Instant,
    pub now: Duration,
    policy: Policy,
    epoch: u64,
    /// Delivers every report this many times.
    pub copies: usize,
    /// Order in which leases were given out, by job.
    pub dispatched: Vec<JobId>,
}

pub fn device(product: &str, number: usize) -> DeviceIdentity {
    DeviceIdentity {
        kind: DeviceKind::Cuda,
        uuid: format!("GPU-{product}-{number}"),
        product: product.into(),
        memory_bytes: 1 << 30,
        architecture: "sm_90".into(),
        partition: None,
        driver: "1".into(),
        threads: 0,
    }
}

pub fn terms(weight: u32, priority: u8) -> Terms {
    Terms {
        name: String::new(),
        class: Some(device("gpu", 0).class()),
        budget_ms: 3_600_000,
        max_candidates: 1000,
        seed: 0,
        proposers: Vec::new(),
        priority,
        weight,
        model: String::new(),
        max_tokens: 0,
        max_cost: NanoUsd::ZERO,
    }
}

impl Crew {
    pub fn new(agents: usize) -> Self {
        let policy = Policy::default();
        let mut crew = Self {
            fleet: Fleet::new(policy.clone(), 1),
            hands: Vec::new(),
            journal: Vec::new(),
            lanes: BTreeMap::new(),
            start: Instant::now(),
            now: Duration::ZERO,
            policy,
            epoch: 1,
            copies: 1,
            dispatched: Vec::new(),
        };
        (0..agents).for_each(|_| crew.hire());
        crew
    }

    pub fn hire(&mut self) {
        let number = self.hands.len();
        self.hands.push(Hand {
            id: AgentId::parse(&format!("host{number}/cuda0")).expect("a plain name"),
            device: device("gpu", number),
            mode: AgentMode::Working,
            mute: false,
            broken: false,
            queue: VecDeque::new(),
            running: None,
            incarnation: number as u64,
            beat_at: BEAT.mul_f64(number as f64 % 50.0 / 50.0),
            did: 0,
        });
    }

    pub fn drill(&mut self, name: &str, tasks: u64, busy: Duration, terms: Terms) {
        let mut drafts = Vec::new();
        let job = Job::open(JobId::parse(name).expect("a plain name"), terms, Box::new(Drill::new(tasks, busy)), &mut drafts);
        self.fleet.admit(job, drafts);
        self.settle();
    }

    fn instant(&self) -> Instant {
        self.start + self.now
    }

    /// Journals what is to be journaled, then lets the effects happen.
    pub fn settle(&mut self) {
        let (drafts, effects) = self.fleet.take();
        self.append(drafts);
        effects.into_iter().for_each(|effect| self.happen(effect));
    }

    pub fn append(&mut self, drafts: Vec<Draft>) {
        for draft in drafts {
            if let (Event::Leased { .. }, Some(job)) = (&draft.event, &draft.job) {
                self.dispatched.push(job.clone());
            }
            let seq = self.journal.len() as i64 + 1;
            self.journal.push(Entry { seq, job: draft.job, active: draft.active, event: draft.event });
        }
    }

    fn happen(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to: Route::Lane(class), task, .. } => self.lanes.entry(class).or_default().push_back(*task),
            Effect::Send { to: Route::Agent(agent), task, .. } => {
                if let Some(hand) = self.hands.iter_mut().find(|hand| hand.id == agent && !hand.mute) {
                    hand.queue.push_back(*task);
                }
            }
            Effect::Tell(agent, control) => {
                if let Some(hand) = self.hands.iter_mut().find(|hand| hand.id == agent) {
                    hand.told(&control);
                }
            }
            Effect::TellAll(control) => self.hands.iter_mut().for_each(|hand| hand.told(&control)),
            Effect::Placed(..) | Effect::Finish(_) | Effect::Confirmed { .. } | Effect::Stop(_) => {}
            Effect::Ask(..) | Effect::Hush(_) | Effect::Pause(_) => {}
        }
    }

    /// A coordinator dies here and another reads its journal: what was not journaled never was.
    pub fn replace_coordinator(&mut self) {
        self.epoch += 1;
        self.fleet = Self::read(&self.journal, &self.policy, self.epoch, self.instant());
        self.fleet.announce();
        self.settle();
    }

    /// The core that a journal gives.
    pub fn read(journal: &[Entry], policy: &Policy, epoch: u64, now: Instant) -> Fleet {
        let mut fleet = Fleet::new(policy.clone(), epoch);
        for entry in journal {
            if let (Event::Drill { terms, .. }, Some(plan), Some(id)) = (&entry.event, Drill::of_event(&entry.event), &entry.job) {
                let of_job = journal.iter().filter(|e| e.job.as_ref() == Some(id));
                fleet.admit(Job::resume(id.clone(), terms.clone(), Box::new(plan), of_job), Vec::new());
            }
        }
        fleet.restore(journal, now);
        fleet
    }

    /// Lets time pass until every job is over, or `limit` has passed.
    pub fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        while self.now < end && !self.is_done() {
            self.step();
        }
    }

    pub fn is_done(&self) -> bool {
        self.fleet.jobs().values().all(|job| job.plan().is_over())
    }

    pub fn step(&mut self) {
        self.now += STEP;
        let now = self.instant();
        let mut heard = Vec::new();
        for hand in self.hands.iter_mut().filter(|hand| !hand.mute) {
            hand.work(self.now, &mut self.lanes, &mut heard);
        }
        for word in heard {
            match word {
                Word::Beat(beat) => self.fleet.beat(*beat, now),
                Word::Started(agent, task, lease) => self.fleet.started(agent, task, lease, now),
                Word::Report(report) => (0..self.copies).for_each(|_| self.fleet.report((*report).clone(), now)),
            }
        }
        self.fleet.tick(now);
        self.fleet.dispatch(now);
        self.settle();
    }

    /// Tasks done, by the journal: each number of each job once.
    pub fn done(&self) -> BTreeMap<JobId, Vec<u64>> {
        let mut done: BTreeMap<JobId, Vec<u64>> = BTreeMap::new();
        for entry in &self.journal {
            if let (Event::Done { number }, Some(job)) = (&entry.event, &entry.job) {
                done.entry(job.clone()).or_default().push(*number);
            }
        }
        done.values_mut().for_each(|numbers| numbers.sort_unstable());
        done
    }

    pub fn count(&self, kind: &str) -> usize {
        self.journal.iter().filter(|entry| entry.event.kind() == kind).count()
    }
}

enum Word {
    Beat(Box<Beat>),
    Started(AgentId, kernelopt_shared::message::TaskId, Lease),
    Report(Box<Report>),
}

impl Hand {
    fn told(&mut self, control: &Control) {
        if self.mute {
            return;
        }
        match control {
            Control::Cancel { lease } => {
                self.queue.retain(|task| task.lease != *lease);
                self.running.take_if(|(task, _)| task.lease == *lease);
            }
            Control::CancelJob { job } => {
                self.queue.retain(|task| task.job != *job);
                self.running.take_if(|(task, _)| task.job == *job);
            }
            Control::Assigned(task) => self.queue.push_back((**task).clone()),
            _ => {}
        }
    }

    /// Dies and comes back with nothing.
    pub fn restart(&mut self) {
        (self.queue, self.running, self.mute) = (VecDeque::new(), None, false);
        self.incarnation += 1000;
        self.beat_at = Duration::ZERO;
    }

    fn work(&mut self, now: Duration, lanes: &mut BTreeMap<DeviceClass, VecDeque<Task>>, heard: &mut Vec<Word>) {
        if let Some((task, until)) = self.running.take() {
            if now >= until {
                self.did += 1;
                heard.push(Word::Report(Box::new(self.report(&task, Reply::Nothing))));
            } else {
                self.running = Some((task, until));
            }
        }
        while self.mode == AgentMode::Working && self.queue.len() + usize::from(self.running.is_some()) < 2 {
            let Some(task) = lanes.get_mut(&self.device.class()).and_then(VecDeque::pop_front) else { break };
            self.queue.push_back(task);
        }
        if self.running.is_none()
            && let Some(task) = self.queue.pop_front()
        {
            heard.push(Word::Started(self.id.clone(), task.id, task.lease));
            if self.broken {
                let failure = Failure { kind: FailureKind::Environment, what: "no compiler".into(), remedy: String::new() };
                heard.push(Word::Report(Box::new(self.report(&task, Reply::Failed(failure)))));
            } else {
                let busy = match task.work {
                    kernelopt_shared::message::Work::Nothing { busy_us } => Duration::from_micros(busy_us),
                    _ => Duration::ZERO,
                };
                self.running = Some((task, now + busy));
            }
        }
        if now >= self.beat_at {
            self.beat_at = now + BEAT;
            heard.push(Word::Beat(Box::new(self.beat())));
        }
    }

    fn beat(&self) -> Beat {
        Beat {
            agent: self.id.clone(),
            incarnation: self.incarnation,
            version: "0".into(),
            device: self.device.clone(),
            epoch: 1,
            mode: self.mode.clone(),
            capacity: 2,
            holds: self.queue.iter().chain(self.running.iter().map(|(task, _)| task)).map(|task| task.lease).collect(),
            busy: 1.0,
        }
    }

    fn report(&self, task: &Task, reply: Reply) -> Report {
        Report {
            task: task.id,
            job: task.job.clone(),
            lease: task.lease,
            agent: self.id.clone(),
            device: self.device.clone(),
            reply,
            times: Times { run_ms: 100, ..Times::default() },
        }
    }
}
