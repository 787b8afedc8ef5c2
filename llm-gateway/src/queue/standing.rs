//! The queue and the books, to be shown.

use std::collections::BTreeMap;

use super::state::State;
use crate::limit::Millis;
use crate::limit::account::Position;
use crate::limit::gate::Gate;
use crate::limit::ledger::AccountName;
use crate::names::{DeploymentId, JobName, KeyName};

/// What waits, what is in flight, what is spent.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Requests that wait.
    pub waiting: usize,
    /// Of each job that has some: how many wait.
    pub jobs: BTreeMap<(KeyName, JobName), usize>,
    /// Reservations that are not settled.
    pub in_flight: usize,
    /// Each deployment that was ever used.
    pub deployments: BTreeMap<DeploymentId, Open>,
    /// Each account that is kept.
    pub accounts: BTreeMap<AccountName, Position>,
}

/// A deployment's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// It takes calls without reserve.
    pub open: bool,
    /// Calls in flight.
    pub in_flight: u64,
}

impl Standing {
    pub(super) fn of(state: &State, now: Millis) -> Self {
        let open = |gate: &Gate| Open { open: gate.is_open(now), in_flight: gate.flying() };
        Self {
            waiting: state.queue.len(),
            jobs: state.queue.jobs().map(|(job, count)| (job.clone(), count)).collect(),
            in_flight: state.books.ledger.in_flight(),
            deployments: state.books.gates.iter().map(|(id, gate)| (id.clone(), open(gate))).collect(),
            accounts: state.books.ledger.positions(now).map(|(name, position)| (name.clone(), position)).collect(),
        }
    }
}
