use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::receipt::FaultyReceipt;
use super::{Line, Luck};
use crate::broker::{Address, Broker, Delivery, Subscription};

/// How long a frame that is held back waits for one to be overtaken by.
const OVERTAKING: Duration = Duration::from_millis(5);

/// A subscription that reorders, and that a cut empties and a mending makes anew.
pub(super) struct FaultySubscription {
    inner: Arc<dyn Broker>,
    address: Address,
    prefetch: u16,
    live: Option<Box<dyn Subscription>>,
    /// Frames that have arrived and not been given out, first those that go first.
    waiting: VecDeque<Delivery>,
    line: Arc<Line>,
    luck: Arc<Luck>,
    reorder: f64,
}

impl FaultySubscription {
    pub(super) fn new(
        inner: Arc<dyn Broker>,
        address: Address,
        prefetch: u16,
        live: Box<dyn Subscription>,
        line: Arc<Line>,
        luck: Arc<Luck>,
        reorder: f64,
    ) -> Self {
        Self { inner, address, prefetch, live: Some(live), waiting: VecDeque::new(), line, luck, reorder }
    }

    /// One delivery from beneath, with bad luck in its order.
    async fn draw(&mut self) -> Option<Delivery> {
        if let Some(waiting) = self.waiting.pop_front() {
            return Some(waiting);
        }
        let live = self.live.as_mut()?;
        let first = live.next().await?;
        if !self.luck.strikes(self.reorder) {
            return Some(first);
        }
        // Kept here, and not in this call, which may be cancelled.
        self.waiting.push_back(first);
        match tokio::time::timeout(OVERTAKING, live.next()).await {
            Ok(Some(second)) => Some(second),
            Ok(None) | Err(_) => self.waiting.pop_front(),
        }
    }
}

#[async_trait]
impl Subscription for FaultySubscription {
    async fn next(&mut self) -> Option<Delivery> {
        loop {
            let line = self.line.clone();
            line.until(false).await;
            if self.live.is_none() {
                // What beneath refuses now, it refused at the beginning.
                self.live = Some(self.inner.subscribe(&self.address, self.prefetch).await.ok()?);
            }
            tokio::select! {
                biased;
                () = line.until(true) => {
                    self.live = None;
                    self.waiting.clear();
                }
                drawn = self.draw() => {
                    let Delivery { body, redelivered, receipt } = drawn?;
                    return Some(Delivery { body, redelivered, receipt: Box::new(FaultyReceipt::new(self.line.clone(), receipt)) });
                }
            }
        }
    }
}
