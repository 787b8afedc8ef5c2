use std::time::Duration;

use tracing::debug;

use crate::broker::backoff::Backoff;
use crate::broker::{Address, Broker, BrokerError, Frame};

/// How often a frame is published before its sender is told.
#[derive(Clone, Copy, Debug)]
pub struct Repetition {
    /// Tries in all.
    pub tries: u32,
    /// Wait after the first; waits double, and each is shortened by up to half at random.
    pub first: Duration,
    /// Longest wait.
    pub longest: Duration,
}

impl Default for Repetition {
    fn default() -> Self {
        Self { tries: 5, first: Duration::from_millis(200), longest: Duration::from_secs(5) }
    }
}

/// Publishes a frame, again after every failure that may pass, with the same id: it may then arrive twice.
///
/// # Errors
/// The last failure, or the first that does not pass.
pub async fn publish(broker: &dyn Broker, to: &Address, frame: &Frame, repetition: Repetition) -> Result<(), BrokerError> {
    let mut backoff = Backoff::new(repetition.first, repetition.longest);
    let mut tries = 1;
    loop {
        match broker.publish(to, frame.clone()).await {
            Err(error) if error.is_passing() && tries < repetition.tries => {
                debug!(%error, %to, id = frame.id, tries, "a frame is published again");
                tries += 1;
                tokio::time::sleep(backoff.wait()).await;
            }
            end => return end,
        }
    }
}
