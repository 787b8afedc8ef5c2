//! How messages travel: a role with two backends, one in this process and one over RabbitMQ.
//!
//! A broker is a pipe, not a ledger. It promises that a frame whose publication was confirmed is delivered at least once, as long as
//! the broker itself is not lost; whatever must survive that is in the coordinator's journal. Frames may come twice and out of order.
//!
//! An address that is not durable belongs to each of its subscribers: each hears what is sent while it is subscribed, and what it does not
//! take in time is lost, oldest first. So an agent that comes back is heard again at once, whatever the broker still thinks of its old connection.
//!
//! | module | noun |
//! |---|---|
//! | [`link`] | the two typed ends: [`crate::message`]s over any broker |
//! | [`memory`] | the broker of one process |
//! | [`rabbit`] | RabbitMQ |
//! | [`Counted`] | any broker, with its metrics |
//! | [`faults`] | any broker, with a seed and bad luck |

mod backoff;
mod counted;
pub mod faults;
pub mod link;
pub mod memory;
pub mod rabbit;

pub use counted::Counted;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use crate::message::{AgentId, DeviceClass};
use crate::wire::MAX_FRAME_BYTES;

/// Time between two beats of an agent.
pub const BEAT: Duration = Duration::from_secs(5);

/// Returns of one frame after which it goes to [`Address::Dead`]. RabbitMQ counts each return, a hand-back too, so this only ends what goes
/// round for ever; attempts are counted by the coordinator.
pub const RETURNS: u32 = 20;

/// Frames that [`Address::Dead`], or one subscriber of an address that is not durable, keeps at most; the oldest goes.
pub const KEPT_FRAMES: usize = 10_000;

/// Bytes that a durable queue holds at most before it takes no more: an agent holds its report until there is room, and a disk does not fill.
pub const FULL_BYTES: usize = 512 << 20;

/// Where frames go to and come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// Tasks for devices of one class, shared between its agents; durable.
    Lane(DeviceClass),
    /// Reports to the leading coordinator; durable.
    Reports,
    /// Signs of life to the leading coordinator; gone with its connection.
    Pulses,
    /// What one agent is told; gone with its connection. Its subscriber also hears [`Address::Everyone`].
    Agent(AgentId),
    /// What all agents are told. Nobody subscribes to it alone.
    Everyone,
    /// Frames that nobody could read, for people; durable.
    Dead,
}

impl Address {
    /// `lane`, `reports`, ...: bounded, for metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Lane(_) => "lane",
            Self::Reports => "reports",
            Self::Pulses => "pulses",
            Self::Agent(_) => "agent",
            Self::Everyone => "everyone",
            Self::Dead => "dead",
        }
    }

    /// True where a publication is confirmed and survives the broker's restart.
    pub const fn is_durable(&self) -> bool {
        matches!(self, Self::Lane(_) | Self::Reports | Self::Dead)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lane(class) => write!(f, "lane {class}"),
            Self::Agent(agent) => write!(f, "agent {agent}"),
            other => f.write_str(other.kind()),
        }
    }
}

/// One message as bytes, with what an operator sees of it without decoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// `task`, `report`, `pulse` or `control`.
    pub kind: &'static str,
    /// Version of the envelope.
    pub version: u16,
    /// Stable over repetitions of one message: a task's id, for people who search for it.
    pub id: String,
    /// The envelope, see [`crate::wire`].
    pub body: Bytes,
}

/// A frame that arrived; it is the receiver's until settled. Dropped unsettled it comes back.
pub struct Delivery {
    /// The envelope as received; not yet trusted.
    pub body: Bytes,
    /// True where the broker has delivered it before.
    pub redelivered: bool,
    /// Settles it.
    pub receipt: Box<dyn Receipt>,
}

/// The right and duty to settle a delivery.
#[async_trait]
pub trait Receipt: Send {
    /// Done. False: the broker has given the frame to somebody else meanwhile.
    async fn acknowledge(self: Box<Self>) -> bool;
    /// Not done, nobody's fault: others may have it.
    async fn hand_back(self: Box<Self>);
    /// Nobody can read it: to [`Address::Dead`].
    async fn refuse(self: Box<Self>);
}

