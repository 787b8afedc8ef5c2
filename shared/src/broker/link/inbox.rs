use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;

use super::unread::UnreadLog;
use crate::broker::{Delivery, Receipt, Subscription};
use crate::wire::{self, Message, WireError};

/// Size beyond which a message is read on a thread for work that blocks: heartbeats share the others.
const LARGE_BYTES: usize = 256 << 10;

/// Messages of one address as they arrive.
pub struct Inbox<M> {
    subscription: Box<dyn Subscription>,
    unread: Arc<UnreadLog>,
    message: PhantomData<fn() -> M>,
}

/// A message that arrived; it is the receiver's until settled. Dropped unsettled it comes back.
pub struct Received<M> {
    /// What was said.
    pub message: M,
    /// True where the broker has delivered it before.
    pub redelivered: bool,
    /// Settles it.
    pub receipt: Box<dyn Receipt>,
}

impl<M: Message> Inbox<M> {
    pub(super) fn new(subscription: Box<dyn Subscription>, unread: Arc<UnreadLog>) -> Self {
        Self { subscription, unread, message: PhantomData }
    }

    /// The next message; `None` once the broker was closed. What cannot be read is refused and counted, and the next one comes. May be
    /// cancelled: nothing is lost.
    pub async fn next(&mut self) -> Option<Received<M>> {
        loop {
            let Delivery { body, redelivered, receipt } = self.subscription.next().await?;
            match read(body).await {
                Ok(message) => return Some(Received { message, redelivered, receipt }),
                Err(error) => {
                    self.unread.note(M::KIND, &error);
                    receipt.refuse().await;
                }
            }
        }
    }
}

async fn read<M: Message>(body: Bytes) -> Result<M, WireError> {
    if body.len() < LARGE_BYTES {
        return wire::decode(&body);
    }
    match tokio::task::spawn_blocking(move || wire::decode(&body)).await {
        Ok(result) => result,
        // A task that blocks is not cancelled, so it panicked, and so would this frame's next reader.
        Err(e) => Err(WireError::Payload { kind: M::KIND, what: e.to_string() }),
    }
}
