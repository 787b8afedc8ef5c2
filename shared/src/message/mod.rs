//! What coordinator and agents say to each other.
//!
//! | message | from | to | if it is lost |
//! |---|---|---|---|
//! | [`Task`] | coordinator | one agent of a device class | published again: the journal knows that it is outstanding |
//! | [`Report`] | agent | coordinator | sent again: the agent holds it until [`Control::Accepted`] |
//! | [`Pulse`] | agent | coordinator | the next one says it again |
//! | [`Control`] | coordinator | one agent, or all | the next pulse shows that it was not heard |
//!
//! How they look as bytes is [`crate::wire`]'s matter, how they travel [`crate::broker`]'s.

mod control;
mod identity;
mod pulse;
mod report;
mod task;

pub use control::Control;
pub use identity::{AgentId, DeviceClass, DeviceIdentity, DeviceKind, HostName, JobId, NameError};
pub use pulse::{AgentMode, Beat, Pulse};
pub use report::{Failure, FailureKind, Reply, Report, Times};
pub use task::{Lease, Task, TaskId, Work};
