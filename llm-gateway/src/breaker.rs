//! When to leave a deployment alone, and for how long.
//!
//! Pure: time comes in. Only what the deployment itself did counts; that a limit of the gateway's own held a request back says nothing of its
//! health, and never comes here. A pause that has been asked for is never shortened by a later, shorter one.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Failures in a row after which a deployment is left alone.
const IN_A_ROW: u32 = 5;
/// Or, of at least so many attempts in [`WINDOW`], half.
const AT_LEAST: usize = 20;
/// How far back attempts count.
const WINDOW: Duration = Duration::from_secs(30);
/// Most attempts that are remembered.
const MOST_REMEMBERED: usize = 1024;
/// The first pause where the deployment does not say how long, and the longest; each in a row is twice the one before.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The same for keys that are refused or have no money: somebody has to do something first.
const CREDENTIAL_PAUSES: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(600));

/// What a deployment did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It answered, or refused what was wrong with a request: it is well.
    Answered,
    /// It is asked too much; it may have said when to come again.
    Busy(Option<Duration>),
    /// It failed: an error of its own, silence, no connection, an answer that was none. It may have said when to come again.
    Failed(Option<Duration>),
    /// It does not take the key, or the key's money is gone.
    Credential,
}

/// The health of one deployment.
#[derive(Debug, Default)]
pub struct Breaker {
    /// Attempts of the last [`WINDOW`], and whether each failed.
    recent: VecDeque<(Instant, bool)>,
    failures_in_a_row: u32,
    pauses_in_a_row: u32,
    closed_until: Option<Instant>,
}

impl Breaker {
    /// Takes a sign in. Gives the end of the pause that follows from it, if one does: the later of the old and the new.
    pub fn sign(&mut self, now: Instant, sign: Sign) -> Option<Instant> {
        let failed = matches!(sign, Sign::Failed(_));
        self.recent.retain(|(at, _)| now.saturating_duration_since(*at) < WINDOW);
        if self.recent.len() == MOST_REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((now, failed));
        match sign {
            Sign::Answered => {
                (self.failures_in_a_row, self.pauses_in_a_row) = (0, 0);
                None
            }
            Sign::Busy(hint) => Some(self.pause(now, hint, PAUSES)),
            Sign::Credential => Some(self.pause(now, None, CREDENTIAL_PAUSES)),
            Sign::Failed(hint) => {
                self.failures_in_a_row += 1;
                let failures = self.recent.iter().filter(|(_, failed)| *failed).count();
                let often = self.recent.len() >= AT_LEAST && failures * 2 >= self.recent.len();
                let open = self.failures_in_a_row >= IN_A_ROW || often;
                (hint.is_some() || open).then(|| self.pause(now, hint, PAUSES))
            }
        }
    }

    fn pause(&mut self, now: Instant, hint: Option<Duration>, (first, longest): (Duration, Duration)) -> Instant {
        // Answers to what was sent before the pause began do not make it longer and longer.
        let is_closed = self.closed_until.is_some_and(|until| until > now);
        let step = self.pauses_in_a_row.saturating_sub(u32::from(is_closed));
        if !is_closed {
            self.pauses_in_a_row = self.pauses_in_a_row.saturating_add(1);
        }
        let own = first.saturating_mul(1 << step.min(16)).min(longest);
        let until = now + hint.unwrap_or(own);
        let until = self.closed_until.map_or(until, |old| old.max(until));
        self.closed_until = Some(until);
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_pause_is_never_shortened() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        assert_eq!(breaker.sign(now, Sign::Busy(Some(100 * SECOND))), Some(now + 100 * SECOND));
        assert_eq!(breaker.sign(now + SECOND, Sign::Busy(Some(5 * SECOND))), Some(now + 100 * SECOND));
        assert_eq!(breaker.sign(now + SECOND, Sign::Busy(None)), Some(now + 100 * SECOND));
        assert_eq!(breaker.sign(now + 2 * SECOND, Sign::Failed(Some(200 * SECOND))), Some(now + 202 * SECOND));
    }

    #[test]
    fn pauses_without_a_hint_double_until_it_answers() {
        let (mut breaker, mut now) = (Breaker::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let until = breaker.sign(now, Sign::Busy(None)).unwrap();
            // Those that were under way come back with the same.
            assert_eq!(breaker.sign(now, Sign::Busy(None)), Some(until));
            pauses.push((until - now).as_secs());
            now = until;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        breaker.sign(now, Sign::Answered);
        assert_eq!(breaker.sign(now, Sign::Busy(None)), Some(now + SECOND));
    }

    #[test]
    fn it_opens_after_failures_in_a_row_or_when_half_fail() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..4 {
            assert_eq!(breaker.sign(now, Sign::Failed(None)), None);
        }
        assert_eq!(breaker.sign(now, Sign::Failed(None)), Some(now + SECOND));

        let mut breaker = Breaker::default();
        let opened = (0..20)
            .map(|n| breaker.sign(now, if n % 2 == 0 { Sign::Answered } else { Sign::Failed(None) }))
            .position(|until| until.is_some());
        assert_eq!(opened, Some(19));
        let mut breaker = Breaker::default();
        let later = |n: u32| now + n * 10 * SECOND;
        assert!(
            (0..100).all(|n| breaker.sign(later(n), if n % 2 == 0 { Sign::Answered } else { Sign::Failed(None) }).is_none()),
            "too long ago"
        );
    }

    #[test]
    fn a_key_that_is_refused_rests_longer() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        assert_eq!(breaker.sign(now, Sign::Credential), Some(now + 30 * SECOND));
    }
}
