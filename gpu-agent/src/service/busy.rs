//! The share of time in which a device works.

use std::time::Duration;

use tokio::time::Instant;

/// Since when, and how much of it.
#[derive(Debug)]
pub(super) struct Busy {
    since: Instant,
    worked: Duration,
    working: Option<Instant>,
}

impl Default for Busy {
    fn default() -> Self {
        Self { since: Instant::now(), worked: Duration::ZERO, working: None }
    }
}

impl Busy {
    /// Work begins.
    pub(super) fn begin(&mut self) {
        self.working = Some(Instant::now());
    }

    /// It ended.
    pub(super) fn end(&mut self) {
        self.worked += self.working.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    /// The share since this was last asked.
    pub(super) fn share(&mut self) -> f64 {
        let goes_on = self.working.is_some();
        self.end();
        let share = self.worked.as_secs_f64() / self.since.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        *self = Self::default();
        if goes_on {
            self.begin();
        }
        share.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_share_is_of_the_time_since_the_last_question() {
        let pass = tokio::time::advance;
        let mut busy = Busy::default();
        pass(Duration::from_secs(3)).await;
        busy.begin();
        pass(Duration::from_secs(1)).await;
        assert!((busy.share() - 0.25).abs() < 1e-9);
        pass(Duration::from_secs(2)).await;
        busy.end();
        pass(Duration::from_secs(2)).await;
        assert!((busy.share() - 0.5).abs() < 1e-9);
        pass(Duration::from_secs(1)).await;
        assert!(busy.share() < 1e-9);
    }
}
