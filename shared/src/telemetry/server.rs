//! `/metrics`, `/healthz` and `/readyz`: [`router`] for a server that has more to serve, [`serve`] for a process that has not.

use std::io;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::health::Health;
use super::process::ProcessMetrics;
use super::registry::Registry;

/// Prometheus' text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is served of a process.
#[derive(Clone)]
pub struct Telemetry {
    /// Its metrics.
    pub registry: Registry,
    /// Those that every process has.
    pub process: ProcessMetrics,
    /// Whether it lives and can work.
    pub health: Health,
}

/// The three routes. They ask for no token: what they say holds no secret and no user's data.
pub fn router(telemetry: Telemetry) -> Router {
    Router::new().route("/metrics", get(metrics)).route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(telemetry)
}

/// Serves them until told to stop.
///
/// # Errors
/// The socket fails.
pub async fn serve(listener: TcpListener, telemetry: Telemetry, stop: CancellationToken) -> io::Result<()> {
    axum::serve(listener, router(telemetry)).with_graceful_shutdown(stop.cancelled_owned()).await
}

async fn metrics(State(telemetry): State<Telemetry>) -> Response {
    telemetry.process.ready(telemetry.health.is_ready());
    match telemetry.registry.text() {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn healthz(State(telemetry): State<Telemetry>) -> Response {
    match telemetry.health.stuck() {
        None => "alive\n".into_response(),
        Some(still) => (StatusCode::SERVICE_UNAVAILABLE, format!("the loop has not turned for {} s\n", still.as_secs())).into_response(),
    }
}

async fn readyz(State(telemetry): State<Telemetry>) -> Response {
    let wanting = telemetry.health.wanting();
    if wanting.is_empty() {
        return "ready\n".into_response();
    }
    let lines: String = wanting.iter().map(|(condition, reason)| format!("{condition}: {reason}\n")).collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}
