//! What happened in a job, as it is streamed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::message::JobId;

/// Name of a server-sent event whose data is an [`EventView`].
pub const SSE_EVENT: &str = "event";
/// Name of a server-sent event whose data is a [`super::JobRow`]: how far the job is now. Sent at the start, whenever that changes, and as
/// a sign of life.
pub const SSE_JOB: &str = "job";
/// Name of a server-sent event whose data is a [`super::Problem`]: the stream ends with it and may be asked for again.
pub const SSE_PROBLEM: &str = "problem";

/// One entry of a job's journal. Folded in order they give everything that is known of the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// Rises from event to event of a job; there may be gaps.
    pub seq: u64,
    /// The job.
    pub job: JobId,
    /// Time that the job had been worked on, in milliseconds.
    pub active_ms: u64,
    /// Name of the kind; there will be more of them.
    pub kind: String,
    /// What happened, as it stands in the journal, its kind included.
    #[schema(value_type = Object)]
    pub body: serde_json::Value,
}
