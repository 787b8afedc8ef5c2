//! What is yet to be written into the shared books: settlements, and that calls are still in flight.
//!
//! A permit is dropped wherever its call ends, and a drop cannot wait. So it leaves an order, and one task writes orders down, in their order,
//! each until it is done or its ticket must have expired.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::limit::Amounts;
use crate::limit::books::Books;
use crate::limit::ledger::{TicketId, Wanted};

/// Wait before an order is tried again.
const AGAIN: Duration = Duration::from_millis(200);

struct Order {
    ticket: TicketId,
    wanted: Wanted,
    used: Amounts,
    since: Instant,
}

/// The orders, for those who give them.
pub(super) struct Orders {
    /// As many as there were calls in flight, at most.
    sender: mpsc::UnboundedSender<Order>,
    open: Arc<Mutex<HashSet<TicketId>>>,
    /// Orders that were given and are not done.
    left: watch::Sender<usize>,
}

impl Orders {
    /// Starts the tasks that carry them out; they end with this value, after what was ordered by then.
    pub fn start(books: Arc<dyn Books>, ticket: Duration) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (open, left) = (Arc::default(), watch::Sender::new(0));
        tokio::spawn(settle(books.clone(), receiver, left.clone(), ticket));
        tokio::spawn(renew(books, Arc::downgrade(&open), ticket));
        Self { sender, open, left }
    }

    /// A ticket is in the books, and renewed from now on.
    pub fn open(&self, ticket: TicketId) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(ticket);
    }

    /// A ticket is to be settled.
    pub fn settle(&self, ticket: TicketId, wanted: Wanted, used: Amounts) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&ticket);
        self.left.send_modify(|left| *left += 1);
        // The receiver ends only with us.
        let _ = self.sender.send(Order { ticket, wanted, used, since: Instant::now() });
    }

    /// Waits until all is done, or for so long.
    pub async fn flush(&self, within: Duration) -> bool {
        let mut left = self.left.subscribe();
        timeout(within, left.wait_for(|left| *left == 0)).await.is_ok()
    }
}

async fn settle(books: Arc<dyn Books>, mut orders: mpsc::UnboundedReceiver<Order>, left: watch::Sender<usize>, ticket: Duration) {
    while let Some(order) = orders.recv().await {
        let expires = order.since + ticket;
        while books.settle(order.ticket, &order.wanted, &order.used).await.is_err() && Instant::now() < expires {
            sleep(AGAIN).await;
        }
        left.send_modify(|left| *left = left.saturating_sub(1));
    }
}

async fn renew(books: Arc<dyn Books>, open: std::sync::Weak<Mutex<HashSet<TicketId>>>, ticket: Duration) {
    let mut ticks = interval(ticket / 4);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(open) = open.upgrade() else { return };
        let tickets: Vec<_> = open.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        drop(open);
        // Whether the books can be reached is seen, and said, by those who reserve.
        let _ = books.renew(&tickets).await;
    }
}
