use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

use super::queue::{Queue, Stored};
use crate::broker::BrokerState;

/// Names a delivery of one connection.
pub(super) type HeldId = u64;

/// What one connection holds and loses when it ends.
pub(super) struct Connection {
    end: CancellationToken,
    state: watch::Sender<BrokerState>,
    holds: Mutex<Holds>,
}

#[derive(Default)]
struct Holds {
    closed: bool,
    deliveries: BTreeMap<HeldId, (Arc<Queue>, Stored)>,
    next: HeldId,
    turn: Option<OwnedSemaphorePermit>,
}

impl Default for Connection {
    fn default() -> Self {
        Self { end: CancellationToken::new(), state: watch::Sender::new(BrokerState::Up), holds: Mutex::default() }
    }
}

impl Connection {
    fn lock(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.end.is_cancelled()
    }

    pub(super) async fn closed(&self) {
        self.end.cancelled().await;
    }

    pub(super) fn state(&self) -> watch::Receiver<BrokerState> {
        self.state.subscribe()
    }

    /// Puts a delivery away until it is settled. `None` where the connection has ended meanwhile: the frame is in its queue again.
    pub(super) fn hold(&self, queue: Arc<Queue>, stored: Stored) -> Option<HeldId> {
        let mut holds = self.lock();
        if holds.closed {
            queue.put_back(stored);
            return None;
        }
        let id = holds.next;
        holds.next += 1;
        holds.deliveries.insert(id, (queue, stored));
        Some(id)
    }

    /// The delivery, to whoever settles it first.
    pub(super) fn release(&self, id: HeldId) -> Option<(Arc<Queue>, Stored)> {
        self.lock().deliveries.remove(&id)
    }

    /// Keeps the turn; false where the connection has ended meanwhile.
    pub(super) fn hold_turn(&self, turn: OwnedSemaphorePermit) -> bool {
        let mut holds = self.lock();
        if !holds.closed {
            holds.turn = Some(turn);
        }
        !holds.closed
    }

    pub(super) fn release_turn(&self) {
        self.lock().turn = None;
    }

    /// Ends it; returns what was unsettled.
    pub(super) fn close(&self) -> Vec<(Arc<Queue>, Stored)> {
        let mut holds = self.lock();
        holds.closed = true;
        holds.turn = None;
        let unsettled = std::mem::take(&mut holds.deliveries).into_values().collect();
        drop(holds);
        self.end.cancel();
        self.state.send_replace(BrokerState::Down { reason: "it was closed".into() });
        unsettled
    }
}
