//! How an agent stops taking tasks: for good, or until it is told to go on.

use std::time::Duration;

use kernelopt_shared::message::{AgentMode, Pulse};
use kernelopt_shared::task::AgentError;
use tokio::time::{Instant, timeout};

use super::device::Device;
use super::running::Why;
use super::settings::Settings;
use super::worker::Worker;

/// Time for the very last messages.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The way out.
pub(super) struct Farewell {
    since: Instant,
    hurried: bool,
    over: bool,
}

impl Farewell {
    /// When something must happen.
    pub(super) fn deadline(&self, settings: &Settings) -> Instant {
        self.since + if self.hurried { settings.farewell } else { settings.drain }
    }
}

impl Worker {
    /// Takes no more tasks, hands back what was not begun, ends what was, and leaves.
    pub(super) fn leave(&mut self, reason: &str) {
        if self.farewell.is_some() {
            return;
        }
        self.farewell = Some(Farewell { since: Instant::now(), hurried: false, over: false });
        self.stop_taking(AgentMode::Draining, reason);
        if let Device::Testing { .. } = self.device {
            self.stop.ask();
        }
    }

    /// Takes no more tasks until it is told to.
    pub(super) fn quarantine(&mut self, reason: String) {
        if self.farewell.is_none() {
            tracing::warn!(agent = %self.id, reason, "quarantined");
            self.readmit = false;
            if let Device::Testing { admits, .. } = &mut self.device {
                *admits = false;
            }
            let told = format!("the agent is quarantined: {reason}");
            self.stop_taking(AgentMode::Quarantined { reason }, &told);
        }
    }

    /// Takes tasks again if it passes its test.
    pub(super) fn readmit(&mut self) {
        if matches!(self.mode, AgentMode::Quarantined { .. }) {
            self.readmit = true;
            // One that cannot be tested yet says again why it is where it is.
            self.beat();
        }
    }

    fn stop_taking(&mut self, mode: AgentMode, reason: &str) {
        self.pulling = None;
        for holding in self.holdings.take_waiting() {
            self.hand_back(holding, reason);
        }
        self.enter(mode);
    }

    /// The time for leaving in peace is over, or that for leaving at all.
    pub(super) fn hurry(&mut self) {
        let Some(farewell) = &mut self.farewell else { return };
        if !std::mem::replace(&mut farewell.hurried, true) {
            if let Some(running) = self.device.running() {
                running.end(Why::Leaving, &self.settings);
                self.stop.ask();
            }
            return;
        }
        farewell.over = true;
        if let Device::Working(running) = std::mem::replace(&mut self.device, Device::GivenUp) {
            self.conclude(&running, Err(AgentError::Stopped));
        }
    }

    /// True where nothing is left to do. A report that the broker has and the coordinator has not yet answered is left at the end of the
    /// time; its task comes back to the lane, where its lease tells that it was done.
    pub(super) fn is_done(&self) -> bool {
        let settled = || self.holdings.is_empty() && self.errands.is_empty();
        self.farewell.as_ref().is_some_and(|farewell| farewell.over || settled())
    }

    /// The last messages.
    pub(super) async fn say_goodbye(mut self) {
        drop(self.holdings);
        let last = async {
            while self.errands.join_next().await.is_some() {}
            self.line.last(Pulse::Leaving { agent: self.id }).await;
        };
        if timeout(LAST_WORDS, last).await.is_err() {
            tracing::warn!("the broker did not take the last messages in time");
        }
    }
}
