//! The turn to lead: an exclusive queue, which one connection has at a time and which goes with it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::options::BasicConsumeOptions;
use lapin::protocol::AMQPSoftError;
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use super::error::{broker, refusal};
use super::supervisor::{Core, Session};
use super::topology;
use crate::broker::backoff::Backoff;
use crate::broker::{BrokerError, Leadership};

/// Longest time between two looks at whether the turn is free: a takeover takes no longer, once the broker has seen the old leader go.
const LOOK: Duration = Duration::from_secs(1);

/// A turn. Dropped, the channel closes, its consumer goes, and the queue goes with its consumer.
pub(super) struct RabbitLeadership {
    _channel: Channel,
    consumer: Consumer,
    session_ended: CancellationToken,
    _turn: OwnedSemaphorePermit,
    _alive: Arc<DropGuard>,
}

/// Waits for the turn.
pub(super) async fn lead(core: &Core, alive: Arc<DropGuard>) -> Result<RabbitLeadership, BrokerError> {
    let turn = tokio::select! {
        () = core.closed.cancelled() => return Err(core.down()),
        turn = core.turn.clone().acquire_owned() => turn.map_err(|_| core.down())?,
    };
    let mut backoff = Backoff::new(LOOK / 2, LOOK);
    loop {
        let session = core.session_whenever().await.ok_or_else(|| core.down())?;
        match core.within(take(core, &session)).await {
            Ok(Some((channel, consumer))) => {
                let session_ended = session.ended.clone();
                return Ok(RabbitLeadership { _channel: channel, consumer, session_ended, _turn: turn, _alive: alive });
            }
            Ok(None) => {}
            Err(error @ BrokerError::Topology(_)) => return Err(error),
            Err(error) => debug!(%error, "the turn to lead cannot be asked for; it is tried again"),
        }
        tokio::select! {
            () = core.closed.cancelled() => return Err(core.down()),
            () = tokio::time::sleep(backoff.wait()) => {}
        }
    }
}

/// The queue and its consumer, who learns of its end; `None` while somebody else has it.
async fn take(core: &Core, session: &Session) -> Result<Option<(Channel, Consumer)>, BrokerError> {
    let channel = session.channel().await?;
    let queue = match topology::declare_leader(&channel, &core.names).await {
        Ok(queue) => queue,
        Err(error) if refusal(&error) == Some(AMQPSoftError::RESOURCELOCKED) => return Ok(None),
        Err(error) => return Err(broker(&error)),
    };
    let options = BasicConsumeOptions { exclusive: true, ..BasicConsumeOptions::default() };
    let consumer = channel.basic_consume(queue, ShortString::default(), options, FieldTable::default()).await.map_err(|e| broker(&e))?;
    Ok(Some((channel, consumer)))
}

#[async_trait]
impl Leadership for RabbitLeadership {
    async fn lost(&mut self) {
        let deliveries = async {
            // Nobody sends there; the stream ends with its queue, its channel or its connection.
            while let Some(Ok(_)) = self.consumer.next().await {}
        };
        tokio::select! {
            () = self.session_ended.cancelled() => {}
            () = deliveries => {}
        }
    }
}
