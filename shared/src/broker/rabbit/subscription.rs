//! Consumers, made again for ever.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use lapin::options::{BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::error::broker;
use super::receipt::{Open, RabbitReceipt};
use super::supervisor::{Core, Session};
use super::topology;
use crate::broker::backoff::Backoff;
use crate::broker::{Address, BrokerError, Delivery};

/// A consumer on a channel of its own.
pub(super) struct Live {
    channel: Channel,
    consumer: Consumer,
    /// Held by every receipt, to know whether one is unsettled.
    held: Arc<()>,
}

impl Live {
    /// Declares what an address needs and consumes from it.
    pub(super) async fn set_up(core: &Core, session: &Session, address: &Address, prefetch: u16) -> Result<Self, BrokerError> {
        if *address == Address::Everyone {
            return Err(BrokerError::Topology("nobody subscribes to everyone alone; an agent's address hears it too".into()));
        }
        let made = async {
            let channel = session.channel().await?;
            let consumer = consume(core, &channel, address, prefetch).await.map_err(|e| broker(&e))?;
            Ok(Self { channel, consumer, held: Arc::default() })
        };
        core.within(made).await
    }

    fn delivery(&self, core: &Core, delivery: lapin::message::Delivery) -> Delivery {
        let open = Open { acker: delivery.acker, _channel: self.channel.clone(), _held: self.held.clone() };
        let receipt = RabbitReceipt::new(open, core.options.request_timeout, core.runtime.clone());
        Delivery { body: Bytes::from(delivery.data), redelivered: delivery.redelivered, receipt: Box::new(receipt) }
    }

    /// Stops the flow; what had arrived and was given to nobody goes back. The channel lives on in the receipts.
    async fn stop(mut self, core: &Core) {
        let stop = async {
            let _ = topology::cancel(&self.channel, self.consumer.tag()).await;
            while let Some(Ok(delivery)) = self.consumer.next().await {
                drop(self.delivery(core, delivery));
            }
        };
        let _ = timeout(core.options.request_timeout, stop).await;
    }
}

async fn consume(core: &Core, channel: &Channel, address: &Address, prefetch: u16) -> lapin::Result<Consumer> {
    let queue = topology::declare_to_read(channel, &core.names, address).await?;
    // Per consumer: what RabbitMQ calls global is deprecated, and refused from 4.3 on.
    channel.basic_qos(prefetch, BasicQosOptions { global: false }).await?;
    channel.basic_consume(queue, ShortString::default(), BasicConsumeOptions::default(), FieldTable::default()).await
}

/// Why a feed was interrupted.
enum Pause {
    /// Nobody listens any more, or the broker was closed.
    End,
    /// The consumer ended: with an error, or without one as when its queue is deleted.
    Lost(String),
    /// Nothing came for a long time, and nothing is unsettled.
    Quiet,
}

/// Brings deliveries to a subscriber until it goes away or the broker is closed.
pub(super) async fn feed(core: Arc<Core>, address: Address, prefetch: u16, mut live: Live, out: mpsc::Sender<Delivery>) {
    loop {
        match bring(&core, &address, &mut live, &out).await {
            Pause::End => return live.stop(&core).await,
            Pause::Lost(reason) => {
                debug!(%address, reason, "a consumer ended; it is made again");
                drop(live);
                // All channels of a deleted queue must have heard of it before it is there again, see `RabbitOptions::longest_quiet`.
                tokio::time::sleep(core.options.first_wait).await;
            }
            Pause::Quiet => live.stop(&core).await,
        }
        match set_up_again(&core, &address, prefetch, &out).await {
            Some(again) => live = again,
            None => return,
        }
    }
}

async fn bring(core: &Core, address: &Address, live: &mut Live, out: &mpsc::Sender<Delivery>) -> Pause {
    loop {
        let next = tokio::select! {
            () = core.closed.cancelled() => return Pause::End,
            () = out.closed() => return Pause::End,
            next = live.consumer.next() => next,
            // A queue of one's own would be another one afterwards, without what had been sent to it.
            () = tokio::time::sleep(core.options.longest_quiet), if address.is_durable() => {
                if Arc::strong_count(&live.held) == 1 {
                    return Pause::Quiet;
                }
                continue;
            }
        };
        let delivery = match next {
            Some(Ok(delivery)) => live.delivery(core, delivery),
            Some(Err(error)) => return Pause::Lost(error.to_string()),
            None => return Pause::Lost("the broker cancelled it".into()),
        };
        // There is room: the broker delivers no more than the prefetch. Where nobody listens, the delivery is dropped and goes back.
        if out.send(delivery).await.is_err() {
            return Pause::End;
        }
    }
}

/// A consumer again, tried for as long as somebody listens.
async fn set_up_again(core: &Core, address: &Address, prefetch: u16, out: &mpsc::Sender<Delivery>) -> Option<Live> {
    let mut backoff = Backoff::new(core.options.first_wait, core.options.longest_wait);
    let mut told = false;
    loop {
        let made = tokio::select! {
            () = out.closed() => return None,
            session = core.session_whenever() => {
                let session = session?;
                Live::set_up(core, &session, address, prefetch).await
            }
        };
        match made {
            Ok(live) => return Some(live),
            Err(error) if told || error.is_passing() => debug!(%address, %error, "a consumer cannot be made yet"),
            Err(error) => {
                warn!(%address, %error, "a consumer cannot be made; it is tried again");
                told = true;
            }
        }
        tokio::select! {
            () = core.closed.cancelled() => return None,
            () = out.closed() => return None,
            () = tokio::time::sleep(backoff.wait()) => {}
        }
    }
}
