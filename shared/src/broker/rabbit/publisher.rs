//! Publications, each with its own confirmation.
//!
//! A publication is mandatory: it is taken when it is confirmed and not returned. The client hands a returned frame to whichever
//! confirmation comes next, so where several are under way on one channel, the wrong one may learn of it and the right one not: a frame
//! would be lost and called confirmed. So a channel has one publication at a time, and there are several channels.

use std::sync::{Arc, Mutex, PoisonError};

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::protocol::AMQPSoftError;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::error::{broker, refusal};
use super::names::{self, short};
use super::supervisor::{Core, Session};
use super::topology;
use crate::broker::{Address, BrokerError, BrokerState, Frame};

/// Publications under way at a time.
const CHANNELS: usize = 32;

/// Channels that publish.
pub(super) struct Publishers {
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Channel>>,
}

impl Default for Publishers {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(CHANNELS)), idle: Mutex::default() }
    }
}

/// A channel with nothing under way. Dropped, it is closed: something may be under way.
struct Publisher {
    channel: Channel,
    _place: OwnedSemaphorePermit,
}

impl Publishers {
    async fn take(&self, session: &Session) -> Result<Publisher, BrokerError> {
        let closed = || BrokerError::Down("it was closed".into());
        let place = self.places.clone().acquire_owned().await.map_err(|_| closed())?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let channel = match idle.filter(|channel| channel.status().connected()) {
            Some(channel) => channel,
            None => {
                let channel = session.channel().await?;
                channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(|e| broker(&e))?;
                channel
            }
        };
        Ok(Publisher { channel, _place: place })
    }

    fn give_back(&self, publisher: Publisher) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(publisher.channel);
    }
}

/// What became of one publication.
enum End {
    Taken,
    /// Nobody reads there.
    Returned,
    /// There is no room.
    Refused,
    /// The exchange is gone.
    NoExchange,
}

/// Publishes a frame once.
pub(super) async fn publish(core: &Core, to: &Address, frame: &Frame) -> Result<(), BrokerError> {
    let limit = core.options.confirm_timeout;
    timeout(limit, publish_when_possible(core, to, frame)).await.unwrap_or_else(|_| match *core.state.borrow() {
        BrokerState::Up => Err(BrokerError::Unconfirmed(limit)),
        BrokerState::Blocked { .. } | BrokerState::Down { .. } => Err(core.down()),
    })
}

async fn publish_when_possible(core: &Core, to: &Address, frame: &Frame) -> Result<(), BrokerError> {
    let session = core.session().await?;
    // A blocked broker reads nothing from this connection: what is written now would only fill buffers.
    let mut state = core.state.subscribe();
    let _ = state.wait_for(|state| !matches!(state, BrokerState::Blocked { .. })).await;
    // A second time where what was declared has been taken away.
    for last in [false, true] {
        topology::ensure(&session, &core.names, to).await?;
        match publish_once(core, &session, to, frame).await? {
            End::Taken => return Ok(()),
            End::Refused => return Err(BrokerError::Full(to.to_string())),
            End::Returned if !to.is_durable() => return Err(BrokerError::Unroutable(to.to_string())),
            End::Returned | End::NoExchange if last => break,
            End::Returned | End::NoExchange => {
                session.forget_declared(to);
                // As a consumer waits: all must have heard that it is gone before it is there again.
                tokio::time::sleep(core.options.first_wait).await;
            }
        }
    }
    Err(BrokerError::Unroutable(to.to_string()))
}

async fn publish_once(core: &Core, session: &Session, to: &Address, frame: &Frame) -> Result<End, BrokerError> {
    let (exchange, key) = match core.names.durable(to) {
        Some(queue) => (ShortString::default(), queue),
        None if *to == Address::Everyone => (core.names.everyone(), ShortString::default()),
        None => (core.names.direct(), names::key(to)),
    };
    // Signs of life and words to all may find nobody, and nobody need know.
    let options = BasicPublishOptions { mandatory: to.is_durable() || matches!(to, Address::Agent(_)), ..BasicPublishOptions::default() };
    let publisher = session.publishers.take(session).await?;
    let sent = publisher.channel.basic_publish(exchange, key, options, &frame.body, properties(to, frame)).await;
    let confirmed = match sent {
        Ok(confirm) => confirm.await,
        Err(error) => Err(error),
    };
    let end = match confirmed {
        Ok(Confirmation::Ack(None)) => End::Taken,
        Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_))) => End::Returned,
        Ok(Confirmation::Nack(None)) => End::Refused,
        Ok(Confirmation::NotRequested) => return Err(BrokerError::Down("its channel confirms nothing".into())),
        Err(error) if refusal(&error) == Some(AMQPSoftError::NOTFOUND) => return Ok(End::NoExchange),
        Err(error) => return Err(broker(&error)),
    };
    session.publishers.give_back(publisher);
    Ok(end)
}

/// What an operator sees without decoding.
fn properties(to: &Address, frame: &Frame) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("version".into(), AMQPValue::LongInt(frame.version.into()));
    headers.insert("kind".into(), AMQPValue::LongString(frame.kind.into()));
    BasicProperties::default()
        .with_content_type("application/x-kernelopt".into())
        .with_type(short(frame.kind))
        .with_message_id(short(&frame.id))
        .with_headers(headers)
        .with_delivery_mode(if to.is_durable() { 2 } else { 1 })
}
