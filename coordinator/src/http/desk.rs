//! What the API needs of a coordinator.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use kernelopt_shared::api::{
    AgentList, DrillSpec, EventView, Explanation, FrontierPage, JobPage, JobRow, JobSpec, JobView, PageSize, Phase, Readiness, Reason,
};
use kernelopt_shared::digest::Digest;
use kernelopt_shared::message::{DeviceClass, HostName, JobId};
use serde::Deserialize;
use tempfile::TempPath;
use utoipa::IntoParams;

/// A job that was submitted.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// The job.
    pub job: JobView,
    /// False where it had been before.
    pub is_new: bool,
}

/// Where requests are answered: the role of a coordinator that the API sees.
///
/// Calls may be dropped at any await, when a client goes away or a limit is reached: what they began must then be either done or
/// not. Each is answered from memory or in a few disk writes; none waits for a device.
#[async_trait]
pub trait Desk: Send + Sync + 'static {
    /// Returns once the coordinator's own loop has turned: that it lives, whatever else may be out of order.
    async fn turn(&self) -> Result<(), DeskError>;

    /// Whether it can do its work: the journal can be written, the broker is reached, it leads.
    async fn readiness(&self) -> Readiness;

    /// Takes a job; it is in the journal when this returns. One that was submitted with the same `key` before is not taken again.
    ///
    /// # Errors
    /// [`DeskError::Refused`] where its bundle is not stored or cannot be used, [`DeskError::Conflict`] where another job has its key.
    async fn submit(&self, spec: JobSpec, key: Option<&str>) -> Result<Submitted, DeskError>;

    /// Takes a drill; it is in the journal when this returns.
    async fn drill(&self, spec: DrillSpec) -> Result<JobView, DeskError>;

    /// Jobs, latest first.
    async fn jobs(&self, wanted: &JobFilter) -> Result<JobPage, DeskError>;

    /// One job.
    async fn job(&self, id: &JobId) -> Result<JobView, DeskError>;

    /// Ends a job; one that was cancelled before stays so.
    ///
    /// # Errors
    /// [`DeskError::Conflict`] where it is finished or failed.
    async fn cancel(&self, id: &JobId) -> Result<JobView, DeskError>;

    /// At most `most` events after number `after`, in order; where there are none yet, those that come within `wait`, or none. Returns
    /// early where the job's row changes.
    async fn events(&self, id: &JobId, after: u64, most: usize, wait: Duration) -> Result<EventPage, DeskError>;

    /// Folder of a finished job's outputs, which changes no more.
    ///
    /// # Errors
    /// [`DeskError::Conflict`] where it is not finished.
    async fn outputs(&self, id: &JobId) -> Result<PathBuf, DeskError>;

    /// Why a job is where it is.
    async fn explain(&self, id: &JobId) -> Result<Explanation, DeskError>;

    /// All agents, in order of their names.
    async fn agents(&self) -> Result<AgentList, DeskError>;

    /// Gives an order to all agents of a host; returns them as they are now. That an agent obeys shows with its next beat.
    ///
    /// # Errors
    /// [`DeskError::NotFound`] where none was ever heard of.
    async fn order(&self, host: &HostName, order: AgentOrder) -> Result<AgentList, DeskError>;

    /// The best that is known, in order of class and fingerprint.
    async fn frontier(&self, wanted: &FrontierFilter) -> Result<FrontierPage, DeskError>;

    /// Size of a blob in bytes, `None` where there is none.
    async fn blob_bytes(&self, blob: Digest) -> Result<Option<u64>, DeskError>;

    /// Content of a blob.
    async fn read_blob(&self, blob: Digest) -> Result<BlobContent, DeskError>;

    /// Keeps `file`, whose content has the digest `blob`; it is stored when this returns. True where it is new.
    async fn keep_blob(&self, blob: Digest, file: TempPath) -> Result<bool, DeskError>;
}

/// Why a coordinator does not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeskError {
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// Not in the state that it is in.
    #[error("{0}")]
    Conflict(String),
    /// It cannot be done.
    #[error("{what}")]
    Refused {
        /// Why.
        what: String,
        /// What to do instead.
        remedy: String,
    },
    /// No space is left for it.
    #[error("{0}")]
    StorageFull(String),
    /// A part that is needed does not answer, or failed; the same request may do later.
    #[error("{0}")]
    Unavailable(String),
}

/// Which jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobFilter {
    /// Those in this phase; all where it is left out.
    pub phase: Option<Phase>,
    /// At most so many.
    #[serde(default)]
    #[param(inline, required = false)]
    pub limit: PageSize,
    /// Those submitted before this one: `next` of the page before.
    #[param(inline)]
    pub after: Option<JobId>,
}

/// Which rows of the frontier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FrontierFilter {
    /// Those of one class of devices.
    #[param(inline)]
    pub class: Option<DeviceClass>,
    /// Those of one kernel.
    #[param(inline)]
    pub fingerprint: Option<Digest>,
    /// At most so many.
    #[serde(default)]
    #[param(inline, required = false)]
    pub limit: PageSize,
}

/// Some events of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct EventPage {
    /// In order.
    pub events: Vec<EventView>,
    /// The job, as it was when they were read. Where it is over and there are no events after the last that was asked for, there will
    /// be none.
    pub job: JobRow,
}

/// An order to the agents of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentOrder {
    /// End what they have, take no more and leave.
    Drain,
    /// Take no more until readmitted.
    Quarantine(Reason),
    /// Take tasks again.
    Readmit,
}

/// A blob, piece by piece.
pub struct BlobContent {
    /// Its size.
    pub bytes: u64,
    /// Its pieces, `bytes` in all.
    pub pieces: BoxStream<'static, std::io::Result<Bytes>>,
}
