//! What becomes of tasks and commands that arrive.

use std::sync::Arc;
use std::time::Duration;

use kernelopt_shared::broker::Receipt;
use kernelopt_shared::message::{AgentMode, Control, Lease, Reply, Report, Task, TaskId, Times};
use tokio::time::{Instant, timeout};

use super::fetch::FetchError;
use super::holding::{Errand, Holding, Stage};
use super::job::Job;
use super::reply::{handed_back, unusable};
use super::running::Why;
use super::worker::{COURTESY, Fetched, Worker};

/// Tasks held at a time that the coordinator gave to this very agent. It gives one at a time; more are handed back.
const ASSIGNED: usize = 4;

impl Worker {
    /// A task arrives: from the lane with a `receipt`, or from the coordinator itself.
    pub(super) fn on_task(&mut self, task: Task, receipt: Option<Box<dyn Receipt>>) {
        if task.epoch < self.epoch || self.memory.is_cancelled(&task) {
            // A coordinator that leads no more, or a result that nobody wants: the one that leads knows, and needs no answer.
            tracing::debug!(agent = %self.id, task = %task.id, epoch = task.epoch, "refused");
            return self.acknowledge(receipt);
        }
        self.epoch = self.epoch.max(task.epoch);
        if let Some(held) = self.holdings.get(task.lease) {
            // One copy stands for the task. The other is either settled by this or was given up by the broker before.
            let copy = if receipt.is_some() { std::mem::replace(&mut held.receipt, receipt) } else { None };
            return self.acknowledge(copy);
        }
        match self.holdings.other_lease(&task) {
            // Given out again since: this copy was long under way.
            Some(newer) if newer > task.lease => return self.acknowledge(receipt),
            Some(older) if self.holdings.get(older).is_some_and(|held| held.is_waiting()) => self.settle(older),
            _ => {}
        }
        let holding = Holding { task, receipt, since: Instant::now(), fetch: Duration::ZERO, stage: Stage::Running, built: false };
        match self.memory.report_of(&holding.task).cloned() {
            Some(report) => self.say_again(holding, report),
            None if self.mode != AgentMode::Working => self.hand_back(holding, "it takes no tasks now"),
            None if holding.receipt.is_none() && self.holdings.assigned() >= ASSIGNED => self.hand_back(holding, "it has enough to do"),
            None => self.fetch(holding),
        }
    }

    fn say_again(&mut self, mut holding: Holding, report: Report) {
        self.repeat(&mut holding, report);
        self.holdings.add(holding);
    }

    /// Begins to fetch what a task needs.
    fn fetch(&mut self, mut holding: Holding) {
        let (fetch, task, events) = (Arc::clone(&self.fetch), holding.task.clone(), self.events.clone());
        let patience = self.settings.fetching;
        let fetching = async move {
            let started = Instant::now();
            let got = Job::fetch(&task, fetch.as_ref(), patience).await;
            // Nobody listens any more when the worker is gone.
            let _ = events.send(Fetched { lease: task.lease, got, took: started.elapsed() }).await;
        };
        holding.stage = Stage::Fetching { _on_its_way: Errand(self.errands.spawn(fetching)) };
        self.holdings.add(holding);
    }

    /// What a task needs is here, or will not be.
    pub(super) fn on_fetched(&mut self, Fetched { lease, got, took }: Fetched) {
        let Some(holding) = self.holdings.get(lease).filter(|holding| matches!(holding.stage, Stage::Fetching { .. })) else { return };
        holding.fetch = took;
        match got {
            Ok(job) => {
                holding.stage = Stage::Ready(job.clone());
                self.build_ahead(&job);
            }
            Err(error @ FetchError::Unusable(_)) => self.give_up(lease, unusable(&error)),
            Err(error @ FetchError::Unreachable(_)) => {
                if let Some(holding) = self.holdings.take(lease) {
                    self.hand_back(holding, &error.to_string());
                }
            }
        }
    }

    /// A task ends before it began.
    fn give_up(&mut self, lease: Lease, reply: Reply) {
        let Some(holding) = self.holdings.take(lease) else { return };
        let times = Times { waited_ms: holding.since.elapsed().as_millis() as u64, ..Times::default() };
        self.streak.count(&reply);
        self.report(holding, reply, times);
    }

    /// The coordinator says something.
    pub(super) fn on_control(&mut self, control: Control) {
        tracing::debug!(agent = %self.id, ?control, "control");
        match control {
            Control::Leading { epoch } => {
                self.epoch = self.epoch.max(epoch);
                self.beat();
            }
            Control::Accepted { task, lease } => self.accepted(task, lease),
            Control::Assigned(task) => self.on_task(*task, None),
            Control::Cancel { lease } => {
                self.memory.cancel(lease);
                self.cancel(lease, Why::Lost);
            }
            Control::CancelJob { job } => {
                self.holdings.of_job(&job).into_iter().for_each(|lease| self.cancel(lease, Why::Cancelled));
                self.memory.cancel_job(job);
            }
            Control::Drain => self.leave("the agent is told to drain"),
            Control::Quarantine { reason } => self.quarantine(reason),
            Control::Readmit => self.readmit(),
        }
    }

    /// The coordinator has a report on its disk: now the broker may forget the task.
    fn accepted(&mut self, task: TaskId, lease: Lease) {
        let reported = |holding: &&mut Holding| matches!(holding.stage, Stage::Reporting { .. }) && holding.task.id == task;
        if self.holdings.get(lease).filter(reported).is_some() {
            self.settle(lease);
        }
    }

    /// Forgets a task, and lets the broker forget it.
    pub(super) fn settle(&mut self, lease: Lease) {
        if let Some(holding) = self.holdings.take(lease) {
            self.acknowledge(holding.receipt);
        }
    }

    /// A task is to be left. Its lease is held for as long as the device is still at it. Of a job that was cancelled nothing comes back; a
    /// result that is there when only the lease is lost goes out all the same, and is answered.
    fn cancel(&mut self, lease: Lease, why: Why) {
        match self.device.running() {
            Some(running) if running.lease == lease => {
                running.end(why, &self.settings);
                return self.stop.ask();
            }
            _ => {}
        }
        let is_told = self.holdings.get(lease).is_some_and(|holding| matches!(holding.stage, Stage::Reporting { .. }));
        if !(is_told && why == Why::Lost) {
            self.settle(lease);
        }
    }

    /// Gives a task that was not begun back to the broker, and says so.
    pub(super) fn hand_back(&mut self, holding: Holding, reason: &str) {
        let times = Times { waited_ms: holding.since.elapsed().as_millis() as u64, ..Times::default() };
        let report = self.report_of(&holding.task, handed_back(reason), times);
        self.telemetry.task_done(&self.id, &holding.task, &report.reply, &report.times);
        let line = Arc::clone(&self.line);
        self.errands.spawn(async move {
            line.report(&report).await;
            if let Some(receipt) = holding.receipt {
                // What is not handed back in time comes back by itself once this agent is gone.
                let _ = timeout(COURTESY, receipt.hand_back()).await;
            }
        });
    }
}
