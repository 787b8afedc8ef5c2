//! Which program this is and how it fares.

use std::time::{SystemTime, UNIX_EPOCH};

use super::metric::{Gauge, Spec, Unit};
use super::registry::{Registry, TelemetryError};

const BUILD: Spec<2> =
    Spec::new("kernelopt_build_info", Unit::Info, ["version", "process"], "Version of the program and what it does here; always 1.");
const START: Spec<0> = Spec::new("kernelopt_start_time_seconds", Unit::Seconds, [], "When the process started, in seconds since 1970.");
const READY: Spec<0> = Spec::new("kernelopt_ready", Unit::Flag, [], "1 while the process can do its work, as /readyz says.");

/// Of every process.
#[derive(Clone)]
pub struct ProcessMetrics {
    ready: Gauge<0>,
}

impl ProcessMetrics {
    /// Registers them; `process` is `coordinator`, `agent` or `gateway`, and it started now.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(registry: &Registry, process: &'static str) -> Result<Self, TelemetryError> {
        registry.gauge(&BUILD)?.set([env!("CARGO_PKG_VERSION"), process], 1.0);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        registry.gauge(&START)?.set([], since_1970.as_secs_f64());
        let ready = registry.gauge(&READY)?;
        ready.set([], 0.0);
        Ok(Self { ready })
    }

    /// Whether it can do its work; [`super::server`] says it at every scrape.
    pub fn ready(&self, ready: bool) {
        self.ready.set([], f64::from(u8::from(ready)));
    }
}
