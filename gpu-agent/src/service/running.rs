//! The one task that the device is at, and its clocks.

use std::time::Duration;

use kernelopt_shared::message::Lease;
use tokio::time::Instant;

use super::settings::{LONGEST_RUN, Settings};

/// Why work is wanted to end before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Its time is over.
    TimedOut,
    /// It could not begin in time.
    Unready,
    /// Nobody wants it any more.
    Cancelled,
    /// It is somebody else's by now. What is measured all the same is evidence.
    Lost,
    /// The agent leaves.
    Leaving,
}

/// What the device is at.
#[derive(Debug)]
pub(super) struct Running {
    /// Which task.
    pub lease: Lease,
    /// When the thread was told.
    ordered: Instant,
    /// When the work began: its clock runs from here.
    began: Option<Instant>,
    /// Longest that it may run.
    limit: Duration,
    /// Why it was told to end, and until when it has time for that.
    ending: Option<(Why, Instant)>,
}

impl Running {
    /// Just ordered.
    pub(super) fn new(lease: Lease, limit: Duration) -> Self {
        Self { lease, ordered: Instant::now(), began: None, limit: limit.min(LONGEST_RUN), ending: None }
    }

    /// The work begins.
    pub(super) fn begin(&mut self) {
        self.began = Some(Instant::now());
    }

    /// How long it has run.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    /// When something must happen.
    pub(super) fn deadline(&self, settings: &Settings) -> Instant {
        match (self.ending, self.began) {
            (Some((_, until)), _) => until,
            (None, Some(began)) => began + self.limit,
            (None, None) => self.ordered + settings.preparing,
        }
    }

    /// Why it was told to end.
    pub(super) fn why(&self) -> Option<Why> {
        self.ending.map(|(why, _)| why)
    }

    /// Why its time is over, were it told to end now.
    pub(super) const fn overdue(&self) -> Why {
        if self.began.is_some() { Why::TimedOut } else { Why::Unready }
    }

    /// It is told to end. The first reason counts, but for a cancellation: what nobody wants has no other.
    pub(super) fn end(&mut self, why: Why, settings: &Settings) {
        match &mut self.ending {
            Some((told, _)) if why == Why::Cancelled => *told = why,
            Some(_) => {}
            none => *none = Some((why, Instant::now() + settings.ending)),
        }
    }
}
