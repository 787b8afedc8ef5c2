//! RabbitMQ, 3.10 and later.
//!
//! | module | what |
//! |---|---|
//! | `options` | where it is, and how long everything may take |
//! | `names` | names of queues and exchanges |
//! | `topology` | what is declared |
//! | `supervisor` | the connection, made again for ever |
//! | `publisher` | publications, each with its own confirmation |
//! | `subscription` | consumers, made again for ever |
//! | `leadership` | the turn to lead |
//! | `version` | which release of it answers |
//!
//! The client's own recovery is off: it covers connections only, and with it a consumer whose channel died waits for ever. What is here takes
//! every end (of a connection, a channel, a consumer; with an error or without) for the same event: make it anew.
//!
//! The client logs every refusal as an error, the expected ones too. What matters is logged here; [`QUIET`] silences the rest.

mod error;
mod leadership;
mod names;
mod options;
mod publisher;
mod receipt;
mod subscription;
mod supervisor;
mod topology;
mod version;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::DropGuard;

use super::{Address, Broker, BrokerError, BrokerState, Delivery, Depth, Frame, Leadership, Subscription, check_size};
use crate::message::DeviceClass;
use error::broker;
pub use options::{OptionsError, RabbitOptions};
use subscription::Live;
use supervisor::Core;
pub use version::version;

/// A directive for the program's log: the client's own words are left out.
pub const QUIET: &str = "lapin=off";

/// A RabbitMQ broker.
pub struct RabbitBroker {
    core: Arc<Core>,
    /// The connection ends with the last of its users: this, subscriptions, a turn to lead.
    alive: Arc<DropGuard>,
}

impl RabbitBroker {
    /// Begins to connect and goes on trying; [`Broker::state`] says how it stands, as with a wrong password.
    ///
    /// Must be called in a tokio runtime.
    ///
    /// # Errors
    /// The options make no sense.
    pub fn start(options: RabbitOptions) -> Result<Self, OptionsError> {
        let core = supervisor::start(options)?;
        let alive = Arc::new(core.closed.clone().drop_guard());
        Ok(Self { core, alive })
    }

    /// Removes every queue and exchange of this prefix, with the lanes of `classes` and whatever waits in them. For a cluster that was set up
    /// for a while; nobody must use it any more.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses. What is not there is no error.
    pub async fn remove(&self, classes: &[DeviceClass]) -> Result<(), BrokerError> {
        let lanes = classes.iter().cloned().map(Address::Lane);
        let addresses: Vec<Address> = lanes.chain([Address::Reports, Address::Dead]).collect();
        let session = self.core.session().await?;
        let removed = async {
            let channel = session.channel().await?;
            topology::remove(&channel, &self.core.names, &addresses).await.map_err(|e| broker(&e))
        };
        self.core.within(removed).await
    }
}

#[async_trait]
impl Broker for RabbitBroker {
    async fn publish(&self, to: &Address, frame: Frame) -> Result<(), BrokerError> {
        check_size(&frame)?;
        publisher::publish(&self.core, to, &frame).await
    }

    async fn subscribe(&self, to: &Address, prefetch: u16) -> Result<Box<dyn Subscription>, BrokerError> {
        let prefetch = prefetch.max(1);
        let session = self.core.session().await?;
        let live = Live::set_up(&self.core, &session, to, prefetch).await?;
        let (sender, deliveries) = mpsc::channel(usize::from(prefetch));
        tokio::spawn(subscription::feed(self.core.clone(), to.clone(), prefetch, live, sender));
        Ok(Box::new(RabbitSubscription { core: self.core.clone(), deliveries, _alive: self.alive.clone() }))
    }

    async fn depth(&self, of: &Address) -> Result<Option<Depth>, BrokerError> {
        if !of.is_durable() {
            return Ok(None);
        }
        let session = self.core.session().await?;
        self.core.within(topology::depth(&session, &self.core.names, of)).await
    }

    async fn lead(&self) -> Result<Box<dyn Leadership>, BrokerError> {
        Ok(Box::new(leadership::lead(&self.core, self.alive.clone()).await?))
    }

    fn state(&self) -> watch::Receiver<BrokerState> {
        self.core.state.subscribe()
    }

    async fn close(&self) {
        self.core.closed.cancel();
        self.core.ended.cancelled().await;
    }
}

struct RabbitSubscription {
    core: Arc<Core>,
    deliveries: mpsc::Receiver<Delivery>,
    _alive: Arc<DropGuard>,
}

#[async_trait]
impl Subscription for RabbitSubscription {
    async fn next(&mut self) -> Option<Delivery> {
        tokio::select! {
            biased;
            () = self.core.closed.cancelled() => None,
            delivery = self.deliveries.recv() => delivery,
        }
    }
}
