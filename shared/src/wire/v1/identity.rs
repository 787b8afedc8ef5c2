use serde::{Deserialize, Serialize};

use super::text::cut;
use crate::digest::Digest;
use crate::message;
use crate::message::{AgentId, JobId};
use crate::wire::error::WireError;
use crate::wire::kind::Kind;

/// [`Digest`].
pub(super) type Hash = [u8; 16];

pub(super) fn agent(kind: Kind, name: &str) -> Result<AgentId, WireError> {
    AgentId::parse(name).map_err(|e| WireError::payload(kind, e))
}

pub(super) fn job(kind: Kind, name: &str) -> Result<JobId, WireError> {
    JobId::parse(name).map_err(|e| WireError::payload(kind, e))
}

pub(super) fn hash(digest: &Digest) -> Hash {
    digest.to_bytes()
}

/// [`message::Lease`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::wire) struct Lease {
    epoch: u64,
    serial: u64,
}

impl From<message::Lease> for Lease {
    fn from(lease: message::Lease) -> Self {
        let message::Lease { epoch, serial } = lease;
        Self { epoch, serial }
    }
}

impl From<Lease> for message::Lease {
    fn from(lease: Lease) -> Self {
        let Lease { epoch, serial } = lease;
        Self { epoch, serial }
    }
}

/// [`message::DeviceKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum DeviceKind {
    Cpu,
    Cuda,
}

/// [`message::DeviceIdentity`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DeviceIdentity {
    kind: DeviceKind,
    uuid: String,
    product: String,
    memory_bytes: u64,
    architecture: String,
    partition: Option<String>,
    driver: String,
    threads: u32,
}

impl From<&message::DeviceIdentity> for DeviceIdentity {
    fn from(device: &message::DeviceIdentity) -> Self {
        let message::DeviceIdentity { kind, uuid, product, memory_bytes, architecture, partition, driver, threads } = device;
        Self {
            kind: match kind {
                message::DeviceKind::Cpu => DeviceKind::Cpu,
                message::DeviceKind::Cuda => DeviceKind::Cuda,
            },
            uuid: cut(uuid),
            product: cut(product),
            memory_bytes: *memory_bytes,
            architecture: cut(architecture),
            partition: partition.as_deref().map(cut),
            driver: cut(driver),
            threads: *threads,
        }
    }
}

impl From<DeviceIdentity> for message::DeviceIdentity {
    fn from(device: DeviceIdentity) -> Self {
        let DeviceIdentity { kind, uuid, product, memory_bytes, architecture, partition, driver, threads } = device;
        let kind = match kind {
            DeviceKind::Cpu => message::DeviceKind::Cpu,
            DeviceKind::Cuda => message::DeviceKind::Cuda,
        };
        Self { kind, uuid, product, memory_bytes, architecture, partition, driver, threads }
    }
}
