//! One device of the service: a loop that owns all that the device holds.
//!
//! Nothing in the loop waits for anything but the next event. What takes time (the network, the store, the device) happens elsewhere and
//! comes back as an event: `intake.rs` says what becomes of tasks and commands, `course.rs` of the device's work, `leaving.rs` of
//! the end.

use std::sync::Arc;
use std::time::Duration;

use kernelopt_shared::broker::Receipt;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{AgentId, AgentMode, Beat, DeviceIdentity, Lease, Pulse, Reply, Report, Task, Times};
use kernelopt_shared::stop::Stop;
use kernelopt_shared::task::BuildAhead;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::ServiceError;
use super::busy::Busy;
use super::device::Device;
use super::fetch::{Fetch, FetchError};
use super::hand::{self, Order, Said};
use super::holding::{Errand, Holding, Holdings, Stage};
use super::job::Job;
use super::leaving::Farewell;
use super::line::{Heard, Line};
use super::memory::Memory;
use super::settings::Settings;
use super::streak::Streak;
use super::telemetry::Telemetry;
use super::workshop::Workshop;

/// Events that may wait for the loop.
const EVENTS: usize = 64;
/// Time of a broker for one thing that need not succeed.
pub(super) const COURTESY: Duration = Duration::from_secs(5);

/// What a task needs is here, or will not be.
pub(super) struct Fetched {
    /// The task's.
    pub lease: Lease,
    /// How it went.
    pub got: Result<Job, FetchError>,
    /// How long it took.
    pub took: Duration,
}

/// What a worker is made with.
pub(super) struct Parts {
    pub id: AgentId,
    pub incarnation: u64,
    pub identity: DeviceIdentity,
    pub workshop: Arc<dyn Workshop>,
    pub line: Arc<Line>,
    pub fetch: Arc<dyn Fetch>,
    pub settings: Settings,
    pub telemetry: Telemetry,
    pub shutdown: CancellationToken,
}

/// The loop's state.
pub(super) struct Worker {
    pub(super) id: AgentId,
    pub(super) identity: DeviceIdentity,
    /// Tasks that it likes to hold.
    capacity: u16,
    pub(super) settings: Settings,
    pub(super) line: Arc<Line>,
    pub(super) fetch: Arc<dyn Fetch>,
    pub(super) holdings: Holdings,
    pub(super) memory: Memory,
    pub(super) streak: Streak,
    pub(super) mode: AgentMode,
    /// Latest epoch heard of.
    pub(super) epoch: u64,
    /// What the thread is at.
    pub(super) device: Device,
    /// It is to test itself as soon as it is idle, and to take tasks again if it passes.
    pub(super) readmit: bool,
    /// Ends what the thread is at; asked once, a new one takes its place.
    pub(super) stop: Stop,
    /// Builds beside the device's work, for tasks of one bundle.
    pub(super) ahead: Option<(Digest, Arc<dyn BuildAhead>)>,
    pub(super) orders: mpsc::Sender<Order>,
    pub(super) events: mpsc::Sender<Fetched>,
    pub(super) errands: JoinSet<()>,
    /// Present while tasks are taken.
    pub(super) pulling: Option<Errand>,
    pub(super) pulled: mpsc::Sender<Heard>,
    pub(super) farewell: Option<Farewell>,
    pub(super) busy: Busy,
    pub(super) telemetry: Telemetry,
    incarnation: u64,
}

/// Where the loop hears from.
struct Ears {
    fetched: mpsc::Receiver<Fetched>,
    said: mpsc::Receiver<Said>,
    heard: mpsc::Receiver<Heard>,
    shutdown: CancellationToken,
}

/// Serves one device until it is told to leave.
///
/// # Errors
/// The device's thread cannot be started, the broker refuses the agent, or it was closed.
pub(super) async fn serve(parts: Parts) -> Result<(), ServiceError> {
    let (events, fetched) = mpsc::channel(EVENTS);
    let (says, said) = mpsc::channel(EVENTS);
    let (pulled, heard) = mpsc::channel(1);
    let capacity = parts.workshop.capacity();
    let orders = hand::start(parts.id.as_str(), parts.workshop, says).map_err(ServiceError::Thread)?;
    let ears = Ears { fetched, said, heard, shutdown: parts.shutdown };
    parts.telemetry.expect(&parts.id);
    let _commands = tokio::select! {
        listening = parts.line.listen(pulled.clone()) => listening?,
        // The broker is not there yet, and nobody waits for it any more.
        () = ears.shutdown.cancelled() => return Ok(()),
    };
    let worker = Worker {
        id: parts.id,
        identity: parts.identity,
        capacity,
        settings: parts.settings,
        line: parts.line,
        fetch: parts.fetch,
        holdings: Holdings::default(),
        memory: Memory::default(),
        streak: Streak::default(),
        mode: AgentMode::Working,
        epoch: 0,
        device: Device::Idle,
        readmit: false,
        stop: Stop::default(),
        ahead: None,
        orders,
        events,
        errands: JoinSet::new(),
        pulling: None,
        pulled,
        farewell: None,
        busy: Busy::default(),
        telemetry: parts.telemetry,
        incarnation: parts.incarnation,
    };
    worker.work(ears).await
}

