//! Bad luck keeps the promises: it passes the suite without faults, and with them nothing confirmed is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernelopt_shared::broker::faults::{Faults, FaultyBroker};
use kernelopt_shared::broker::link::{Repetition, publish};
use kernelopt_shared::broker::memory::MemoryBroker;
use kernelopt_shared::broker::{Address, Broker, BrokerError, BrokerState};

use crate::stand::{SOON, Stand, agent, frame, lane, next, nothing, text};
use crate::suite::{self, for_each_check};

struct Lucky(MemoryBroker);

#[async_trait]
impl Stand for Lucky {
    async fn connect(&self) -> Arc<dyn Broker> {
        Arc::new(FaultyBroker::new(Arc::new(self.0.connect()), Faults::NONE, 0))
    }
}

macro_rules! tests {
    ($($check:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $check() {
                suite::$check(&Lucky(MemoryBroker::new())).await;
            }
        )*
    };
}
for_each_check!(tests);

/// What a sender with bad luck sends, and what another one with bad luck hears: how often each, in which order.
async fn run(seed: u64) -> (Vec<String>, u32) {
    let hub = MemoryBroker::new();
    let sender = FaultyBroker::new(Arc::new(hub.connect()), Faults { delay: 0.0, ..Faults::SOME }, seed);
    let receiver = FaultyBroker::new(Arc::new(hub.connect()), Faults { reorder: 0.3, ..Faults::NONE }, seed + 1);
    let repetition = Repetition { tries: 50, first: Duration::from_micros(1), longest: Duration::from_micros(1) };
    let mut subscription = receiver.subscribe(&lane(), 8).await.unwrap();
    for i in 0..200 {
        publish(&sender, &lane(), &frame(&format!("{i:03}")), repetition).await.unwrap();
    }
    let (mut heard, mut out_of_order) = (Vec::new(), 0);
    while let Ok(Some(delivery)) = tokio::time::timeout(Duration::from_millis(100), subscription.next()).await {
        let text = text(&delivery);
        out_of_order += u32::from(heard.last().is_some_and(|last| *last > text));
        heard.push(text);
        assert!(delivery.receipt.acknowledge().await);
    }
    (heard, out_of_order)
}

#[tokio::test]
async fn nothing_confirmed_is_lost_and_a_seed_is_a_history() {
    let (heard, out_of_order) = run(7).await;
    let distinct: BTreeSet<_> = heard.iter().collect();
    assert_eq!(distinct.len(), 200);
    assert!(heard.len() > 220, "duplicates and lost confirmations show: {}", heard.len());
    assert!(out_of_order > 10, "{out_of_order}");
    assert_eq!(run(7).await.0, heard);
    assert_ne!(run(8).await.0, heard);
}

#[tokio::test]
async fn a_cut_takes_everything_and_a_mending_gives_it_back() {
    let hub = MemoryBroker::new();
    let (one, other) = (FaultyBroker::new(Arc::new(hub.connect()), Faults::NONE, 1), hub.connect());
    let mut lead = one.lead().await.unwrap();
    let mut tasks = one.subscribe(&lane(), 2).await.unwrap();
    let _controls = one.subscribe(&agent("gpu7/cuda0"), 1).await.unwrap();
    other.publish(&lane(), frame("a")).await.unwrap();
    let held = next(&mut tasks).await;

    one.cut().await;
    assert!(matches!(*one.state().borrow(), BrokerState::Down { .. }));
    assert!(matches!(one.publish(&lane(), frame("b")).await, Err(BrokerError::Down(_))));
    tokio::time::timeout(SOON, other.lead()).await.expect("the turn did not pass on").unwrap();
    tokio::time::timeout(SOON, lead.lost()).await.expect("it still believes that it leads");
    let mut others = other.subscribe(&lane(), 1).await.unwrap();
    assert!(next(&mut others).await.redelivered);
    assert!(!held.receipt.acknowledge().await);
    drop(others);
    nothing(&mut tasks).await;

    one.mend();
    assert_eq!(text(&next(&mut tasks).await), "a");
    one.publish(&Address::Reports, frame("c")).await.unwrap();
}
