//! The best that is known, as it is shown.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::digest::Digest;
use crate::message::{DeviceClass, JobId};

/// The best confirmed candidate for one kernel on one class of devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FrontierRow {
    /// Hash of the kernel's meaning.
    pub fingerprint: Digest,
    /// Class of the devices.
    pub class: DeviceClass,
    /// The candidate.
    pub candidate: Digest,
    /// Median time of one launch of the compiler's own code, as confirmed, in microseconds.
    pub baseline_us: f64,
    /// The same of the candidate.
    pub best_us: f64,
    /// The first over the second.
    pub speedup: f64,
    /// The job that found it.
    pub job: JobId,
}

/// Some rows of the frontier, in order of class and fingerprint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FrontierPage {
    /// The rows.
    pub rows: Vec<FrontierRow>,
    /// True where there are more than were asked for.
    pub more: bool,
}
