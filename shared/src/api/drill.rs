//! A drill, as it is asked for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::bounded::{BusyMs, DrillLimitMs, DrillTasks, JobName, Priority, Weight};
use crate::message::DeviceClass;

/// A drill: a job whose tasks keep a device for a while and do nothing. It shows that a fleet works, and what it does when parts of it die,
/// without a model, a compiler or a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrillSpec {
    /// What people call it; need not be unique.
    #[serde(default)]
    pub name: JobName,
    /// How many tasks.
    #[serde(default)]
    pub tasks: DrillTasks,
    /// How long each keeps its device.
    #[serde(default)]
    pub busy_ms: BusyMs,
    /// Longest that one may run; a minute more than it takes where none is named.
    #[serde(default)]
    pub limit_ms: Option<DrillLimitMs>,
    /// Class of the devices that do it; any one where none is named.
    #[serde(default)]
    pub class: Option<DeviceClass>,
    /// Higher goes first.
    #[serde(default)]
    pub priority: Priority,
    /// Fair share among jobs of one priority.
    #[serde(default)]
    pub weight: Weight,
}
