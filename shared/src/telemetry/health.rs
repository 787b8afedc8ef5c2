//! Whether a process lives, and whether it can do its work: two questions with two answers.
//!
//! *Alive* means that its main loop turns. Where it does not, a restart may help, and nothing else does.
//! *Ready* means that what it needs is there: a journal that can be written, a broker that answers. A restart would not bring it. A long
//! queue, a busy GPU or a Redis that is away are neither: work goes on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A process's health. Clones are the same.
#[derive(Clone)]
pub struct Health(Arc<Inner>);

struct Inner {
    longest_turn: Duration,
    turned: Mutex<Instant>,
    /// What is wrong with each condition; `None` where it is met.
    conditions: Mutex<BTreeMap<&'static str, Option<String>>>,
}

impl Health {
    /// Of a process whose main loop turns at least once in `longest_turn`, and which can work while all of `conditions` are met. None is at
    /// first.
    pub fn new(longest_turn: Duration, conditions: impl IntoIterator<Item = &'static str>) -> Self {
        let conditions = conditions.into_iter().map(|name| (name, Some("starting".to_owned()))).collect();
        Self(Arc::new(Inner { longest_turn, turned: Mutex::new(Instant::now()), conditions: Mutex::new(conditions) }))
    }

    /// The main loop has turned.
    pub fn turned(&self) {
        *self.0.turned.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// A condition is met.
    pub fn met(&self, condition: &'static str) {
        self.set(condition, None);
    }

    /// A condition is not met, and why. Shown to whoever asks: no secrets.
    pub fn unmet(&self, condition: &'static str, reason: impl Into<String>) {
        self.set(condition, Some(reason.into()));
    }

    fn set(&self, condition: &'static str, wrong: Option<String>) {
        self.0.conditions.lock().unwrap_or_else(PoisonError::into_inner).insert(condition, wrong);
    }

    /// How long the loop has not turned, where that is too long.
    pub fn stuck(&self) -> Option<Duration> {
        let still = self.0.turned.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        (still > self.0.longest_turn).then_some(still)
    }

    /// Conditions that are not met, each with its reason.
    pub fn wanting(&self) -> Vec<(&'static str, String)> {
        let conditions = self.0.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        conditions.iter().filter_map(|(name, wrong)| Some((*name, wrong.clone()?))).collect()
    }

    /// True where nothing is wanting.
    pub fn is_ready(&self) -> bool {
        self.wanting().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_when_nothing_is_wanting() {
        let health = Health::new(Duration::from_secs(60), ["journal", "broker"]);
        assert_eq!(health.wanting(), [("broker", "starting".to_owned()), ("journal", "starting".to_owned())]);
        health.met("journal");
        health.unmet("broker", "connection refused");
        assert_eq!(health.wanting(), [("broker", "connection refused".to_owned())]);
        health.met("broker");
        assert!(health.is_ready());
    }

    #[test]
    fn a_loop_that_does_not_turn_is_stuck() {
        let health = Health::new(Duration::from_millis(20), []);
        std::thread::sleep(Duration::from_millis(40));
        assert!(health.stuck().is_some_and(|still| still >= Duration::from_millis(40)));
        health.turned();
        assert_eq!(health.stuck(), None);
    }
}
