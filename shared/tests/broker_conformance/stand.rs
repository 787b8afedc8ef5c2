//! What a check stands on, and small words for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use kernelopt_shared::broker::{Address, Broker, BrokerState, Delivery, Frame, Subscription};
use kernelopt_shared::message::{AgentId, DeviceClass};

/// Longest wait for what must come.
pub const SOON: Duration = Duration::from_secs(20);
/// Wait for what must not come.
pub const A_WHILE: Duration = Duration::from_millis(400);

/// A broker to which connections can be made.
#[async_trait]
pub trait Stand: Send + Sync {
    /// A connection that is up.
    async fn connect(&self) -> Arc<dyn Broker>;
}

pub fn lane() -> Address {
    Address::Lane(DeviceClass::parse("nvidia-h200-139g-sm90").unwrap())
}

pub fn agent(name: &str) -> Address {
    Address::Agent(AgentId::parse(name).unwrap())
}

pub fn frame(text: &str) -> Frame {
    Frame { kind: "task", version: 1, id: text.to_owned(), body: Bytes::copy_from_slice(text.as_bytes()) }
}

pub fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.body.to_vec()).unwrap()
}

/// The next delivery, which must come.
pub async fn next(subscription: &mut Box<dyn Subscription>) -> Delivery {
    tokio::time::timeout(SOON, subscription.next()).await.expect("nothing arrived").expect("the subscription ended")
}

/// Nothing more may come.
pub async fn nothing(subscription: &mut Box<dyn Subscription>) {
    if let Ok(Some(delivery)) = tokio::time::timeout(A_WHILE, subscription.next()).await {
        panic!("{:?} arrived", text(&delivery));
    }
}

/// Takes and acknowledges `count` frames; in any order.
pub async fn take(subscription: &mut Box<dyn Subscription>, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    for _ in 0..count {
        let delivery = next(subscription).await;
        texts.push(text(&delivery));
        assert!(delivery.receipt.acknowledge().await);
    }
    texts.sort();
    texts
}

pub async fn publish(broker: &Arc<dyn Broker>, to: &Address, texts: &[&str]) {
    for text in texts {
        broker.publish(to, frame(text)).await.unwrap();
    }
}

/// Waits until the broker's state is so.
pub async fn until(broker: &Arc<dyn Broker>, is: impl Fn(&BrokerState) -> bool) {
    let mut state = broker.state();
    let reached = tokio::time::timeout(SOON, state.wait_for(|state| is(state))).await.is_ok();
    assert!(reached, "it is still {:?}", broker.state().borrow());
}

/// Waits until `holds`, looking again and again.
pub async fn eventually<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let begun = tokio::time::Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < SOON, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
