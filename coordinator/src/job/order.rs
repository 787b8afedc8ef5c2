//! A piece of work with everything that an agent needs to do it.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{JobId, TaskId, Work};
use serde::Serialize;

use crate::search::plan::Step;

/// Bytes that an agent will ask for by their digest.
#[derive(Clone, Debug)]
pub struct StoredBlob {
    /// Their digest.
    pub digest: Digest,
    /// The bytes.
    pub bytes: Bytes,
}

impl StoredBlob {
    /// Of bytes.
    pub fn of(bytes: Vec<u8>) -> Self {
        Self { digest: Digest::of([bytes.as_slice()]), bytes: bytes.into() }
    }

    /// Of a document.
    pub fn of_json(document: &impl Serialize) -> Self {
        Self::of(serde_json::to_vec(document).unwrap_or_default())
    }
}

/// A piece of work with everything that an agent needs to do it.
#[derive(Clone, Debug)]
pub struct Order {
    /// Which piece: the same whenever it is ordered.
    pub task: TaskId,
    /// The piece, as the plan sees it.
    pub step: Step,
    /// The piece, as an agent sees it.
    pub work: Work,
    /// Blob of the bundle.
    pub bundle: Digest,
    /// What must be stored before an agent is asked.
    pub blobs: Vec<StoredBlob>,
    /// Seed of every draw.
    pub seed: u64,
    /// Longest that it may run.
    pub run_limit: Duration,
    /// Devices that should not do it, by UUID, if there are others: a winner is confirmed elsewhere than where it won.
    pub avoid: BTreeSet<String>,
}

/// Identity of a piece of work of a job.
pub fn task_id(job: &JobId, step: &Step) -> TaskId {
    let step = serde_json::to_vec(step).unwrap_or_default();
    Digest::of([job.as_str().as_bytes(), &step])
}
