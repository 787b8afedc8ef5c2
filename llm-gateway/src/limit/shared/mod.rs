//! Limits that several gateways share, and what holds while the place where they are kept is away.
//!
//! | limit | while Redis is away |
//! |---|---|
//! | budgets of money and tokens | closed: nothing is spent that cannot be counted |
//! | rates, calls at once | each gateway takes its part, the limit divided by the number of gateways that is set, at least 1 |
//!
//! A call to Redis has a short deadline and is tried twice. After that it is away, for a second and then longer each time, and a call in
//! that time does not wait for it. Coming and going are one line of the log each.

mod orders;
mod redis;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use self::orders::Orders;
pub use self::redis::RedisBooks;
use super::books::{Books, MemoryBooks, Unreachable};
use super::ledger::{Denied, TicketId, Wanted};
use super::{Amounts, Limits, Rate};

/// How long Redis is left alone after the first failure, and at most.
const FIRST_AWAY: Duration = Duration::from_secs(1);
const LONGEST_AWAY: Duration = Duration::from_secs(15);

/// The shared books as a gateway sees them.
pub struct SharedBooks {
    books: Arc<dyn Books>,
    /// Our part, while the books are away.
    part: MemoryBooks,
    gateways: u64,
    reach: Mutex<Reach>,
    orders: Orders,
}

/// Whether the books can be reached.
#[derive(Debug, Default)]
struct Reach {
    /// None: they can.
    away_until: Option<Instant>,
    away_for: Duration,
}

/// What came of a reservation.
pub enum Reserved {
    /// It is made, there.
    Taken(Place),
    /// It is not.
    Denied(Denied),
    /// The books are away, and a budget is among the limits; asking again may help after this time.
    Closed(Duration),
}

/// Where a reservation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the books.
    Books,
    /// In our part of them.
    Part,
}

impl SharedBooks {
    /// Shares `books` with others, `gateways` in all. `ticket` is how long a reservation there lives without being renewed. Called within a
    /// tokio runtime.
    pub fn new(books: Arc<dyn Books>, gateways: u32, ticket: Duration) -> Self {
        let orders = Orders::start(books.clone(), ticket);
        Self { books, part: MemoryBooks::default(), gateways: u64::from(gateways.max(1)), reach: Mutex::default(), orders }
    }

    /// Reserves in the books, or in our part of them.
    pub async fn reserve(&self, ticket: TicketId, wanted: &Wanted) -> Reserved {
        if self.may_try() {
            // A drop from here on, or an answer that did not come, may leave a ticket there that nobody knows.
            let mut maybe = Maybe { orders: &self.orders, ticket, wanted, there: true };
            for last in [false, true] {
                match self.books.reserve(ticket, wanted).await {
                    Ok(answer) => {
                        maybe.there = false;
                        self.reached();
                        return match answer {
                            Ok(()) => {
                                self.orders.open(ticket);
                                Reserved::Taken(Place::Books)
                            }
                            Err(denied) => Reserved::Denied(denied),
                        };
                    }
                    Err(error) if last => self.failed(&error),
                    Err(_) => {}
                }
            }
        }
        if wanted.accounts.iter().any(|(_, limits)| limits.budget.is_some() || limits.budget_tokens.is_some()) {
            return Reserved::Closed(self.back_in());
        }
        let part =
            Wanted { accounts: wanted.accounts.iter().map(|(name, limits)| (name.clone(), self.part_of(limits))).collect(), ..*wanted };
        match self.part.reserve_now(ticket, part) {
            Ok(()) => Reserved::Taken(Place::Part),
            Err(denied) => Reserved::Denied(denied),
        }
    }

    /// Settles a reservation. In the books it is done soon, and again until it is done or the ticket has expired.
    pub fn settle(&self, place: Place, ticket: TicketId, wanted: Wanted, used: Amounts) {
        match place {
            Place::Books => self.orders.settle(ticket, wanted, used),
            Place::Part => {
                self.part.settle_now(ticket, &used);
            }
        }
    }

    /// Waits until all that was settled is in the books, or for so long. True where it is.
    pub async fn flush(&self, within: Duration) -> bool {
        self.orders.flush(within).await
    }

    /// Whether the books could be reached when they were last needed.
    pub fn is_up(&self) -> bool {
        self.reach().away_until.is_none()
    }

    fn part_of(&self, limits: &Limits) -> Arc<Limits> {
        let part = |whole: u64| (whole / self.gateways).max(1);
        let rate = |rate: Rate| Rate { per_minute: part(rate.per_minute), burst: part(rate.burst) };
        Arc::new(Limits { rates: limits.rates.map(|of| of.map(rate)), concurrent: limits.concurrent.map(part), ..limits.clone() })
    }

    fn reach(&self) -> std::sync::MutexGuard<'_, Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True where the books are there, or it is time for somebody, this caller, to see whether they are.
    fn may_try(&self) -> bool {
        let mut reach = self.reach();
        match reach.away_until {
            None => true,
            Some(until) if Instant::now() < until => false,
            Some(_) => {
                reach.away_until = Some(Instant::now() + FIRST_AWAY);
                true
            }
        }
    }

    fn reached(&self) {
        let mut reach = self.reach();
        if reach.away_until.take().is_some() {
            reach.away_for = Duration::ZERO;
            tracing::info!("the shared limits can be reached again");
        }
    }

    fn failed(&self, error: &Unreachable) {
        let mut reach = self.reach();
        if reach.away_until.is_none() {
            tracing::warn!(%error, "budgets are closed, and of other limits a part is used, until the shared limits are back");
        }
        reach.away_for = (reach.away_for * 2).clamp(FIRST_AWAY, LONGEST_AWAY);
        reach.away_until = Some(Instant::now() + reach.away_for);
    }

    fn back_in(&self) -> Duration {
        let until = self.reach().away_until;
        until.map_or(FIRST_AWAY, |until| until.saturating_duration_since(Instant::now())).max(Duration::from_millis(100))
    }
}

/// A reservation of which it is not known whether it was made. Dropped, it is given back.
struct Maybe<'a> {
    orders: &'a Orders,
    ticket: TicketId,
    wanted: &'a Wanted,
    there: bool,
}

impl Drop for Maybe<'_> {
    fn drop(&mut self) {
        if self.there {
            self.orders.settle(self.ticket, self.wanted.clone(), Amounts::default());
        }
    }
}
