//! All accounts. A reservation is in all of its accounts or in none, and a refused one leaves no trace.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::account::{Account, Position, When};
use super::spent::Taken;
use super::{Amounts, Kind, Limits, Meter, Millis};
use crate::names::{CredentialName, DeploymentId, JobName, KeyName, UpstreamName};

/// Accounts that are kept. Those of jobs are made by callers, and so are bounded.
const MOST_ACCOUNTS: usize = 100_000;
/// Idle accounts are looked for when there are so many.
const FIRST_SWEEP: usize = 1_000;

/// Whose account it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountName(Arc<str>);

impl AccountName {
    /// Of a key.
    pub fn key(key: &KeyName) -> Self {
        Self(format!("key {key}").into())
    }

    /// Of a job of a key.
    pub fn job(key: &KeyName, job: &JobName) -> Self {
        Self(format!("job {job} of {key}").into())
    }

    /// Of an upstream.
    pub fn upstream(upstream: &UpstreamName) -> Self {
        Self(format!("upstream {upstream}").into())
    }

    /// Of a credential.
    pub fn credential(upstream: &UpstreamName, credential: &CredentialName) -> Self {
        Self(format!("credential {upstream}/{credential}").into())
    }

    /// Of a deployment.
    pub fn deployment(deployment: &DeploymentId) -> Self {
        Self(format!("deployment {deployment}").into())
    }

    /// One that was written down.
    pub(super) fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A reservation, by the gateway that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId {
    /// Drawn by each process at its start.
    pub gateway: u64,
    /// Counted up by it.
    pub number: u64,
}

impl fmt::Display for TicketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:x}", self.gateway, self.number)
    }
}

/// What is wanted of which accounts.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The accounts, each with the limits that hold now.
    pub accounts: Vec<(AccountName, Arc<Limits>)>,
    /// What each is charged with.
    pub amounts: Amounts,
}

/// Why it cannot be had now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The account with the worst obstacle.
    pub account: AccountName,
    /// The worst obstacle.
    pub meter: Meter,
    /// When it may be out of the way.
    pub when: When,
    /// Milliseconds before which it cannot be, by the rates alone.
    pub at_least: Millis,
    /// All accounts that stand in the way.
    pub accounts: Vec<AccountName>,
}

/// A reservation that is not settled.
#[derive(Clone, Debug)]
struct Held {
    begun: Millis,
    wanted: Wanted,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    account: Account,
    /// Those of the last reservation.
    limits: Arc<Limits>,
    /// It was spent from before this process began, under limits that are not known yet.
    restored: bool,
}

/// All accounts and all reservations in them.
#[derive(Clone, Debug)]
pub struct Ledger {
    accounts: HashMap<AccountName, Kept>,
    held: HashMap<TicketId, Held>,
    sweep_at: usize,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { accounts: HashMap::new(), held: HashMap::new(), sweep_at: FIRST_SWEEP }
    }
}

impl Ledger {
    /// Reserves in all accounts, or in none.
    ///
    /// # Errors
    /// What stands in the way; nothing has changed.
    pub fn reserve(&mut self, ticket: TicketId, wanted: Wanted, now: Millis) -> Result<(), Denied> {
        self.look(&wanted, now)?;
        self.make_room(&wanted, now)?;
        for (name, limits) in &wanted.accounts {
            let kept = self.accounts.entry(name.clone()).or_default();
            (kept.limits, kept.restored) = (limits.clone(), false);
            kept.account.take(limits, &wanted.amounts, now);
        }
        self.held.insert(ticket, Held { begun: now, wanted });
        Ok(())
    }

