//! One device's end of the broker.

use std::sync::Arc;
use std::time::Duration;

use kernelopt_shared::broker::link::{AgentEnd, Inbox, OnUnread, Received, SendError};
use kernelopt_shared::broker::{Broker, BrokerError, Receipt};
use kernelopt_shared::message::{AgentId, Control, DeviceClass, FailureKind, Pulse, Report, Task};
use kernelopt_shared::wire::Message;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::ServiceError;
use super::holding::Errand;
use super::reply::failure;

/// Signs of life that may wait while the broker is slow; what is too many is dropped, the next one says it again.
const PULSES: usize = 32;
/// Longest that a sign of life may take.
const PULSE_LIMIT: Duration = Duration::from_secs(5);
/// Longest that all tries to publish a report may take.
const REPORT_LIMIT: Duration = Duration::from_secs(30);
/// Between two tries to subscribe.
const RETRY: Duration = Duration::from_secs(1);

/// What arrives.
pub(super) enum Heard {
    /// Work, and what settles it.
    Task(Box<Task>, Box<dyn Receipt>),
    /// A command.
    Control(Control),
    /// Nothing will arrive any more.
    Lost(ServiceError),
}

/// A sign of life on its way, and who waits until it is sent.
type Outgoing = (Pulse, Option<oneshot::Sender<()>>);

/// The end of one device.
pub(super) struct Line {
    end: AgentEnd,
    pulses: mpsc::Sender<Outgoing>,
    _sender: Errand,
}

impl Line {
    /// Speaks for `id`.
    pub(super) fn new(broker: Arc<dyn Broker>, id: AgentId, on_unread: OnUnread) -> Self {
        let end = AgentEnd::new(broker, id, on_unread);
        let (pulses, outbox) = mpsc::channel(PULSES);
        let sender = tokio::spawn(send_pulses(end.clone(), outbox));
        Self { end, pulses, _sender: Errand(sender.abort_handle()) }
    }

    /// Sends a sign of life, in order with the others, and does not wait.
    pub(super) fn pulse(&self, pulse: Pulse) {
        if self.pulses.try_send((pulse, None)).is_err() {
            tracing::debug!(agent = %self.end.agent(), "a sign of life was dropped: the broker is slow");
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

    /// Publishes a report. One that cannot be bytes is replaced by a failure that says so: else its task would never end.
    pub(super) async fn report(&self, report: &Report) {
        let sent = match self.try_report(report).await {
            Err(SendError::Wire(error)) => {
                let reply = failure(FailureKind::Internal, format!("its report cannot be sent: {error}"), String::new());
                self.try_report(&Report { reply, ..report.clone() }).await
            }
            sent => sent,
        };
        if let Err(error) = sent {
            tracing::warn!(agent = %self.end.agent(), task = %report.task, %error, "a report did not reach the broker");
        }
    }

    async fn try_report(&self, report: &Report) -> Result<(), SendError> {
        timeout(REPORT_LIMIT, self.end.report(report)).await.unwrap_or(Err(BrokerError::Unconfirmed(REPORT_LIMIT).into()))
    }

    /// Hears commands; subscribed when this returns, so that the first beat can be answered.
    ///
    /// # Errors
    /// The broker does not let it, and will not.
    pub(super) async fn listen(&self, to: mpsc::Sender<Heard>) -> Result<Errand, ServiceError> {
        let inbox = patiently(|| self.end.controls()).await?;
        let read = |Received { message, receipt, .. }: Received<Control>| {
            // A command is heard when it is read: what it asks for shows in the next beat.
            tokio::spawn(receipt.acknowledge());
            Heard::Control(message)
        };
        Ok(Errand(tokio::spawn(forward(inbox, to, read)).abort_handle()))
    }

    /// Takes tasks of a class, at most `prefetch` unsettled, until what is returned is dropped; what was not yet read goes back to the broker.
    pub(super) fn pull(&self, class: DeviceClass, prefetch: u16, to: mpsc::Sender<Heard>) -> Errand {
        let end = self.end.clone();
        let read = |Received { message, receipt, .. }: Received<Task>| Heard::Task(Box::new(message), receipt);
        let pulling = async move {
            match patiently(|| end.tasks(&class, prefetch)).await {
                Ok(inbox) => forward(inbox, to, read).await,
                // Nobody listens any more when the worker is gone.
                Err(error) => drop(to.send(Heard::Lost(error)).await),
            }
        };
        Errand(tokio::spawn(pulling).abort_handle())
    }
}

async fn send_pulses(end: AgentEnd, mut outbox: mpsc::Receiver<Outgoing>) {
    while let Some((pulse, sent)) = outbox.recv().await {
        match timeout(PULSE_LIMIT, end.pulse(&pulse)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(agent = %end.agent(), %error, "a sign of life did not reach the broker"),
            Err(_) => tracing::debug!(agent = %end.agent(), "the broker does not take signs of life"),
        }
        // Whoever waited may have given up.
        sent.map(|sent| sent.send(()));
    }
}

/// Subscribes, for as long as it takes the broker to be there.
async fn patiently<M, F>(subscribe: impl Fn() -> F) -> Result<Inbox<M>, ServiceError>
where
    F: Future<Output = Result<Inbox<M>, BrokerError>>,
{
    loop {
        match subscribe().await {
            Ok(inbox) => return Ok(inbox),
            Err(error) if !error.is_passing() => return Err(ServiceError::Broker(error)),
            Err(error) => tracing::warn!(%error, "the broker cannot be subscribed to; trying again"),
        }
        sleep(RETRY).await;
    }
}

/// Passes on what arrives.
async fn forward<M: Message>(mut inbox: Inbox<M>, to: mpsc::Sender<Heard>, read: impl Fn(Received<M>) -> Heard) {
    while let Some(received) = inbox.next().await {
        if to.send(read(received)).await.is_err() {
            return;
        }
    }
    // Nobody listens any more when the worker is gone.
    let _ = to.send(Heard::Lost(ServiceError::Closed)).await;
}
