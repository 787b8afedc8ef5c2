//! What Kubernetes, systemd and Prometheus ask.

use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use kernelopt_shared::api::{Problem, ProblemKind, Readiness, ReadinessCheck};

use super::State;
use super::refusal::Refusal;

/// Whether the coordinator's loop turns. A full queue or a lost broker does not matter here: starting again would not help.
#[utoipa::path(
    get, path = "/healthz", tag = "probes", operation_id = "health", security(()),
    responses(
        (status = 200, description = "It turns", body = String, content_type = "text/plain"),
        (status = 503, description = "It does not", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn health(Shared(house): Shared<State>) -> Result<&'static str, Refusal> {
    match tokio::time::timeout(house.limits.turn_within, house.desk.turn()).await {
        Ok(turned) => Ok(turned.map(|()| "ok\n")?),
        Err(_) => Err(stuck(house.limits.turn_within.as_secs())),
    }
}

/// Whether the coordinator can do its work: the journal can be written and the broker is reached.
#[utoipa::path(
    get, path = "/readyz", tag = "probes", operation_id = "readiness", security(()),
    responses((status = 200, description = "It can", body = Readiness), (status = 503, description = "It cannot, and why", body = Readiness))
)]
pub async fn ready(Shared(house): Shared<State>) -> impl IntoResponse {
    let within = house.limits.turn_within;
    let readiness = tokio::time::timeout(within, house.desk.readiness()).await.unwrap_or_else(|_| {
        let detail = Some(format!("no answer within {} s", within.as_secs()));
        Readiness::of(vec![ReadinessCheck { what: "coordinator".into(), holds: false, detail }])
    });
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(readiness))
}

/// Every metric, for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "probes", operation_id = "metrics", security(()),
    responses((status = 200, description = "Prometheus text format 0.0.4", body = String, content_type = "text/plain"))
)]
pub async fn metrics(Shared(house): Shared<State>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], (house.metrics)())
}

fn stuck(seconds: u64) -> Refusal {
    Refusal::new(ProblemKind::Unavailable, format!("the coordinator's loop did not turn within {seconds} s"))
}
