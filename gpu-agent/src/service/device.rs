//! What a device's thread is at.

use std::time::Duration;

use tokio::time::Instant;

use super::running::Running;
use super::settings::Settings;

/// Seen from the loop.
#[derive(Debug)]
pub(super) enum Device {
    /// It waits for an order.
    Idle,
    /// A task.
    Working(Running),
    /// The device's test of itself.
    Testing {
        /// When that must be over.
        until: Instant,
        /// It was told to end.
        told: bool,
        /// The agent takes tasks again if it passes.
        admits: bool,
    },
    /// Something that did not end when it was told to. What was to be said of it has been said.
    GivenUp,
}

impl Device {
    /// Begins to test itself.
    pub(super) fn testing(limit: Duration, admits: bool) -> Self {
        Self::Testing { until: Instant::now() + limit, told: false, admits }
    }

    /// True where it waits for an order.
    pub(super) const fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// The task that it is at.
    pub(super) const fn running(&mut self) -> Option<&mut Running> {
        match self {
            Self::Working(running) => Some(running),
            Self::Idle | Self::Testing { .. } | Self::GivenUp => None,
        }
    }

    /// When something must happen.
    pub(super) fn deadline(&self, settings: &Settings) -> Option<Instant> {
        match self {
            Self::Working(running) => Some(running.deadline(settings)),
            Self::Testing { until, .. } => Some(*until),
            Self::Idle | Self::GivenUp => None,
        }
    }
}
