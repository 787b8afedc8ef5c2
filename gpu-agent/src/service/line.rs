//! One device's end of the broker.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kernelopt_shared::broker::{Address, Broker, BrokerError, Delivery, Receipt, Subscription};
use kernelopt_shared::message::{AgentId, Control, DeviceClass, FailureKind, Pulse, Report, Task};
use kernelopt_shared::wire::{self, Message};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::ServiceError;
use super::holding::Errand;
use super::reply::failure;
use super::settings::PREFETCH;

/// Signs of life that may wait while the broker is slow; what is too many is dropped, the next one says it again.
const PULSES: usize = 32;
/// Commands that the broker may have under way.
const COMMANDS: u16 = 64;
/// Longest that a sign of life may take.
const PULSE_LIMIT: Duration = Duration::from_secs(5);
/// Longest that a report may take to be confirmed before it is sent again.
const REPORT_LIMIT: Duration = Duration::from_secs(10);
/// Between two tries to subscribe.
const RETRY: Duration = Duration::from_secs(1);

/// What arrives.
pub(super) enum Heard {
    /// Work, and what settles it.
    Task(Task, Box<dyn Receipt>),
    /// A command.
    Control(Control),
    /// Nothing will arrive any more.
    Lost(ServiceError),
}

/// A sign of life on its way, and who waits until it is sent.
type Outgoing = (Pulse, Option<oneshot::Sender<()>>);

/// The end of one device.
pub(super) struct Line {
    broker: Arc<dyn Broker>,
    id: AgentId,
    pulses: mpsc::Sender<Outgoing>,
    _sender: Errand,
}

impl Line {
    /// Speaks for `id`.
    pub(super) fn new(broker: Arc<dyn Broker>, id: AgentId) -> Self {
        let (pulses, outbox) = mpsc::channel(PULSES);
        let sender = tokio::spawn(send_pulses(Arc::clone(&broker), outbox));
        Self { broker, id, pulses, _sender: Errand(sender.abort_handle()) }
    }

    /// Sends a sign of life, in order with the others, and does not wait.
    pub(super) fn pulse(&self, pulse: Pulse) {
        if self.pulses.try_send((pulse, None)).is_err() {
            tracing::debug!(agent = %self.id, "a sign of life was dropped: the broker is slow");
        }
    }

    /// Sends the last one, and waits until all have gone.
    pub(super) async fn last(&self, pulse: Pulse) {
        let (sent, gone) = oneshot::channel();
        if self.pulses.send((pulse, Some(sent))).await.is_ok() {
            // A sender that died has nothing more to send.
            let _ = gone.await;
        }
    }

    /// Sends a report once. One that cannot be bytes is replaced by a failure that says so.
    pub(super) async fn report(&self, report: &Report) {
        let frame = wire::encode(report).or_else(|error| {
            let what = format!("its report cannot be sent: {error}");
            wire::encode(&Report { reply: failure(FailureKind::Internal, what, String::new()), ..report.clone() })
        });
        let sent = match frame {
            Ok(frame) => within(REPORT_LIMIT, self.broker.publish(&Address::Reports, frame)).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = sent {
            tracing::warn!(agent = %self.id, task = %report.task, error, "a report did not reach the broker");
        }
    }

    /// Hears commands; subscribed when this returns, so that the first beat can be answered.
    ///
    /// # Errors
    /// The broker does not let it, and will not.
    pub(super) async fn listen(&self, to: mpsc::Sender<Heard>) -> Result<Errand, ServiceError> {
        let address = Address::Agent(self.id.clone());
        let subscription = subscribe(self.broker.as_ref(), &address, COMMANDS).await?;
        let read = |control, receipt: Box<dyn Receipt>| {
            // A command is heard when it is read: what it asks for shows in the next beat.
            tokio::spawn(receipt.acknowledge());
            Heard::Control(control)
        };
        Ok(Errand(tokio::spawn(forward(subscription, to, read)).abort_handle()))
    }

    /// Takes tasks of a class until what is returned is dropped; what was not yet read goes back to the broker.
    pub(super) fn pull(&self, class: DeviceClass, to: mpsc::Sender<Heard>) -> Errand {
        let broker = Arc::clone(&self.broker);
        let pulling = async move {
            match subscribe(broker.as_ref(), &Address::Lane(class), PREFETCH).await {
                Ok(subscription) => forward(subscription, to, Heard::Task).await,
                // Nobody listens any more when the worker is gone.
                Err(error) => drop(to.send(Heard::Lost(error)).await),
            }
        };
        Errand(tokio::spawn(pulling).abort_handle())
    }
}

async fn send_pulses(broker: Arc<dyn Broker>, mut outbox: mpsc::Receiver<Outgoing>) {
    while let Some((pulse, sent)) = outbox.recv().await {
        let done = match wire::encode(&pulse) {
            Ok(frame) => within(PULSE_LIMIT, broker.publish(&Address::Pulses, frame)).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = done {
            tracing::debug!(error, "a sign of life did not reach the broker");
        }
        // Whoever waited may have given up.
        sent.map(|sent| sent.send(()));
    }
}

/// Subscribes, for as long as it takes the broker to be there.
async fn subscribe(broker: &dyn Broker, to: &Address, prefetch: u16) -> Result<Box<dyn Subscription>, ServiceError> {
    loop {
        match broker.subscribe(to, prefetch).await {
            Ok(subscription) => return Ok(subscription),
            Err(error @ (BrokerError::Topology(_) | BrokerError::TooLarge { .. })) => return Err(ServiceError::Broker(error)),
            Err(error) => tracing::warn!(%error, "the broker cannot be subscribed to; trying again"),
        }
        sleep(RETRY).await;
    }
}

/// Passes on what can be read. What nobody can read is put aside for people.
async fn forward<M: Message>(
    mut subscription: Box<dyn Subscription>,
    to: mpsc::Sender<Heard>,
    read: impl Fn(M, Box<dyn Receipt>) -> Heard,
) {
    while let Some(Delivery { body, receipt, .. }) = subscription.next().await {
        match wire::decode(&body) {
            Ok(message) => {
                if to.send(read(message, receipt)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a message that cannot be read is refused");
                receipt.refuse().await;
            }
        }
    }
    // Nobody listens any more when the worker is gone.
    let _ = to.send(Heard::Lost(ServiceError::Closed)).await;
}

async fn within(limit: Duration, publishing: impl Future<Output = Result<(), BrokerError>>) -> Result<(), BrokerError> {
    timeout(limit, publishing).await.unwrap_or(Err(BrokerError::Unconfirmed(limit)))
}