    /// Whether it could be reserved.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn look(&self, wanted: &Wanted, now: Millis) -> Result<(), Denied> {
        let new = Account::default();
        let mut denied: Option<Denied> = None;
        for (name, limits) in &wanted.accounts {
            let account = self.accounts.get(name).map_or(&new, |kept| &kept.account);
            for (meter, when) in account.obstacles(limits, &wanted.amounts, now) {
                note(&mut denied, name, meter, when);
            }
        }
        denied.map_or(Ok(()), Err)
    }

    /// Charges what was used and gives the rest and the slots back. False where there is no such reservation, or none any more.
    pub fn settle(&mut self, ticket: TicketId, used: &Amounts, now: Millis) -> bool {
        let Some(Held { begun, wanted }) = self.held.remove(&ticket) else { return false };
        for (name, limits) in &wanted.accounts {
            if let Some(kept) = self.accounts.get_mut(name) {
                kept.account.settle(limits, begun, &wanted.amounts, used, now);
            }
        }
        true
    }

    /// Takes over what a provider says of a rate.
    pub fn observe(
        &mut self,
        name: &AccountName,
        limits: &Arc<Limits>,
        kind: Kind,
        limit: Option<u64>,
        remaining: Option<u64>,
        now: Millis,
    ) {
        if self.accounts.contains_key(name) || self.accounts.len() < MOST_ACCOUNTS {
            let kept = self.accounts.entry(name.clone()).or_default();
            kept.limits = limits.clone();
            kept.account.observe(limits, kind, limit, remaining, now);
        }
    }

    /// What was spent of an account before this process began.
    pub fn restore(&mut self, name: AccountName, taken: Taken) {
        let kept = self.accounts.entry(name).or_default();
        kept.account.restore(taken);
        kept.restored = true;
    }

    /// Spent and reserved of an account's budgets.
    pub fn taken(&self, name: &AccountName) -> Taken {
        self.accounts.get(name).map(|kept| kept.account.taken()).unwrap_or_default()
    }

    /// True where a reservation is not settled.
    pub fn holds(&self, ticket: TicketId) -> bool {
        self.held.contains_key(&ticket)
    }

    /// Reservations that are not settled.
    pub fn in_flight(&self) -> usize {
        self.held.len()
    }

    /// One account.
    pub fn position(&self, name: &AccountName, now: Millis) -> Position {
        self.accounts.get(name).map(|kept| kept.account.position(&kept.limits, now)).unwrap_or_default()
    }

    /// All accounts, in no order.
    pub fn positions(&self, now: Millis) -> impl Iterator<Item = (&AccountName, Position)> {
        self.accounts.iter().map(move |(name, kept)| (name, kept.account.position(&kept.limits, now)))
    }

    /// Forgets idle accounts before new ones are made, when there are many.
    fn make_room(&mut self, wanted: &Wanted, now: Millis) -> Result<(), Denied> {
        if self.accounts.len() < self.sweep_at {
            return Ok(());
        }
        self.accounts.retain(|_, kept| kept.restored || !kept.account.is_idle(&kept.limits, now));
        self.sweep_at = (self.accounts.len() * 2).max(FIRST_SWEEP);
        let new = wanted.accounts.iter().find(|(name, _)| !self.accounts.contains_key(name));
        match new {
            Some((name, _)) if self.accounts.len() >= MOST_ACCOUNTS => {
                self.sweep_at = self.accounts.len();
                let (account, meter, when) = (name.clone(), Meter::Accounts, When::Released);
                Err(Denied { accounts: vec![account.clone()], account, meter, when, at_least: 0 })
            }
            _ => Ok(()),
        }
    }
}

/// Adds an obstacle to those found so far.
pub(super) fn note(denied: &mut Option<Denied>, name: &AccountName, meter: Meter, when: When) {
    let first = || Denied { account: name.clone(), meter, when, at_least: 0, accounts: Vec::new() };
    let denied = denied.get_or_insert_with(first);
    if when > denied.when {
        (denied.account, denied.meter, denied.when) = (name.clone(), meter, when);
    }
    if let When::After(wait) = when {
        denied.at_least = denied.at_least.max(wait);
    }
    if denied.accounts.last() != Some(name) {
        denied.accounts.push(name.clone());
    }
}
