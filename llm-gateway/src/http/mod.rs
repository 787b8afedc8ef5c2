//! The gateway over HTTP.
//!
//! | route | |
//! |---|---|
//! | `POST /v1/chat/completions` | a completion, in OpenAI's dialect |
//! | `POST /v1/messages` | a completion, in Anthropic's dialect |
//! | `GET /v1/models`, `GET /v1/models/{model}` | models that the key may call |
//! | `/v1/files`, `/v1/batches` | OpenAI's batches |
//! | `POST /v1/reload` | reads the settings again; for keys of operators |
//! | `/healthz`, `/readyz`, `/metrics` | for probes and Prometheus; they need no key |
//!
//! Every other route needs a key, as `authorization: Bearer KEY` or `x-api-key: KEY`. Whatever goes wrong leaves in the dialect of the caller.

mod batches;
mod body;
mod caller;
mod completions;
mod files;
mod models;
mod respond;
mod server;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State as Shared};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use kernelopt_shared::api::REQUEST_ID;
use kernelopt_shared::http_server::{RequestIds, request_id};
use kernelopt_shared::telemetry::HttpMetrics;
use kernelopt_shared::telemetry::server::{Telemetry, router as telemetry_router};
use tokio_util::sync::CancellationToken;

use crate::batch::Batches;
use crate::dialect::{Fault, Problem};
use crate::gateway::Gateway;
use caller::dialect_of;
use respond::Refusal;

pub use caller::{DEADLINE, JOB, PRIORITY, SAMPLE};
pub use respond::{CACHE, COST};
pub use server::{Server, ServerError};

/// What all requests share.
pub(crate) struct House {
    gateway: Arc<Gateway>,
    request_ids: RequestIds,
    metrics: HttpMetrics,
    /// Kept where the settings name a folder.
    batches: Option<Arc<Batches>>,
    /// The server ends.
    stop: CancellationToken,
}

type State = Arc<House>;

fn router(house: State, telemetry: Telemetry) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(completions::openai))
        .route("/v1/messages", post(completions::anthropic))
        .route("/v1/models", get(models::list))
        // Names of models may hold slashes.
        .route("/v1/models/{*model}", get(models::show))
        .route("/v1/files", post(files::upload).layer(DefaultBodyLimit::disable()).get(files::list))
        .route("/v1/files/{id}", get(files::show).delete(files::delete))
        .route("/v1/files/{id}/content", get(files::content))
        .route("/v1/batches", post(batches::create).get(batches::list))
        .route("/v1/batches/{id}", get(batches::show))
        .route("/v1/batches/{id}/cancel", post(batches::cancel))
        .route("/v1/reload", post(reload))
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(house.clone(), attend))
        .with_state(house)
        .merge(telemetry_router(telemetry))
}

/// Names the request, counts it, and writes a line of log, without what was said.
async fn attend(Shared(house): Shared<State>, request: Request, next: Next) -> Response {
    let id = house.request_ids.of(request.headers());
    let (method, began) = (request.method().clone(), Instant::now());
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let mut response = request_id::scope(id.clone(), next.run(request)).await;
    let headers = response.headers_mut();
    headers.extend(request_id::header(&id).map(|value| (header::HeaderName::from_static(REQUEST_ID), value)));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    let (status, took) = (response.status().as_u16(), began.elapsed());
    house.metrics.answered(method.as_str(), route.as_deref(), status, took);
    let (route, ms) = (route.as_deref().unwrap_or("-"), took.as_millis() as u64);
    // A line for each of tens of thousands a second would cost more than they do.
    if status < 400 {
        tracing::debug!(%method, route, status, ms, id, "request");
    } else {
        tracing::info!(%method, route, status, ms, id, "request");
    }
    response
}

async fn reload(Shared(house): Shared<State>, headers: axum::http::HeaderMap) -> Result<Response, Refusal> {
    let dialect = dialect_of(&headers);
    house.operator(&headers).map_err(|problem| Refusal(dialect, problem))?;
    match tokio::task::spawn_blocking({
        let gateway = house.gateway.clone();
        move || gateway.reload()
    })
    .await
    {
        Ok(Ok(())) => Ok((StatusCode::OK, axum::Json(serde_json::json!({"reloaded": true}))).into_response()),
        Ok(Err(error)) => Err(Refusal(dialect, Problem::new(Fault::Invalid, format!("the old settings stay in force: {error}")))),
        Err(_) => Err(Refusal(dialect, Problem::new(Fault::Internal, "reloading failed"))),
    }
}

async fn no_such_route(request: Request) -> Refusal {
    let path: String = request.uri().path().chars().take(100).collect();
    Refusal(dialect_of(request.headers()), Problem::new(Fault::NotFound, format!("there is nothing at {path:?}")))
}

async fn no_such_method(method: Method, request: Request) -> Refusal {
    let path: String = request.uri().path().chars().take(100).collect();
    Refusal(dialect_of(request.headers()), Problem::new(Fault::MethodNotAllowed, format!("{path:?} has no {method}")))
}
