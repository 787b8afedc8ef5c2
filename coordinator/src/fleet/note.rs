//! What happened, for those who count.

use kernelopt_shared::message::{DeviceClass, FailureKind, Reply, Times, Work};
use std::time::Duration;

use super::leases::Expiry;

/// Something to be counted.
#[derive(Clone, Debug)]
pub enum Note {
    /// A lease was granted; `again` where the task had one before.
    Granted {
        /// The class.
        class: DeviceClass,
        /// It had one before.
        again: bool,
    },
    /// A lease ended without a report.
    Expired {
        /// The class.
        class: DeviceClass,
        /// Why.
        expiry: Expiry,
    },
    /// A report came under a lease that is not the task's own.
    Stale,
    /// An attempt counts; none: its lease was lost while it ran.
    Charged(Option<FailureKind>),
    /// So many attempts do not count after all.
    Forgiven(usize),
    /// A report was taken.
    Done(Box<Taken>),
    /// A task was put in quarantine.
    Poisoned(Work),
}

/// A report that was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Class of the device.
    pub class: DeviceClass,
    /// What was asked for.
    pub work: Work,
    /// What came of it.
    pub reply: Reply,
    /// The agent's clocks.
    pub times: Times,
    /// From when it was sent to its start.
    pub queued: Duration,
    /// From when it was sent to its report.
    pub leased: Duration,
}
