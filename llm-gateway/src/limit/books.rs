//! A ledger that waits: what several gateways share, and what one has for itself.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use tokio::time::Instant;

use super::account::Position;
use super::ledger::{AccountName, Denied, Ledger, TicketId, Wanted};
use super::{Amounts, Limits, Millis};

/// Books that cannot be read or written now. What was asked may have been done, and may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the shared limits cannot be reached: {0}")]
pub struct Unreachable(pub String);

/// Accounts and reservations in them, wherever they are kept. Each call is one step, seen by all as done or not done.
#[async_trait]
pub trait Books: Send + Sync {
    /// Reserves in all accounts, or in none and says why. The same ticket again changes nothing.
    ///
    /// # Errors
    /// See [`Unreachable`].
    async fn reserve(&self, ticket: TicketId, wanted: &Wanted) -> Result<Result<(), Denied>, Unreachable>;

    /// Charges what was used and gives the rest and the slots back. False where the ticket is settled already, or has expired: then what was
    /// reserved is spent.
    ///
    /// # Errors
    /// See [`Unreachable`].
    async fn settle(&self, ticket: TicketId, wanted: &Wanted, used: &Amounts) -> Result<bool, Unreachable>;

    /// Tickets whose calls are still in flight do not expire for a while.
    ///
    /// # Errors
    /// See [`Unreachable`].
    async fn renew(&self, tickets: &[TicketId]) -> Result<(), Unreachable>;

    /// One account.
    ///
    /// # Errors
    /// See [`Unreachable`].
    async fn position(&self, account: &AccountName, limits: &Limits) -> Result<Position, Unreachable>;
}

/// Books of this process alone. Its tickets do not expire: they end with it.
pub struct MemoryBooks {
    ledger: Mutex<Ledger>,
    origin: Instant,
}

impl Default for MemoryBooks {
    fn default() -> Self {
        Self { ledger: Mutex::default(), origin: Instant::now() }
    }
}

impl MemoryBooks {
    fn with<T>(&self, call: impl FnOnce(&mut Ledger, Millis) -> T) -> T {
        let now = Millis::try_from(self.origin.elapsed().as_millis()).unwrap_or(Millis::MAX);
        call(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    /// As [`Books::reserve`], at once.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn reserve_now(&self, ticket: TicketId, wanted: Wanted) -> Result<(), Denied> {
        self.with(|ledger, now| if ledger.holds(ticket) { Ok(()) } else { ledger.reserve(ticket, wanted, now) })
    }

    /// As [`Books::settle`], at once.
    pub fn settle_now(&self, ticket: TicketId, used: &Amounts) -> bool {
        self.with(|ledger, now| ledger.settle(ticket, used, now))
    }
}

#[async_trait]
impl Books for MemoryBooks {
    async fn reserve(&self, ticket: TicketId, wanted: &Wanted) -> Result<Result<(), Denied>, Unreachable> {
        Ok(self.reserve_now(ticket, wanted.clone()))
    }

    async fn settle(&self, ticket: TicketId, _wanted: &Wanted, used: &Amounts) -> Result<bool, Unreachable> {
        Ok(self.settle_now(ticket, used))
    }

    async fn renew(&self, _tickets: &[TicketId]) -> Result<(), Unreachable> {
        Ok(())
    }

    async fn position(&self, account: &AccountName, _limits: &Limits) -> Result<Position, Unreachable> {
        Ok(self.with(|ledger, now| ledger.position(account, now)))
    }
}
