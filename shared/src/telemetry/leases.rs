//! Leases, and what agents are charged for losing them.

use std::sync::Arc;

use super::labels::Capped;
use super::metric::{Counter, Spec, Unit};
use super::registry::{Registry, TelemetryError};
use crate::message::{DeviceClass, FailureKind};

const GRANTED: Spec<1> =
    Spec::new("kernelopt_leases_granted_total", Unit::Events, ["class"], "Leases granted by device class, first ones and later ones.");
const REGRANTED: Spec<1> = Spec::new(
    "kernelopt_leases_regranted_total",
    Unit::Events,
    ["class"],
    "Leases granted for tasks that had one before: it expired, failed or was handed back.",
);
const EXPIRED: Spec<2> = Spec::new(
    "kernelopt_leases_expired_total",
    Unit::Events,
    ["class", "cause"],
    "Leases that ended without a report: silent, the agent was not heard; overrun, the task did not end within its time.",
);
const STALE: Spec<0> = Spec::new(
    "kernelopt_reports_stale_total",
    Unit::Events,
    [],
    "Reports under a lease that is not the task's current one: kept as evidence, change nothing.",
);
const ATTEMPTS: Spec<1> =
    Spec::new("kernelopt_attempts_total", Unit::Events, ["cause"], "Attempts that count towards a task's quarantine, by what ended them.");
const FORGIVEN: Spec<0> = Spec::new(
    "kernelopt_attempts_forgiven_total",
    Unit::Events,
    [],
    "Attempts taken back because the agent, not the task, was found to be at fault.",
);

/// Why a lease ended without a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The agent was not heard.
    Silent,
    /// The task did not end within its time.
    Overrun,
}

impl Expiry {
    const ALL: [Self; 2] = [Self::Silent, Self::Overrun];

    const fn label(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Overrun => "overrun",
        }
    }
}

/// What ended an attempt that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// The lease of a started task was lost.
    LeaseLost,
    /// The agent said that it did not end in time.
    TimedOut,
    /// The host's fault, so it seemed.
    Environment,
    /// The program's fault.
    Internal,
}

impl Charge {
    const ALL: [Self; 4] = [Self::LeaseLost, Self::TimedOut, Self::Environment, Self::Internal];

    /// What a failure is charged as; `None` where it does not count: a baseline that cannot run is no agent's fault.
    pub const fn of(failure: FailureKind) -> Option<Self> {
        match failure {
            FailureKind::Environment => Some(Self::Environment),
            FailureKind::TimedOut => Some(Self::TimedOut),
            FailureKind::Internal => Some(Self::Internal),
            FailureKind::Baseline => None,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::LeaseLost => "lease_lost",
            Self::TimedOut => "timed_out",
            Self::Environment => "environment",
            Self::Internal => "internal",
        }
    }
}

/// Leases and attempts.
pub struct LeaseMetrics {
    classes: Arc<Capped>,
    granted: Counter<1>,
    regranted: Counter<1>,
    expired: Counter<2>,
    stale: Counter<0>,
    attempts: Counter<1>,
    forgiven: Counter<0>,
}

impl LeaseMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        let metrics = Self {
            classes: registry.classes(),
            granted: registry.counter(&GRANTED)?,
            regranted: registry.counter(&REGRANTED)?,
            expired: registry.counter(&EXPIRED)?,
            stale: registry.counter(&STALE)?,
            attempts: registry.counter(&ATTEMPTS)?,
            forgiven: registry.counter(&FORGIVEN)?,
        };
        metrics.stale.add([], 0);
        metrics.forgiven.add([], 0);
        for charge in Charge::ALL {
            metrics.attempts.add([charge.label()], 0);
        }
        Ok(metrics)
    }

    /// Makes the series of a class appear.
    pub(super) fn expect(&self, class: &str) {
        self.granted.add([class], 0);
        self.regranted.add([class], 0);
        for cause in Expiry::ALL {
            self.expired.add([class, cause.label()], 0);
        }
    }

    /// A lease was granted; `again` where the task had one before.
    pub fn granted(&self, class: &DeviceClass, again: bool) {
        let class = self.classes.label(class.as_str());
        self.granted.add_one([class]);
        self.regranted.add([class], u64::from(again));
    }

    /// A lease ended without a report.
    pub fn expired(&self, class: &DeviceClass, cause: Expiry) {
        self.expired.add_one([self.classes.label(class.as_str()), cause.label()]);
    }

    /// A report came under an earlier lease.
    pub fn stale_report(&self) {
        self.stale.add_one([]);
    }

    /// An attempt counts.
    pub fn charged(&self, charge: Charge) {
        self.attempts.add_one([charge.label()]);
    }

    /// So many attempts do not count after all.
    pub fn forgiven(&self, attempts: u64) {
        self.forgiven.add([], attempts);
    }
}
