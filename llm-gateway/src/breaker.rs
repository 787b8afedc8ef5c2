//! When to leave a deployment alone, and for how long.
//!
//! Pure: time comes in. Only what the deployment itself did counts; that a limit of the gateway's own held a request back says nothing of its
//! health, and never comes here. A pause that has been asked for is never shortened by a later, shorter one.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::settings::{self, Retry};

/// Most attempts that are remembered.
const MOST_REMEMBERED: usize = 1024;
/// The first pause of a key that is refused or has no money, and the longest: somebody has to do something first.
const CREDENTIAL_PAUSES: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(600));
/// The longest pause of a deployment that goes on failing, as a multiple of the first.
const LONGEST_OPEN: u32 = 12;

/// What the settings say of it.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// When it opens.
    pub breaker: &'a settings::Breaker,
    /// Pauses of one that is asked too much and does not say how long.
    pub retry: &'a Retry,
}

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
    /// Attempts of the last window, and whether each failed.
    recent: VecDeque<(Instant, bool)>,
    pauses_in_a_row: u32,
    closed_until: Option<Instant>,
}

impl Breaker {
    /// Takes a sign in. Gives the end of the pause that follows from it, if one does: the later of the old and the new.
    pub fn sign(&mut self, now: Instant, sign: Sign, rules: Rules<'_>) -> Option<Instant> {
        let Rules { breaker, retry } = rules;
        let failed = matches!(sign, Sign::Failed(_));
        while self.recent.len() >= MOST_REMEMBERED
            || self.recent.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= breaker.window)
        {
            self.recent.pop_front();
        }
        self.recent.push_back((now, failed));
        match sign {
            Sign::Answered => {
                self.pauses_in_a_row = 0;
                None
            }
            Sign::Busy(hint) => Some(self.pause(now, hint, (retry.first_wait, retry.longest_wait))),
            Sign::Credential => Some(self.pause(now, None, CREDENTIAL_PAUSES)),
            Sign::Failed(hint) => {
                let (failures, attempts) = (self.recent.iter().filter(|(_, failed)| *failed).count(), self.recent.len());
                let opens = attempts >= breaker.least_attempts as usize && failures * 100 >= attempts * breaker.failure_percent as usize;
                (hint.is_some() || opens).then(|| self.pause(now, hint, (breaker.open, breaker.open * LONGEST_OPEN)))
            }
        }
    }

    /// Until when it is to be left alone.
    pub const fn closed_until(&self) -> Option<Instant> {
        self.closed_until
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
    const BREAKER: settings::Breaker =
        settings::Breaker { failure_percent: 50, least_attempts: 5, window: Duration::from_secs(30), open: SECOND };
    const RETRY: Retry = Retry { most_attempts: 3, first_wait: SECOND, longest_wait: Duration::from_secs(60) };
    const RULES: Rules<'static> = Rules { breaker: &BREAKER, retry: &RETRY };

    #[test]
    fn a_pause_is_never_shortened() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        let mut sign = |seconds: u32, sign: Sign| breaker.sign(now + seconds * SECOND, sign, RULES);
        assert_eq!(sign(0, Sign::Busy(Some(100 * SECOND))), Some(now + 100 * SECOND));
        assert_eq!(sign(1, Sign::Busy(Some(5 * SECOND))), Some(now + 100 * SECOND));
        assert_eq!(sign(1, Sign::Busy(None)), Some(now + 100 * SECOND));
        assert_eq!(sign(2, Sign::Failed(Some(200 * SECOND))), Some(now + 202 * SECOND));
    }

    #[test]
    fn pauses_without_a_hint_double_until_it_answers() {
        let (mut breaker, mut now) = (Breaker::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let until = breaker.sign(now, Sign::Busy(None), RULES).unwrap();
            // Those that were under way come back with the same.
            assert_eq!(breaker.sign(now, Sign::Busy(None), RULES), Some(until));
            pauses.push((until - now).as_secs());
            now = until;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        breaker.sign(now, Sign::Answered, RULES);
        assert_eq!(breaker.sign(now, Sign::Busy(None), RULES), Some(now + SECOND));
    }

    #[test]
    fn it_opens_when_so_many_of_late_have_failed() {
        let now = Instant::now();
        let opened = |signs: &[Sign], apart: Duration| {
            let mut breaker = Breaker::default();
            let mut at = (0u32..).map(|n| now + n * apart);
            signs.iter().position(|sign| breaker.sign(at.next().unwrap_or(now), *sign, RULES).is_some())
        };
        let (well, failed) = (Sign::Answered, Sign::Failed(None));
        assert_eq!(opened(&[failed; 5], SECOND), Some(4), "not before there were five");
        assert_eq!(opened(&[well, well, failed, failed, failed], SECOND), Some(4));
        assert_eq!(opened(&[well, well, well, failed, failed], SECOND), None);
        assert_eq!(opened(&[failed; 20], 10 * SECOND), None, "too long ago to count");
    }

    #[test]
    fn a_key_that_is_refused_rests_longer() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        assert_eq!(breaker.sign(now, Sign::Credential, RULES), Some(now + 30 * SECOND));
    }
}
