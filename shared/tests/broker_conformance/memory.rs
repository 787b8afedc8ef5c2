//! The broker of one process.

use std::sync::Arc;

use async_trait::async_trait;
use kernelopt_shared::broker::memory::MemoryBroker;
use kernelopt_shared::broker::{Address, Broker, BrokerError, KEPT_FRAMES};

use crate::stand::{Stand, frame, lane, next, publish};
use crate::suite::{self, for_each_check};

struct Memory(MemoryBroker);

#[async_trait]
impl Stand for Memory {
    async fn connect(&self) -> Arc<dyn Broker> {
        Arc::new(self.0.connect())
    }
}

macro_rules! tests {
    ($($check:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $check() {
                suite::$check(&Memory(MemoryBroker::new())).await;
            }
        )*
    };
}
for_each_check!(tests);

#[tokio::test]
async fn a_full_lane_takes_no_more_until_one_is_settled() {
    let broker: Arc<dyn Broker> = Arc::new(MemoryBroker::with_capacity(200));
    publish(&broker, &lane(), &["a", "b", "c"]).await;
    assert!(matches!(broker.publish(&lane(), frame("d")).await, Err(BrokerError::Full(_))));
    let mut subscription = broker.subscribe(&lane(), 1).await.unwrap();
    let first = next(&mut subscription).await;
    publish(&broker, &lane(), &["d"]).await;
    // What comes back has its place, full or not.
    first.receipt.hand_back().await;
    assert!(next(&mut subscription).await.redelivered);
}

#[tokio::test]
async fn the_oldest_sign_of_life_is_forgotten_first() {
    let broker: Arc<dyn Broker> = Arc::new(MemoryBroker::new());
    let mut signs = broker.subscribe(&Address::Pulses, 1).await.unwrap();
    for i in 0..=KEPT_FRAMES {
        broker.publish(&Address::Pulses, frame(&i.to_string())).await.unwrap();
    }
    assert_eq!(next(&mut signs).await.body, "1");
}
