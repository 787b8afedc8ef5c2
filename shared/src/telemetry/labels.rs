//! Labels whose values are not a closed set, and still few.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use super::metric::Gauge;

/// Stands for every value beyond the cap.
pub const OTHER: &str = "other";
/// Most device classes with a name of their own.
pub const MOST_CLASSES: usize = 64;
/// Most hosts with a name of their own.
pub const MOST_HOSTS: usize = 100;
/// Most devices of one agent process with a name of their own.
pub const MOST_DEVICES: usize = 32;
/// Most models of a gateway with a name of their own.
pub const MOST_MODELS: usize = 64;
/// Most upstreams of a gateway with a name of their own.
pub const MOST_UPSTREAMS: usize = 64;
/// Most routes of an HTTP server with a name of their own.
pub const MOST_ROUTES: usize = 64;

/// The first values that came; all later ones are [`OTHER`].
pub(super) struct Capped {
    most: usize,
    known: Mutex<BTreeSet<String>>,
}

impl Capped {
    pub fn new(most: usize) -> Self {
        Self { most, known: Mutex::default() }
    }

    /// The value, or [`OTHER`] where there are too many.
    pub fn label<'a>(&self, value: &'a str) -> &'a str {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(value) || (known.len() < self.most && known.insert(value.to_owned())) { value } else { OTHER }
    }
}

/// A gauge whose series are replaced as a whole: what is no longer there is no longer said.
pub(super) struct Snapshot<const N: usize> {
    gauge: Gauge<N>,
    shown: Mutex<BTreeSet<[String; N]>>,
}

impl<const N: usize> Snapshot<N> {
    pub fn of(gauge: Gauge<N>) -> Self {
        Self { gauge, shown: Mutex::default() }
    }

    /// These are all. Values of the same labels are folded by `fold`, since several things can be [`OTHER`].
    pub fn replace(&self, now: impl IntoIterator<Item = ([String; N], f64)>, fold: impl Fn(f64, f64) -> f64) {
        let mut values = BTreeMap::new();
        for (labels, value) in now {
            values.entry(labels).and_modify(|sum| *sum = fold(*sum, value)).or_insert(value);
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        // New values first: a scrape in between sees a series too many rather than none.
        for (labels, value) in &values {
            self.gauge.set(labels.each_ref().map(String::as_str), *value);
        }
        for gone in shown.iter().filter(|labels| !values.contains_key(*labels)) {
            self.gauge.remove(gone.each_ref().map(String::as_str));
        }
        *shown = values.into_keys().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metric::{Spec, Unit};
    use crate::telemetry::registry::Registry;

    #[test]
    fn names_beyond_the_cap_are_other() {
        let capped = Capped::new(2);
        assert_eq!(["a", "b", "c", "a", "d"].map(|value| capped.label(value)), ["a", "b", OTHER, "a", OTHER]);
    }

    #[test]
    fn what_is_gone_is_not_said() {
        let registry = Registry::new();
        let gauge = registry.gauge(&Spec::new("kernelopt_things", Unit::Things, ["kind"], "Things.")).unwrap();
        let things = Snapshot::of(gauge);
        let sum = |a, b| a + b;
        things.replace([(["a".into()], 1.0), (["b".into()], 2.0), (["a".into()], 3.0)], sum);
        let text = registry.text().unwrap();
        assert!(text.contains("kernelopt_things{kind=\"a\"} 4\n") && text.contains("kernelopt_things{kind=\"b\"} 2\n"), "{text}");
        things.replace([(["b".into()], 5.0)], sum);
        let text = registry.text().unwrap();
        assert!(!text.contains("\"a\"") && text.contains("kernelopt_things{kind=\"b\"} 5\n"), "{text}");
    }
}
