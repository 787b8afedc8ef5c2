//! RabbitMQ: the suite on one private server, and what servers, queues, channels and networks do to it.

mod mends;
mod survives;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kernelopt_shared::broker::rabbit::{RabbitBroker, RabbitOptions};
use kernelopt_shared::broker::{Broker, BrokerState};
use kernelopt_test_servers::RabbitMq;

use crate::stand::{Stand, until};
use crate::suite::{self, for_each_check};

/// True where RabbitMQ's tests are left out, said aloud.
pub fn left_out() -> bool {
    let asked = std::env::var_os("KERNELOPT_TESTS_WITHOUT_RABBITMQ").is_some_and(|value| value == "1");
    if asked {
        eprintln!("left out: KERNELOPT_TESTS_WITHOUT_RABBITMQ=1");
    }
    asked
}

/// Options that notice faults soon.
pub fn options(url: &str, prefix: &str) -> RabbitOptions {
    RabbitOptions {
        prefix: prefix.to_owned(),
        connection_name: "kernelopt tests".into(),
        heartbeat: Duration::from_secs(2),
        longest_wait: Duration::from_secs(1),
        longest_quiet: Duration::from_secs(5),
        ..RabbitOptions::new(url.to_owned().into())
    }
}

/// A connection that is up.
pub async fn connect(url: &str, prefix: &str) -> Arc<dyn Broker> {
    let broker: Arc<dyn Broker> = Arc::new(RabbitBroker::start(options(url, prefix)).unwrap());
    until(&broker, |state| *state == BrokerState::Up).await;
    broker
}

/// A cluster of its own on a shared server.
struct Cluster<'a> {
    url: &'a str,
    prefix: String,
}

impl<'a> Cluster<'a> {
    fn new(url: &'a str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self { url, prefix: format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed)) }
    }
}

#[async_trait]
impl Stand for Cluster<'_> {
    async fn connect(&self) -> Arc<dyn Broker> {
        connect(self.url, &self.prefix).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_conforms() {
    if left_out() {
        return;
    }
    let server = RabbitMq::start().unwrap();
    let url = server.url();
    macro_rules! run {
        ($($check:ident),* $(,)?) => {
            $(
                let begun = std::time::Instant::now();
                suite::$check(&Cluster::new(&url)).await;
                eprintln!("{:6} ms  {}", begun.elapsed().as_millis(), stringify!($check));
            )*
        };
    }
    for_each_check!(run);
}
