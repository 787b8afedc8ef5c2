//! The time that a job has been worked on.

use std::time::{Duration, Instant};

/// Runs while any task of the job is under way, so that waiting for a device, or a coordinator that is down, costs no budget.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    before: Duration,
    since: Option<Instant>,
}

impl Stopwatch {
    /// Stopped, at a time that was read before.
    pub const fn at(before: Duration) -> Self {
        Self { before, since: None }
    }

    /// Time shown.
    pub fn read(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Runs from now on, or stops.
    pub fn run(&mut self, running: bool, now: Instant) {
        if running != self.since.is_some() {
            *self = Self { before: self.read(now), since: running.then_some(now) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_running_time_counts() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut watch = Stopwatch::at(Duration::from_secs(10));
        assert_eq!(watch.read(at(100)), Duration::from_secs(10));
        watch.run(true, at(100));
        watch.run(true, at(101));
        assert_eq!(watch.read(at(103)), Duration::from_secs(13));
        watch.run(false, at(104));
        assert_eq!(watch.read(at(200)), Duration::from_secs(14));
    }
}
