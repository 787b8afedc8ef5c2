use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

/// What a frame costs beside its body.
const OVERHEAD_BYTES: usize = 64;

/// A frame in a queue.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) body: Bytes,
    /// How often it came back.
    pub(super) returns: u32,
}

impl Stored {
    pub(super) const fn new(body: Bytes) -> Self {
        Self { body, returns: 0 }
    }

    fn bytes(&self) -> usize {
        self.body.len() + OVERHEAD_BYTES
    }
}

/// What a queue does with more than it may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Refuses it at so many bytes; what comes back is always taken.
    Bytes(usize),
    /// Drops the oldest at so many frames.
    Frames(usize),
}

/// Frames in the order in which they came, more or less.
#[derive(Debug)]
pub(super) struct Queue {
    bound: Bound,
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<Stored>,
    bytes: usize,
}

impl Queue {
    pub(super) fn new(bound: Bound) -> Self {
        Self { bound, waiting: Mutex::default(), arrived: Notify::new() }
    }

    /// Appends a frame; false where there is no room.
    pub(super) fn push(&self, stored: Stored) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match self.bound {
            Bound::Bytes(most) if waiting.bytes + stored.bytes() > most => return false,
            Bound::Frames(most) if waiting.frames.len() >= most => drop(waiting.pop()),
            Bound::Bytes(_) | Bound::Frames(_) => {}
        }
        waiting.bytes += stored.bytes();
        waiting.frames.push_back(stored);
        drop(waiting);
        self.arrived.notify_one();
        true
    }

    /// Puts a frame that was delivered in front.
    pub(super) fn put_back(&self, stored: Stored) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.bytes += stored.bytes();
        waiting.frames.push_front(stored);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Waits for a frame. Cancelled, it has taken none.
    pub(super) async fn take(&self) -> Stored {
        loop {
            let arrived = self.arrived.notified();
            if let Some(stored) = self.pop() {
                return stored;
            }
            arrived.await;
        }
    }

    fn pop(&self) -> Option<Stored> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = waiting.pop()?;
        // Two arrivals while nobody waits are one word: whoever heard it passes it on.
        if !waiting.frames.is_empty() {
            self.arrived.notify_one();
        }
        Some(stored)
    }

    /// Frames that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).frames.len()
    }
}

impl Waiting {
    fn pop(&mut self) -> Option<Stored> {
        let stored = self.frames.pop_front()?;
        self.bytes -= stored.bytes();
        Some(stored)
    }
}
