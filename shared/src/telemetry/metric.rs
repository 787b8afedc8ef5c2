//! How a metric is declared, and handles that cannot be given the wrong number of labels.

use std::time::Duration;

use prometheus::{GaugeVec, HistogramVec, IntCounterVec};

/// What a metric's value counts or measures. It decides the end of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Events since the start of the process.
    Events,
    /// Things that there are now.
    Things,
    /// Yes or no, one or zero.
    Flag,
    /// Always one; the labels are the message.
    Info,
    /// Time.
    Seconds,
    /// One thing over another, one is the whole.
    Ratio,
    /// Temperature.
    Celsius,
    /// Power.
    Watts,
    /// Frequency.
    Hertz,
}

impl Unit {
    /// What a name of this unit ends with (Prometheus, "Metric and label naming"); nothing where the name is that of the things.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Events => "_total",
            Self::Things | Self::Flag => "",
            Self::Info => "_info",
            Self::Seconds => "_seconds",
            Self::Ratio => "_ratio",
            Self::Celsius => "_celsius",
            Self::Watts => "_watts",
            Self::Hertz => "_hertz",
        }
    }
}

/// How a metric's value changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It rises, and starts at zero with the process.
    Counter,
    /// It is what it is now.
    Gauge,
    /// Durations by size.
    Histogram,
}

/// A metric as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its whole name.
    pub name: &'static str,
    /// How it changes.
    pub kind: Kind,
    /// What it measures.
    pub unit: Unit,
    /// Names of its labels.
    pub labels: Vec<&'static str>,
    /// One sentence for people.
    pub help: &'static str,
}

/// A metric with `N` labels, before it is registered.
pub(super) struct Spec<const N: usize> {
    pub name: &'static str,
    pub unit: Unit,
    pub labels: [&'static str; N],
    pub help: &'static str,
}

impl<const N: usize> Spec<N> {
    /// Declares a metric.
    pub const fn new(name: &'static str, unit: Unit, labels: [&'static str; N], help: &'static str) -> Self {
        Self { name, unit, labels, help }
    }

    /// For the list of everything that a process says.
    pub fn declared(&self, kind: Kind) -> Declared {
        Declared { name: self.name, kind, unit: self.unit, labels: self.labels.to_vec(), help: self.help }
    }
}

/// A number of events by `N` labels. As many values as labels are the one thing that Prometheus' own lookup can refuse, and the type sees to that;
/// so here and below a refusal is passed over.
#[derive(Clone)]
pub(super) struct Counter<const N: usize>(pub(super) IntCounterVec);

impl<const N: usize> Counter<N> {
    /// One more.
    pub fn add_one(&self, labels: [&str; N]) {
        self.add(labels, 1);
    }

    /// So many more. Zero makes the series appear, so that its first event is seen as a rise.
    pub fn add(&self, labels: [&str; N], events: u64) {
        if let Ok(counter) = self.0.get_metric_with_label_values(&labels) {
            counter.inc_by(events);
        }
    }
}

/// A value by `N` labels.
#[derive(Clone)]
pub(super) struct Gauge<const N: usize>(pub(super) GaugeVec);

impl<const N: usize> Gauge<N> {
    /// It is this now.
    pub fn set(&self, labels: [&str; N], value: f64) {
        if let Ok(gauge) = self.0.get_metric_with_label_values(&labels) {
            gauge.set(value);
        }
    }

    /// Nothing is said of it any more.
    pub fn remove(&self, labels: [&str; N]) {
        // An error says that there was none.
        let _ = self.0.remove_label_values(&labels);
    }

    /// One of a closed set holds: one for it, zero for all others.
    pub fn choose(&self, of: &[&str], chosen: &str, with: impl Fn(&str) -> [String; N]) {
        for value in of {
            let labels = with(value);
            self.set(labels.each_ref().map(String::as_str), f64::from(u8::from(*value == chosen)));
        }
    }
}

/// Durations by `N` labels.
#[derive(Clone)]
pub(super) struct Histogram<const N: usize>(pub(super) HistogramVec);

impl<const N: usize> Histogram<N> {
    /// Something took so long.
    pub fn observe(&self, labels: [&str; N], took: Duration) {
        if let Ok(histogram) = self.0.get_metric_with_label_values(&labels) {
            histogram.observe(took.as_secs_f64());
        }
    }

    /// Makes the series appear.
    pub fn expect(&self, labels: [&str; N]) {
        let _ = self.0.get_metric_with_label_values(&labels);
    }
}

/// Bounds in seconds for what a machine answers: a disk, a broker, a request.
pub(super) const ANSWERS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Bounds in seconds for work: from a cached build to the gate of a large model.
pub(super) const WORK: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0];
/// Bounds in seconds for waiting in a queue and for leases: from an idle fleet to a night.
pub(super) const WAITS: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0];
