//! What is declared. Arguments are few, and a change of them is a change of the name's version.

use lapin::options::{
    BasicCancelOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::protocol::AMQPSoftError;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, ExchangeKind};

use super::error::{broker, refusal};
use super::names::{self, Names};
use super::supervisor::Session;
use crate::broker::{Address, BrokerError, Depth, FULL_BYTES, KEPT_FRAMES, RETURNS};

/// Makes sure that what frames for an address go to exists, once per session.
pub(super) async fn ensure(session: &Session, names: &Names, address: &Address) -> Result<(), BrokerError> {
    if session.declared(address) {
        return Ok(());
    }
    // On a channel of its own: a refusal ends the channel.
    let channel = session.channel().await?;
    declare(&channel, names, address).await.map_err(|e| broker(&e))?;
    session.note_declared(address);
    Ok(())
}

async fn declare(channel: &Channel, names: &Names, address: &Address) -> lapin::Result<()> {
    match address {
        Address::Lane(_) | Address::Reports => {
            // First the dead, or there would be a moment in which a refused frame has no place.
            declare_dead(channel, names).await?;
            let Some(queue) = names.durable(address) else { return Ok(()) };
            declare_durable(channel, queue, working_arguments(names)).await
        }
        Address::Dead => declare_dead(channel, names).await,
        Address::Pulses | Address::Agent(_) => declare_exchange(channel, names.direct(), ExchangeKind::Direct).await,
        Address::Everyone => declare_exchange(channel, names.everyone(), ExchangeKind::Fanout).await,
    }
}

async fn declare_dead(channel: &Channel, names: &Names) -> lapin::Result<()> {
    let mut arguments = quorum();
    arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(KEPT_FRAMES as i64));
    declare_durable(channel, names.dead(), arguments).await
}

async fn declare_durable(channel: &Channel, queue: ShortString, arguments: FieldTable) -> lapin::Result<()> {
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue, options, arguments).await.map(|_| ())
}

async fn declare_exchange(channel: &Channel, name: ShortString, kind: ExchangeKind) -> lapin::Result<()> {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(name, kind, options, FieldTable::default()).await
}

fn quorum() -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments
}

fn dead_letters(arguments: &mut FieldTable, names: &Names) {
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
    arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(names.dead().to_string().into()));
}

/// Of lanes and reports: what comes back too often, or is refused, goes to the dead; what does not fit is not confirmed.
fn working_arguments(names: &Names) -> FieldTable {
    let mut arguments = quorum();
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(i64::from(RETURNS)));
    arguments.insert("x-max-length-bytes".into(), AMQPValue::LongLongInt(FULL_BYTES as i64));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    dead_letters(&mut arguments, names);
    arguments
}

/// The queue that a subscriber reads: of a durable address the one that all share, of another one of its own, which goes with it.
pub(super) async fn declare_to_read(channel: &Channel, names: &Names, address: &Address) -> lapin::Result<ShortString> {
    declare(channel, names, address).await?;
    if let Some(queue) = names.durable(address) {
        return Ok(queue);
    }
    declare_dead(channel, names).await?;
    let queue = names.own(address);
    let options = QueueDeclareOptions { exclusive: true, auto_delete: true, ..QueueDeclareOptions::default() };
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(KEPT_FRAMES as i64));
    dead_letters(&mut arguments, names);
    channel.queue_declare(queue.clone(), options, arguments).await?;
    channel.queue_bind(queue.clone(), names.direct(), names::key(address), QueueBindOptions::default(), FieldTable::default()).await?;
    if matches!(address, Address::Agent(_)) {
        declare(channel, names, &Address::Everyone).await?;
        channel
            .queue_bind(queue.clone(), names.everyone(), ShortString::default(), QueueBindOptions::default(), FieldTable::default())
            .await?;
    }
    Ok(queue)
}

/// Takes away the durable queues of these addresses with all that is in them, and the exchanges. What is not there is no error.
pub(super) async fn remove(channel: &Channel, names: &Names, addresses: &[Address]) -> lapin::Result<()> {
    for queue in addresses.iter().filter_map(|address| names.durable(address)) {
        channel.queue_delete(queue, QueueDeleteOptions::default()).await?;
    }
    for exchange in [names.direct(), names.everyone()] {
        channel.exchange_delete(exchange, ExchangeDeleteOptions::default()).await?;
    }
    Ok(())
}

/// Frames and consumers of a durable queue; `None` where it does not exist.
pub(super) async fn depth(session: &Session, names: &Names, address: &Address) -> Result<Option<Depth>, BrokerError> {
    let Some(queue) = names.durable(address) else { return Ok(None) };
    let channel = session.channel().await?;
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    match channel.queue_declare(queue, options, FieldTable::default()).await {
        Ok(found) => Ok(Some(Depth { ready: found.message_count().into(), consumers: found.consumer_count().into() })),
        Err(error) if refusal(&error) == Some(AMQPSoftError::NOTFOUND) => Ok(None),
        Err(error) => Err(broker(&error)),
    }
}

/// Declares the queue whose one consumer leads. Refused with `RESOURCE_LOCKED` while another connection has it.
pub(super) async fn declare_leader(channel: &Channel, names: &Names) -> lapin::Result<ShortString> {
    let options = QueueDeclareOptions { exclusive: true, auto_delete: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(names.leader(), options, FieldTable::default()).await?;
    Ok(names.leader())
}

/// Stops a consumer; what was delivered stays delivered.
pub(super) async fn cancel(channel: &Channel, consumer: ShortString) -> lapin::Result<()> {
    channel.basic_cancel(consumer, BasicCancelOptions::default()).await
}
