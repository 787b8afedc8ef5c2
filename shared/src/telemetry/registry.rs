//! All metrics of one process.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::Collector;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, TextEncoder};

use super::labels::{Capped, MOST_CLASSES};
use super::metric::{Counter, Declared, Gauge, Histogram, Kind, Spec};

/// The metrics of one process. Clones are the same registry.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    series: prometheus::Registry,
    declared: Mutex<Vec<Declared>>,
    /// Device classes that have a name in labels: the same ones in all metrics, so that they can be joined.
    classes: Arc<Capped>,
}

/// A metric that cannot be registered or written: a fault of this program.
#[derive(Debug, thiserror::Error)]
#[error("metric {metric}: {reason}")]
pub struct TelemetryError {
    metric: String,
    reason: String,
}

impl Default for Registry {
    fn default() -> Self {
        Self(Arc::new(Inner {
            series: prometheus::Registry::new(),
            declared: Mutex::default(),
            classes: Arc::new(Capped::new(MOST_CLASSES)),
        }))
    }
}

impl Registry {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every metric that was registered, moved or not, by name.
    pub fn declared(&self) -> Vec<Declared> {
        let mut declared = self.0.declared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        declared.sort_by_key(|metric| metric.name);
        declared
    }

    /// Everything in Prometheus' text format, version 0.0.4.
    ///
    /// # Errors
    /// Some metric cannot be written: a fault of this program.
    pub fn text(&self) -> Result<String, TelemetryError> {
        TextEncoder::new()
            .encode_to_string(&self.0.series.gather())
            .map_err(|error| TelemetryError { metric: "text".into(), reason: error.to_string() })
    }

    pub(super) fn classes(&self) -> Arc<Capped> {
        Arc::clone(&self.0.classes)
    }

    pub(super) fn counter<const N: usize>(&self, spec: &Spec<N>) -> Result<Counter<N>, TelemetryError> {
        let made = IntCounterVec::new(Opts::new(spec.name, spec.help), &spec.labels);
        self.register(spec.declared(Kind::Counter), made).map(Counter)
    }

    pub(super) fn gauge<const N: usize>(&self, spec: &Spec<N>) -> Result<Gauge<N>, TelemetryError> {
        let made = GaugeVec::new(Opts::new(spec.name, spec.help), &spec.labels);
        self.register(spec.declared(Kind::Gauge), made).map(Gauge)
    }

    pub(super) fn histogram<const N: usize>(&self, spec: &Spec<N>, bounds: &[f64]) -> Result<Histogram<N>, TelemetryError> {
        let made = HistogramVec::new(HistogramOpts::new(spec.name, spec.help).buckets(bounds.to_vec()), &spec.labels);
        self.register(spec.declared(Kind::Histogram), made).map(Histogram)
    }

    fn register<M: Collector + Clone + 'static>(&self, declared: Declared, made: prometheus::Result<M>) -> Result<M, TelemetryError> {
        let name = declared.name;
        let failed = |error: prometheus::Error| TelemetryError { metric: name.into(), reason: error.to_string() };
        let metric = made.map_err(failed)?;
        self.0.series.register(Box::new(metric.clone())).map_err(failed)?;
        self.0.declared.lock().unwrap_or_else(PoisonError::into_inner).push(declared);
        Ok(metric)
    }
}
