//! The test's own end of the broker: it says what no process of ours would say.

use std::sync::Arc;
use std::time::Duration;

use kernelopt_shared::broker::rabbit::{RabbitBroker, RabbitOptions};
use kernelopt_shared::broker::{Address, Broker, Delivery, Frame};
use kernelopt_shared::wire::{self, Message};
use tokio::runtime::Runtime;

/// Longest that something expected may take.
const SOON: Duration = Duration::from_secs(20);

/// A connection.
pub struct Wire {
    runtime: Runtime,
    pub broker: Arc<RabbitBroker>,
}

impl Wire {
    /// Connects to the broker at `url`.
    pub fn connect(url: &str) -> Self {
        let runtime = Runtime::new().expect("threads");
        let broker =
            runtime.block_on(async { RabbitBroker::start(RabbitOptions::new(url.to_owned().into())) }).expect("a broker's address");
        Self { runtime, broker: Arc::new(broker) }
    }

    /// Runs something on this end.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(SOON, work).await.expect("the broker answers in time") })
    }

    /// Publishes a frame as it is.
    pub fn publish(&self, to: &Address, frame: Frame) {
        self.block_on(self.broker.publish(to, frame)).expect("the broker takes it");
    }

    /// Says something.
    pub fn send<M: Message>(&self, to: &Address, message: &M) {
        self.publish(to, wire::encode(message).expect("it can be bytes"));
    }

    /// Frames that wait at an address.
    pub fn ready(&self, at: &Address) -> u64 {
        self.block_on(self.broker.depth(at)).expect("the broker answers").map_or(0, |depth| depth.ready)
    }

    /// Takes frames that others would have had, until `enough` of them.
    pub fn intercept(&self, at: &Address, enough: usize) -> Vec<Delivery> {
        self.block_on(async {
            let prefetch = u16::try_from(enough).expect("a few");
            let mut frames = self.broker.subscribe(at, prefetch).await.expect("the broker lets us listen");
            let mut taken = Vec::new();
            while taken.len() < enough {
                taken.push(frames.next().await.expect("the broker is open"));
            }
            taken
        })
    }
}
