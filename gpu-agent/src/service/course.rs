//! The course of the device's work: begun, ended in time or not, and what is said of it.

use std::time::Duration;

use kernelopt_shared::message::{AgentMode, FailureKind, Lease, Pulse, Reply, Times};
use kernelopt_shared::stop::Stop;
use kernelopt_shared::task::AgentError;
use rand::RngExt as _;
use tokio::time::Instant;

use super::device::Device;
use super::hand::{Order, Said};
use super::holding::{Holding, Stage};
use super::job::Job;
use super::reply::{failed, failure};
use super::running::{Running, Why};
use super::worker::Worker;

impl Worker {
    /// Gives the device the next task, where there is one and it is free.
    pub(super) fn begin_next(&mut self) {
        if !self.device.is_idle() || self.farewell.is_some() {
            return;
        }
        if self.readmit || (self.mode == AgentMode::Working && self.streak.is_doubtful()) {
            return self.test();
        }
        let Some((lease, job)) = self.holdings.next().filter(|_| self.mode == AgentMode::Working) else { return };
        let batch = self.holdings.batch(lease);
        let Some(holding) = self.holdings.get(lease) else { return };
        if self.orders.try_send(Order::Work { lease, job, batch, stop: self.stop.clone() }).is_ok() {
            holding.stage = Stage::Running;
            self.device = Device::Working(Running::new(lease, Duration::from_millis(holding.task.run_limit_ms)));
        }
    }

    /// The device tests itself.
    fn test(&mut self) {
        let admits = std::mem::take(&mut self.readmit);
        self.ahead = None;
        if self.orders.try_send(Order::Canary { seed: rand::rng().random(), stop: self.stop.clone() }).is_ok() {
            self.device = Device::testing(self.settings.canary, admits);
        }
    }

    /// The thread says something.
    pub(super) fn on_said(&mut self, said: Said) {
        match said {
            Said::Began { lease, ahead } => {
                let Some(running) = self.device.running().filter(|running| running.lease == lease) else { return };
                running.begin();
                self.busy.begin();
                self.ahead = ahead;
                let waiting: Vec<Job> = self.holdings.ready().map(|(_, job)| job).collect();
                waiting.iter().for_each(|job| self.build_ahead(job));
                if let Some(holding) = self.holdings.get(lease) {
                    let (agent, task) = (self.id.clone(), holding.task.id);
                    self.line.pulse(Pulse::Started { agent, task, lease });
                }
            }
            Said::Ended { lease, done } => self.ended(lease, done),
            Said::Sang(song) => self.sang(song),
        }
    }

    /// Builds for a task that waits, where that does not disturb the one that runs.
    pub(super) fn build_ahead(&self, job: &Job) {
        if let (Some((bundle, ahead)), Job::Model { bundle: of, .. }) = (&self.ahead, job)
            && *bundle == of.digest
        {
            job.build_with(ahead.as_ref());
        }
    }

    fn ended(&mut self, lease: Lease, done: Result<Reply, AgentError>) {
        self.busy.end();
        if done.is_err() || self.stop.asked() {
            self.ahead = None;
        }
        match self.free() {
            Device::Working(running) if running.lease == lease => self.conclude(&running, done),
            // An answer that nobody waits for any more: it is of no other task.
            other => tracing::info!(agent = %self.id, ?lease, ?other, "a late answer is dropped"),
        }
    }

    /// The thread waits for an order again. What was told to stop has stopped; the next order gets a stop of its own.
    fn free(&mut self) -> Device {
        if self.stop.asked() {
            self.stop = Stop::default();
        }
        std::mem::replace(&mut self.device, Device::Idle)
    }

    /// The time of what the device is at is over: it is told to end, or, told before, given up.
    pub(super) fn overdue(&mut self) {
        let told = match &mut self.device {
            Device::Working(running) => {
                let told = running.why().is_some();
                running.end(running.overdue(), &self.settings);
                told
            }
            Device::Testing { until, told, .. } => {
                *until = Instant::now() + self.settings.ending;
                std::mem::replace(told, true)
            }
            Device::Idle | Device::GivenUp => return,
        };
        if !told {
            return self.stop.ask();
        }
        self.busy.end();
        if let Device::Working(running) = std::mem::replace(&mut self.device, Device::GivenUp) {
            self.conclude(&running, Err(AgentError::Stopped));
        }
        self.quarantine(format!("its work did not end within {:.0?} after it was told to", self.settings.ending));
    }

    /// Says what came of a task.
    pub(super) fn conclude(&mut self, running: &Running, done: Result<Reply, AgentError>) {
        let Some(holding) = self.holdings.take(running.lease) else { return };
        let times = times(&holding, running);
        let reply = match (done, running.why()) {
            (_, Some(Why::Cancelled)) => return self.acknowledge(holding.receipt),
            (Err(_), Some(Why::Lost)) => return self.acknowledge(holding.receipt),
            (Ok(reply), _) => reply,
            (Err(AgentError::Stopped), Some(Why::Leaving)) => return self.hand_back(holding, "the agent leaves"),
            (Err(AgentError::Stopped), Some(Why::TimedOut)) => {
                let what = format!("it did not end within {} ms", holding.task.run_limit_ms);
                failure(FailureKind::TimedOut, what, String::new())
            }
            (Err(AgentError::Stopped), Some(Why::Unready)) => {
                let what = format!("the device was not ready within {} s", self.settings.preparing.as_secs());
                failure(FailureKind::Environment, what, "Look who uses it, and whether `kernelopt doctor` starts it.".into())
            }
            (Err(error), _) => failed(&error),
        };
        self.streak.count(&reply);
        self.report(holding, reply, times);
    }

    /// The device's test ended.
    fn sang(&mut self, song: Result<(), String>) {
        let Device::Testing { admits, .. } = self.free() else { return };
        self.telemetry.canary(&self.id, song.is_ok());
        match song {
            Ok(()) => {
                self.streak.clear();
                // Whoever was set aside meanwhile stays there.
                if admits && self.farewell.is_none() {
                    self.enter(AgentMode::Working);
                    self.pull();
                }
            }
            Err(what) => self.quarantine(format!("its own test failed: {what}")),
        }
    }
}

fn times(holding: &Holding, running: &Running) -> Times {
    let run = running.elapsed();
    Times {
        waited_ms: (holding.since.elapsed().saturating_sub(run)).as_millis() as u64,
        fetch_ms: holding.fetch.as_millis() as u64,
        run_ms: run.as_millis() as u64,
    }
}
