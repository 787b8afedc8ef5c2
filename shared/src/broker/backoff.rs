//! How long to wait before the next try.

use std::time::Duration;

use rand::RngExt;

/// Waits that double up to a longest one, each shortened by up to half at random, so that a thousand agents do not return at once.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    next: Duration,
    first: Duration,
    longest: Duration,
}

impl Backoff {
    pub(super) const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, first, longest }
    }

    /// The next wait.
    pub(super) fn wait(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.longest);
        whole.mul_f64(rand::rng().random_range(0.5..=1.0))
    }

    /// It worked: the next failure begins anew.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_longest_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(300));
        for whole in [100, 200, 300, 300] {
            let wait = backoff.wait();
            assert!(wait >= Duration::from_millis(whole / 2) && wait <= Duration::from_millis(whole), "{wait:?}");
        }
        backoff.reset();
        assert!(backoff.wait() <= Duration::from_millis(100));
    }
}
