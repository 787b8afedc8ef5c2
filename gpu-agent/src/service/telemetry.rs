//! What the service says of itself to Prometheus and to probes.

use std::sync::Arc;

use kernelopt_shared::broker::BrokerState;
use kernelopt_shared::broker::link::{OnUnread, Unread};
use kernelopt_shared::message::{AgentId, Beat, Reply, Task, Times};
use kernelopt_shared::telemetry::health::Health;
use kernelopt_shared::telemetry::{AgentMetrics, BrokerMetrics};
use tokio::sync::watch;

/// What an agent needs to be ready.
pub const BROKER: &str = "broker";

/// Where it is said. Nothing is said by default.
#[derive(Clone, Default)]
pub struct Telemetry {
    /// Of the devices.
    pub agent: Option<Arc<AgentMetrics>>,
    /// Of the broker.
    pub broker: Option<BrokerMetrics>,
    /// Whether the process lives and can work: turned by every beat, ready while the broker ([`BROKER`]) is up.
    pub health: Option<Health>,
}

impl Telemetry {
    /// An agent exists.
    pub(super) fn expect(&self, agent: &AgentId) {
        self.agent.iter().for_each(|metrics| metrics.expect(agent));
    }

    /// It lives.
    pub(super) fn beat(&self, beat: &Beat, unaccepted: usize) {
        self.health.iter().for_each(Health::turned);
        if let Some(metrics) = &self.agent {
            metrics.beat(beat);
            metrics.reports_unaccepted(&beat.agent, unaccepted as u64);
        }
    }

    /// It has ended a task.
    pub(super) fn task_done(&self, agent: &AgentId, task: &Task, reply: &Reply, times: &Times) {
        self.agent.iter().for_each(|metrics| metrics.task_done(agent, &task.work, reply, times));
    }

    /// It has tested itself.
    pub(super) fn canary(&self, agent: &AgentId, passed: bool) {
        self.agent.iter().for_each(|metrics| metrics.canary(agent, passed));
    }

    /// Counts frames that nobody can read.
    pub(super) fn on_unread(&self) -> OnUnread {
        let metrics = self.broker.clone();
        Arc::new(move |unread: Unread<'_>| metrics.iter().for_each(|metrics| metrics.malformed(unread.error.reason())))
    }

    /// Follows the broker's state for as long as it changes.
    pub(super) async fn follow(self, mut state: watch::Receiver<BrokerState>) {
        loop {
            self.is(&state.borrow_and_update().clone());
            if state.changed().await.is_err() {
                return;
            }
        }
    }

    fn is(&self, state: &BrokerState) {
        self.broker.iter().for_each(|metrics| metrics.state(state));
        self.health.iter().for_each(|health| match state {
            BrokerState::Up => health.met(BROKER),
            BrokerState::Blocked { reason } | BrokerState::Down { reason } => health.unmet(BROKER, reason.clone()),
        });
    }
}
