//! Requests to an HTTP server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::kinds::one_of;
use super::labels::{Capped, MOST_ROUTES, OTHER};
use super::metric::{ANSWERS, Counter, Histogram, Spec, Unit};
use super::registry::{Registry, TelemetryError};

const REQUESTS: Spec<3> = Spec::new(
    "kernelopt_http_requests_total",
    Unit::Events,
    ["method", "route", "status"],
    "Requests answered, by method, template of the route and class of status.",
);
const TOOK: Spec<1> = Spec::new("kernelopt_http_request_seconds", Unit::Seconds, ["route"], "From a request's head to its answer's head.");

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Requests. Clones are the same metrics.
#[derive(Clone)]
pub struct HttpMetrics(Arc<Inner>);

struct Inner {
    routes: Capped,
    requests: Counter<3>,
    took: Histogram<1>,
}

impl fmt::Debug for HttpMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpMetrics").finish_non_exhaustive()
    }
}

impl HttpMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(registry: &Registry) -> Result<Self, TelemetryError> {
        let (requests, took) = (registry.counter(&REQUESTS)?, registry.histogram(&TOOK, ANSWERS)?);
        Ok(Self(Arc::new(Inner { routes: Capped::new(MOST_ROUTES), requests, took })))
    }

    /// A request was answered with `status`. `route` is the template that matched, `/v1/jobs/{id}`; `None` where none did.
    pub fn answered(&self, method: &str, route: Option<&str>, status: u16, took: Duration) {
        let route = route.map_or(OTHER, |route| self.0.routes.label(route));
        let class = match status / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        self.0.requests.add_one([one_of(&METHODS, method), route, class]);
        self.0.took.observe([route], took);
    }
}
