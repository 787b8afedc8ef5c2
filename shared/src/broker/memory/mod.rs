//! The broker of one process: what the embedded composition talks over, with the promises that RabbitMQ makes.
//!
//! A [`MemoryBroker`] is one connection; [`MemoryBroker::connect`] makes another to the same hub. Nothing survives the process: whatever must
//! is in the journal.

mod connection;
mod hub;
mod queue;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{Address, Broker, BrokerError, BrokerState, Delivery, Depth, FULL_BYTES, Frame, Leadership, Receipt, Subscription, check_size};
use connection::{Connection, HeldId};
use hub::{Ear, Hub};
use queue::Stored;

/// One connection to a broker in memory.
pub struct MemoryBroker {
    hub: Arc<Hub>,
    connection: Arc<Connection>,
}

impl Default for MemoryBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryBroker {
    /// A broker of its own, and the first connection to it.
    pub fn new() -> Self {
        Self::with_capacity(FULL_BYTES)
    }

    /// The same, where a durable queue is full at `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { hub: Arc::new(Hub::new(bytes)), connection: Arc::default() }
    }

    /// Another connection to the same broker.
    pub fn connect(&self) -> Self {
        Self { hub: self.hub.clone(), connection: Arc::default() }
    }

    fn open(&self) -> Result<(), BrokerError> {
        if self.connection.is_closed() { Err(BrokerError::Down("it was closed".into())) } else { Ok(()) }
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    async fn publish(&self, to: &Address, frame: Frame) -> Result<(), BrokerError> {
        self.open()?;
        check_size(&frame)?;
        self.hub.publish(to, Stored::new(frame.body))
    }

    async fn subscribe(&self, to: &Address, prefetch: u16) -> Result<Box<dyn Subscription>, BrokerError> {
        self.open()?;
        let ear = self.hub.listen(to)?;
        let prefetch = Arc::new(Semaphore::new(usize::from(prefetch.max(1))));
        Ok(Box::new(MemorySubscription { hub: self.hub.clone(), connection: self.connection.clone(), ear, prefetch }))
    }

    async fn depth(&self, of: &Address) -> Result<Option<Depth>, BrokerError> {
        self.open()?;
        Ok(self.hub.depth(of))
    }

    async fn lead(&self) -> Result<Box<dyn Leadership>, BrokerError> {
        let closed = || BrokerError::Down("it was closed".into());
        let turn = tokio::select! {
            () = self.connection.closed() => return Err(closed()),
            turn = self.hub.turn() => turn.ok_or_else(closed)?,
        };
        if !self.connection.hold_turn(turn) {
            return Err(closed());
        }
        Ok(Box::new(MemoryLeadership { connection: self.connection.clone() }))
    }

    fn state(&self) -> watch::Receiver<BrokerState> {
        self.connection.state()
    }

    async fn close(&self) {
        for (queue, stored) in self.connection.close() {
            self.hub.put_back(&queue, stored);
        }
    }
}

struct MemorySubscription {
    hub: Arc<Hub>,
    connection: Arc<Connection>,
    ear: Ear,
    prefetch: Arc<Semaphore>,
}

#[async_trait]
impl Subscription for MemorySubscription {
    async fn next(&mut self) -> Option<Delivery> {
        let next = async {
            let room = self.prefetch.clone().acquire_owned().await.ok()?;
            Some((room, self.ear.queue().take().await))
        };
        let (room, stored) = tokio::select! {
            biased;
            () = self.connection.closed() => return None,
            next = next => next?,
        };
        let (body, redelivered) = (stored.body.clone(), stored.returns > 0);
        let Some(id) = self.connection.hold(self.ear.queue().clone(), stored) else {
            // Closed in this very moment: `hold` has put nothing away, and the frame goes back.
            return None;
        };
        let receipt = Box::new(MemoryReceipt { hub: self.hub.clone(), connection: self.connection.clone(), id, _room: room });
        Some(Delivery { body, redelivered, receipt })
    }
}

struct MemoryReceipt {
    hub: Arc<Hub>,
    connection: Arc<Connection>,
    id: HeldId,
    /// The place in the prefetch that the delivery takes.
    _room: OwnedSemaphorePermit,
}

#[async_trait]
impl Receipt for MemoryReceipt {
    async fn acknowledge(self: Box<Self>) -> bool {
        self.connection.release(self.id).is_some()
    }

    async fn hand_back(self: Box<Self>) {
        drop(self);
    }

    async fn refuse(self: Box<Self>) {
        if let Some((queue, stored)) = self.connection.release(self.id) {
            self.hub.bury(&queue, stored);
        }
    }
}

impl Drop for MemoryReceipt {
    fn drop(&mut self) {
        if let Some((queue, stored)) = self.connection.release(self.id) {
            self.hub.put_back(&queue, stored);
        }
    }
}

struct MemoryLeadership {
    connection: Arc<Connection>,
}

#[async_trait]
impl Leadership for MemoryLeadership {
    async fn lost(&mut self) {
        self.connection.closed().await;
    }
}

impl Drop for MemoryLeadership {
    fn drop(&mut self) {
        self.connection.release_turn();
    }
}
