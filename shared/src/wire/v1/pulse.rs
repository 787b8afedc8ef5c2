use serde::{Deserialize, Serialize};

use super::identity::{DeviceIdentity, Hash, Lease, agent, hash};
use super::text::cut;
use crate::digest::Digest;
use crate::message;
use crate::wire::error::WireError;
use crate::wire::kind::Kind;

/// [`message::Pulse`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::wire) enum Pulse {
    Beat(Beat),
    Started { agent: String, task: Hash, lease: Lease },
    Leaving { agent: String },
}

/// [`message::Beat`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::wire) struct Beat {
    agent: String,
    incarnation: u64,
    version: String,
    device: DeviceIdentity,
    epoch: u64,
    mode: AgentMode,
    capacity: u32,
    holds: Vec<Lease>,
    busy: f64,
}

/// [`message::AgentMode`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum AgentMode {
    Working,
    Draining,
    Quarantined { reason: String },
}

impl TryFrom<&message::Pulse> for Pulse {
    type Error = WireError;

    fn try_from(pulse: &message::Pulse) -> Result<Self, WireError> {
        Ok(match pulse {
            message::Pulse::Beat(beat) => Self::Beat(beat.into()),
            message::Pulse::Started { agent, task, lease } => {
                Self::Started { agent: agent.to_string(), task: hash(task), lease: (*lease).into() }
            }
            message::Pulse::Leaving { agent } => Self::Leaving { agent: agent.to_string() },
        })
    }
}

impl TryFrom<Pulse> for message::Pulse {
    type Error = WireError;

    fn try_from(pulse: Pulse) -> Result<Self, WireError> {
        Ok(match pulse {
            Pulse::Beat(beat) => Self::Beat(beat.try_into()?),
            Pulse::Started { agent: name, task, lease } => {
                Self::Started { agent: agent(Kind::Pulse, &name)?, task: Digest::from_bytes(task), lease: lease.into() }
            }
            Pulse::Leaving { agent: name } => Self::Leaving { agent: agent(Kind::Pulse, &name)? },
        })
    }
}

impl From<&message::Beat> for Beat {
    fn from(beat: &message::Beat) -> Self {
        let message::Beat { agent, incarnation, version, device, epoch, mode, capacity, holds, busy } = beat;
        Self {
            agent: agent.to_string(),
            incarnation: *incarnation,
            version: cut(version),
            device: device.into(),
            epoch: *epoch,
            mode: match mode {
                message::AgentMode::Working => AgentMode::Working,
                message::AgentMode::Draining => AgentMode::Draining,
                message::AgentMode::Quarantined { reason } => AgentMode::Quarantined { reason: cut(reason) },
            },
            capacity: *capacity,
            holds: holds.iter().copied().map(Lease::from).collect(),
            busy: *busy,
        }
    }
}

impl TryFrom<Beat> for message::Beat {
    type Error = WireError;

    fn try_from(beat: Beat) -> Result<Self, WireError> {
        let Beat { agent: name, incarnation, version, device, epoch, mode, capacity, holds, busy } = beat;
        if !busy.is_finite() {
            return Err(WireError::payload(Kind::Pulse, "a busy share that is no number"));
        }
        Ok(Self {
            agent: agent(Kind::Pulse, &name)?,
            incarnation,
            version,
            device: device.into(),
            epoch,
            mode: match mode {
                AgentMode::Working => message::AgentMode::Working,
                AgentMode::Draining => message::AgentMode::Draining,
                AgentMode::Quarantined { reason } => message::AgentMode::Quarantined { reason },
            },
            capacity,
            holds: holds.into_iter().map(message::Lease::from).collect(),
            busy,
        })
    }
}