impl Worker {
    async fn work(mut self, mut ears: Ears) -> Result<(), ServiceError> {
        let mut beats = interval(self.settings.beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.pull();
        while !self.is_done() {
            let deadline = self.deadline();
            tokio::select! {
                () = ears.shutdown.cancelled(), if self.farewell.is_none() => self.leave("the agent is told to stop"),
                _ = beats.tick() => self.beat(),
                Some(fetched) = ears.fetched.recv() => self.on_fetched(fetched),
                Some(said) = ears.said.recv() => self.on_said(said),
                Some(heard) = ears.heard.recv() => match heard {
                    Heard::Task(task, receipt) => self.on_task(*task, Some(receipt)),
                    Heard::Control(control) => self.on_control(control),
                    Heard::Lost(error) => return Err(error),
                },
                Some(_) = self.errands.join_next() => {}
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => self.on_deadline(),
            }
            self.begin_next();
        }
        self.say_goodbye().await;
        Ok(())
    }

    /// The next moment at which something must happen.
    fn deadline(&self) -> Option<Instant> {
        let farewell = self.farewell.as_ref().map(|farewell| farewell.deadline(&self.settings));
        self.device.deadline(&self.settings).into_iter().chain(farewell).min()
    }

    fn on_deadline(&mut self) {
        let now = Instant::now();
        if self.device.deadline(&self.settings).is_some_and(|deadline| deadline <= now) {
            self.overdue();
        }
        if self.farewell.as_ref().is_some_and(|farewell| farewell.deadline(&self.settings) <= now) {
            self.hurry();
        }
    }

    /// Takes tasks from its lane.
    pub(super) fn pull(&mut self) {
        if self.pulling.is_none() && self.mode == AgentMode::Working {
            self.pulling = Some(self.line.pull(self.identity.class(), self.capacity, self.pulled.clone()));
        }
    }

    /// Tells the coordinator that it lives, and what it holds.
    pub(super) fn beat(&mut self) {
        let beat = Beat {
            agent: self.id.clone(),
            incarnation: self.incarnation,
            version: env!("CARGO_PKG_VERSION").into(),
            device: self.identity.clone(),
            epoch: self.epoch,
            mode: self.mode.clone(),
            capacity: self.capacity.into(),
            holds: self.holdings.leases(),
            busy: self.busy.share(),
        };
        self.telemetry.beat(&beat, self.holdings.unaccepted());
        self.line.pulse(Pulse::Beat(beat));
    }

    /// Another state, told at once.
    pub(super) fn enter(&mut self, mode: AgentMode) {
        tracing::info!(agent = %self.id, ?mode, "mode");
        self.mode = mode;
        self.beat();
    }

    /// A report of a task.
    pub(super) fn report_of(&self, task: &Task, reply: Reply, times: Times) -> Report {
        Report {
            task: task.id,
            job: task.job.clone(),
            lease: task.lease,
            agent: self.id.clone(),
            device: self.identity.clone(),
            reply,
            times,
        }
    }

    /// Says what came of a task until the coordinator has it on its disk; only then the broker may forget the task.
    pub(super) fn report(&mut self, mut holding: Holding, reply: Reply, times: Times) {
        self.telemetry.task_done(&self.id, &holding.task, &reply, &times);
        let report = self.report_of(&holding.task, reply, times);
        self.repeat(&mut holding, report);
        self.holdings.add(holding);
    }

    /// Begins to send a report again and again.
    pub(super) fn repeat(&mut self, holding: &mut Holding, report: Report) {
        let (line, pause) = (Arc::clone(&self.line), self.settings.resend);
        self.memory.keep(report.clone());
        let sending = async move {
            loop {
                line.report(&report).await;
                tokio::time::sleep(pause).await;
            }
        };
        holding.stage = Stage::Reporting { _again_and_again: Errand(self.errands.spawn(sending)) };
    }

    /// Does without the answer of a broker.
    pub(super) fn acknowledge(&mut self, receipt: Option<Box<dyn Receipt>>) {
        if let Some(receipt) = receipt {
            self.errands.spawn(async move {
                // One that is too late has come back to somebody, and is known there by its lease.
                let _ = timeout(COURTESY, receipt.acknowledge()).await;
            });
        }
    }
}