/// Frames of one address as they arrive. It mends itself: a lost connection, channel or queue is re-made underneath, and only the end of
/// the broker ends it.
#[async_trait]
pub trait Subscription: Send {
    /// The next one; `None` once the broker was closed.
    async fn next(&mut self) -> Option<Delivery>;
}

/// Whether the broker can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerState {
    /// Yes.
    Up,
    /// Connected, but it takes no publications (an alarm of memory or disk).
    Blocked {
        /// The broker's word.
        reason: String,
    },
    /// No, and this is tried again.
    Down {
        /// The last error.
        reason: String,
    },
}

/// Frames that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Delivered to nobody yet.
    pub ready: u64,
    /// Subscribers.
    pub consumers: u64,
}

/// Why a frame was not taken. It may have been all the same: repeat it with the same id.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum BrokerError {
    #[error("the broker did not confirm within {} s", .0.as_secs())]
    Unconfirmed(Duration),
    #[error("nobody is there to take {0}")]
    Unroutable(String),
    #[error("the broker cannot be reached: {0}")]
    Down(String),
    #[error("the broker refuses the topology: {0}")]
    Topology(String),
    #[error("{0} takes no more: it is full")]
    Full(String),
    #[error("a frame of {found} bytes; at most {most} are sent")]
    TooLarge { found: usize, most: usize },
}

impl BrokerError {
    /// True where the same frame may be taken later.
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Unconfirmed(_) | Self::Down(_) | Self::Full(_))
    }

    /// What to do about it, as a sentence in the imperative.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Unconfirmed(_) | Self::Down(_) => "Check the broker's address, user and password, and that it runs.",
            Self::Topology(_) => "Have the broker's administrator change that; docs/fleet.md has the rights that are needed.",
            Self::Full(_) => "See what fills it (`rabbitmqctl list_queues name messages`), and that a coordinator leads.",
            Self::Unroutable(_) => "Try again once whom it is for is there.",
            Self::TooLarge { .. } => "Report this, with the message.",
        }
    }
}

/// A broker.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Publishes a frame. To a durable address: returns once the broker has it on as many disks as it promises. To another: once it is sent;
    /// an agent that is not there is [`BrokerError::Unroutable`]. Tried once: [`link::publish`] repeats.
    async fn publish(&self, to: &Address, frame: Frame) -> Result<(), BrokerError>;

    /// Frames of an address, at most `prefetch` of them unsettled. Declares what it needs. Dropping the subscription stops the flow;
    /// what was delivered stays with its receiver until settled.
    async fn subscribe(&self, to: &Address, prefetch: u16) -> Result<Box<dyn Subscription>, BrokerError>;

    /// How many frames wait; `None` where the address has nobody and nothing, and of every address that is not durable.
    async fn depth(&self, of: &Address) -> Result<Option<Depth>, BrokerError>;

    /// Waits until no other coordinator leads on this broker; leads until the guard is dropped or the connection is lost. It is a queue
    /// for turns, not a lock: what fences is the epoch.
    async fn lead(&self) -> Result<Box<dyn Leadership>, BrokerError>;

    /// Whether it can be reached, as it changes.
    fn state(&self) -> watch::Receiver<BrokerState>;

    /// Ends this end of it: subscriptions end, what is unsettled goes back, the turn passes on.
    async fn close(&self);
}

/// Refuses a frame that a broker may not take.
fn check_size(frame: &Frame) -> Result<(), BrokerError> {
    let (found, most) = (frame.body.len(), MAX_FRAME_BYTES);
    if found > most { Err(BrokerError::TooLarge { found, most }) } else { Ok(()) }
}

/// A coordinator's turn.
#[async_trait]
pub trait Leadership: Send {
    /// Returns when the turn is over against our will: the connection that held it is lost.
    async fn lost(&mut self);
}
