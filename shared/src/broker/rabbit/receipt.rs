use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicRejectOptions};
use lapin::{Acker, Channel};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::broker::Receipt;

/// The right to settle a delivery, on the channel that brought it. It keeps the channel open: a subscription may end before what it delivered is
/// settled.
pub(super) struct RabbitReceipt {
    open: Option<Open>,
    limit: Duration,
    runtime: Handle,
}

/// What an unsettled delivery holds.
pub(super) struct Open {
    pub(super) acker: Acker,
    pub(super) _channel: Channel,
    pub(super) _held: Arc<()>,
}

impl RabbitReceipt {
    pub(super) const fn new(open: Open, limit: Duration, runtime: Handle) -> Self {
        Self { open: Some(open), limit, runtime }
    }
}

#[async_trait]
impl Receipt for RabbitReceipt {
    async fn acknowledge(mut self: Box<Self>) -> bool {
        let Some(open) = self.open.take() else { return false };
        // False, too, where the channel is gone: the frame is somebody else's by now.
        matches!(timeout(self.limit, open.acker.ack(BasicAckOptions::default())).await, Ok(Ok(true)))
    }

    async fn hand_back(mut self: Box<Self>) {
        if let Some(open) = self.open.take() {
            give_back(open, self.limit).await;
        }
    }

    async fn refuse(mut self: Box<Self>) {
        if let Some(open) = self.open.take() {
            let options = BasicRejectOptions { requeue: false };
            let _ = timeout(self.limit, open.acker.reject(options)).await;
        }
    }
}

/// Where it fails, the broker gives the frame to others by itself: the channel is gone.
async fn give_back(open: Open, limit: Duration) {
    let options = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
    let _ = timeout(limit, open.acker.nack(options)).await;
}

impl Drop for RabbitReceipt {
    fn drop(&mut self) {
        if let Some(open) = self.open.take().filter(|open| open.acker.usable()) {
            self.runtime.spawn(give_back(open, self.limit));
        }
    }
}
