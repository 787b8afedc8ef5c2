//! Any broker, counted.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tokio::sync::watch;

use super::{Address, Broker, BrokerError, BrokerState, Delivery, Depth, Frame, Leadership, Receipt, Subscription};
use crate::telemetry::BrokerMetrics;

/// A broker that says to its metrics what it carries.
pub struct Counted {
    broker: Arc<dyn Broker>,
    metrics: BrokerMetrics,
}

impl Counted {
    /// Counts what `broker` carries. Called within a runtime, which watches its connection.
    pub fn new(broker: Arc<dyn Broker>, metrics: BrokerMetrics) -> Self {
        tokio::spawn(watch_connection(broker.state(), metrics.clone()));
        Self { broker, metrics }
    }
}

/// Counts connections that were lost and made again, for as long as the broker is there.
async fn watch_connection(mut state: watch::Receiver<BrokerState>, metrics: BrokerMetrics) {
    let is_up = |state: &BrokerState| !matches!(state, BrokerState::Down { .. });
    let (mut up, mut was_up) = (is_up(&state.borrow_and_update()), false);
    while state.changed().await.is_ok() {
        was_up |= up;
        let now = is_up(&state.borrow_and_update());
        if now && !up && was_up {
            metrics.reconnected();
        }
        up = now;
    }
}

#[async_trait]
impl Broker for Counted {
    async fn publish(&self, to: &Address, frame: Frame) -> Result<(), BrokerError> {
        let (kind, began) = (frame.kind, Instant::now());
        let published = self.broker.publish(to, frame).await;
        match &published {
            Ok(()) => self.metrics.published(kind, began.elapsed()),
            Err(error) => self.metrics.not_published(error),
        }
        published
    }

    async fn subscribe(&self, to: &Address, prefetch: u16) -> Result<Box<dyn Subscription>, BrokerError> {
        let (frames, metrics) = (self.broker.subscribe(to, prefetch).await?, self.metrics.clone());
        Ok(Box::new(CountedSubscription { frames, metrics, kind: kind_at(to) }))
    }

    async fn depth(&self, of: &Address) -> Result<Option<Depth>, BrokerError> {
        self.broker.depth(of).await
    }

    async fn lead(&self) -> Result<Box<dyn Leadership>, BrokerError> {
        self.broker.lead().await
    }

    fn state(&self) -> watch::Receiver<BrokerState> {
        self.broker.state()
    }

    async fn close(&self) {
        self.broker.close().await;
    }
}

/// Kind of the messages that come at an address.
const fn kind_at(address: &Address) -> &'static str {
    match address {
        Address::Lane(_) => "task",
        Address::Reports => "report",
        Address::Pulses => "pulse",
        Address::Agent(_) | Address::Everyone => "control",
        Address::Dead => "dead",
    }
}

struct CountedSubscription {
    frames: Box<dyn Subscription>,
    metrics: BrokerMetrics,
    kind: &'static str,
}

#[async_trait]
impl Subscription for CountedSubscription {
    async fn next(&mut self) -> Option<Delivery> {
        let Delivery { body, redelivered, receipt } = self.frames.next().await?;
        self.metrics.received(self.kind, redelivered);
        let receipt = Box::new(CountedReceipt { receipt, metrics: self.metrics.clone(), kind: self.kind });
        Some(Delivery { body, redelivered, receipt })
    }
}

struct CountedReceipt {
    receipt: Box<dyn Receipt>,
    metrics: BrokerMetrics,
    kind: &'static str,
}

#[async_trait]
impl Receipt for CountedReceipt {
    async fn acknowledge(self: Box<Self>) -> bool {
        self.receipt.acknowledge().await
    }

    async fn hand_back(self: Box<Self>) {
        self.receipt.hand_back().await;
    }

    async fn refuse(self: Box<Self>) {
        self.metrics.dead_letter(self.kind);
        self.receipt.refuse().await;
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::broker::memory::MemoryBroker;
    use crate::telemetry::Registry;

    #[tokio::test]
    async fn what_it_carries_is_counted() {
        let registry = Registry::new();
        let broker = Counted::new(Arc::new(MemoryBroker::default()), BrokerMetrics::new(&registry).unwrap());
        let mut reports = broker.subscribe(&Address::Reports, 2).await.unwrap();
        let frame = || Frame { kind: "report", version: 1, id: "a".into(), body: Bytes::from_static(b"x") };
        broker.publish(&Address::Reports, frame()).await.unwrap();
        broker.publish(&Address::Reports, frame()).await.unwrap();
        reports.next().await.unwrap().receipt.acknowledge().await;
        reports.next().await.unwrap().receipt.refuse().await;
        let text = registry.text().unwrap();
        let value =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(|rest| rest.rsplit(' ').next().unwrap().to_owned());
        assert_eq!(value("kernelopt_broker_publish_seconds_count"), Some("2".into()), "{text}");
        assert_eq!(value("kernelopt_broker_received_total{kind=\"report\"}"), Some("2".into()), "{text}");
        assert_eq!(value("kernelopt_dead_letters_total{kind=\"report\"}"), Some("1".into()), "{text}");
    }
}
