//! The two typed ends: messages over any broker.

mod inbox;
mod repeat;
mod unread;

use std::sync::Arc;

use super::{Address, Broker, BrokerError, Depth, Frame};
use crate::message::{AgentId, Control, DeviceClass, Pulse, Report, Task};
use crate::wire::{self, Message, WireError};
pub use inbox::{Inbox, Received};
pub use repeat::{Repetition, publish};
use unread::UnreadLog;
pub use unread::{OnUnread, Unread};

/// Reports that the coordinator takes before it has settled the first: what one transaction of its journal holds.
const REPORTS_AHEAD: u16 = 256;

/// Signs of life and controls on their way to one reader.
const SIGNS_AHEAD: u16 = 256;

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// It cannot be bytes.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The broker did not take it.
    #[error(transparent)]
    Broker(#[from] BrokerError),
}

/// What both ends have.
#[derive(Clone)]
struct Line {
    broker: Arc<dyn Broker>,
    unread: Arc<UnreadLog>,
    repetition: Repetition,
}

impl Line {
    /// Publishes until it is taken or hopeless.
    async fn send<M: Message>(&self, to: &Address, message: &M) -> Result<(), SendError> {
        Ok(publish(self.broker.as_ref(), to, &wire::encode(message)?, self.repetition).await?)
    }

    /// Publishes once: what comes next says it again.
    async fn tell<M: Message>(&self, to: &Address, message: &M) -> Result<(), SendError> {
        let frame: Frame = wire::encode(message)?;
        Ok(self.broker.publish(to, frame).await?)
    }

    async fn listen<M: Message>(&self, to: &Address, prefetch: u16) -> Result<Inbox<M>, BrokerError> {
        Ok(Inbox::new(self.broker.subscribe(to, prefetch).await?, self.unread.clone()))
    }
}

/// The coordinator's end.
#[derive(Clone)]
pub struct CoordinatorEnd {
    line: Line,
}

impl CoordinatorEnd {
    /// An end on a broker. `on_unread` is called for every frame that cannot be read: it counts them.
    pub fn new(broker: Arc<dyn Broker>, on_unread: OnUnread) -> Self {
        Self { line: Line { broker, unread: Arc::new(UnreadLog::new(on_unread)), repetition: Repetition::default() } }
    }

    /// The broker itself: its state, and the turn to lead.
    pub fn broker(&self) -> &Arc<dyn Broker> {
        &self.line.broker
    }

    /// Publishes a task, repeated until the broker has it.
    ///
    /// # Errors
    /// It was not taken in all tries, and may be there all the same; or it is too large.
    pub async fn send_task(&self, class: &DeviceClass, task: &Task) -> Result<(), SendError> {
        self.line.send(&Address::Lane(class.clone()), task).await
    }

    /// Tells one agent, once.
    ///
    /// # Errors
    /// [`BrokerError::Unroutable`] where it is not there.
    pub async fn control(&self, agent: &AgentId, control: &Control) -> Result<(), SendError> {
        self.line.tell(&Address::Agent(agent.clone()), control).await
    }

    /// Tells all agents that are there, once.
    ///
    /// # Errors
    /// The broker cannot be reached.
    pub async fn broadcast(&self, control: &Control) -> Result<(), SendError> {
        self.line.tell(&Address::Everyone, control).await
    }

    /// Reports of all agents.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses the topology.
    pub async fn reports(&self) -> Result<Inbox<Report>, BrokerError> {
        self.line.listen(&Address::Reports, REPORTS_AHEAD).await
    }

    /// Signs of life of all agents.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses the topology.
    pub async fn pulses(&self) -> Result<Inbox<Pulse>, BrokerError> {
        self.line.listen(&Address::Pulses, SIGNS_AHEAD).await
    }

    /// Tasks that wait for a class of device, and agents that take them; `None` where there has never been a task nor an agent.
    ///
    /// # Errors
    /// The broker cannot be reached.
    pub async fn lane_depth(&self, class: &DeviceClass) -> Result<Option<Depth>, BrokerError> {
        self.line.broker.depth(&Address::Lane(class.clone())).await
    }
}

/// An agent's end.
#[derive(Clone)]
pub struct AgentEnd {
    line: Line,
    agent: AgentId,
}

impl AgentEnd {
    /// An end on a broker. `on_unread` is called for every frame that cannot be read: it counts them.
    pub fn new(broker: Arc<dyn Broker>, agent: AgentId, on_unread: OnUnread) -> Self {
        Self { line: Line { broker, unread: Arc::new(UnreadLog::new(on_unread)), repetition: Repetition::default() }, agent }
    }

    /// The broker itself: its state.
    pub fn broker(&self) -> &Arc<dyn Broker> {
        &self.line.broker
    }

    /// Whose end it is.
    pub const fn agent(&self) -> &AgentId {
        &self.agent
    }

    /// Tasks for a class of device, at most `prefetch` of them unsettled. Dropped, no more come; what was received stays with its receiver.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses the topology.
    pub async fn tasks(&self, class: &DeviceClass, prefetch: u16) -> Result<Inbox<Task>, BrokerError> {
        self.line.listen(&Address::Lane(class.clone()), prefetch).await
    }

    /// What this agent, or every agent, is told from now on.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses the topology.
    pub async fn controls(&self) -> Result<Inbox<Control>, BrokerError> {
        self.line.listen(&Address::Agent(self.agent.clone()), SIGNS_AHEAD).await
    }

    /// Publishes a report, repeated until the broker has it. It is the agent's until the coordinator has accepted it.
    ///
    /// # Errors
    /// It was not taken in all tries, and may be there all the same; or it cannot be sent at all ([`SendError::Wire`]).
    pub async fn report(&self, report: &Report) -> Result<(), SendError> {
        self.line.send(&Address::Reports, report).await
    }

    /// Gives a sign of life, once.
    ///
    /// # Errors
    /// The broker cannot be reached.
    pub async fn pulse(&self, pulse: &Pulse) -> Result<(), SendError> {
        self.line.tell(&Address::Pulses, pulse).await
    }
}
