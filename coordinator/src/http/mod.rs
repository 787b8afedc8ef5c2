//! The coordinator's HTTP API: JSON, bearer tokens, an OpenAPI document that is derived from the code.
//!
//! | route | needs | |
//! |---|---|---|
//! | `PUT GET HEAD /v1/blobs/{digest}` | submitter or agent; `GET`: agent | bundles and optimised files, by their digest |
//! | `POST GET /v1/jobs`, `GET DELETE /v1/jobs/{id}` | submitter; `GET`: viewer | jobs |
//! | `POST /v1/drills` | operator | jobs whose tasks do nothing |
//! | `GET /v1/jobs/{id}/events` | viewer | its journal, as it is written (server-sent events) |
//! | `GET /v1/jobs/{id}/outputs` | viewer | what it left behind (tar) |
//! | `GET /v1/jobs/{id}/explain` | viewer | why it is where it is |
//! | `GET /v1/agents`, `POST /v1/agents/{host}/{drain,quarantine,readmit}` | viewer; orders: operator | agents |
//! | `GET /v1/frontier` | viewer | the best that is known |
//! | `/openapi.json`, `/healthz`, `/readyz`, `/metrics` | nothing | |
//!
//! The server knows a coordinator only as a [`Desk`]. Whatever goes wrong leaves as a problem document (RFC 9457), errors of the router
//! included. Without tokens it listens on the loopback interface alone and takes no request that a web page can make.

mod agents;
mod blobs;
mod desk;
mod events;
mod extract;
mod frontier;
mod guard;
mod jobs;
mod limits;
mod openapi;
mod outputs;
mod probes;
mod refusal;
mod server;
mod tokens;
pub mod view;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, head, post, put};
use kernelopt_shared::http_server::RequestIds;
use kernelopt_shared::telemetry::HttpMetrics;
use tokio_util::sync::CancellationToken;

pub use desk::{AgentOrder, BlobContent, Desk, DeskError, EventPage, FrontierFilter, JobFilter, Submitted};
pub use limits::Limits;
pub use openapi::document;
pub use server::{Options, Server, ServerError};
pub use tokens::{Access, Role, Tokens, TokensError};

use guard::{needs, quick};

/// Text of `/metrics`, made when it is asked for.
pub type Metrics = Arc<dyn Fn() -> String + Send + Sync>;

/// What all requests share.
pub(crate) struct House {
    desk: Arc<dyn Desk>,
    metrics: Metrics,
    /// None: everybody on this host may do everything.
    tokens: Option<Tokens>,
    limits: Limits,
    rooms: limits::Rooms,
    /// Where uploads lie until they are whole.
    spool: PathBuf,
    request_ids: RequestIds,
    /// Who counts requests.
    counted: Option<HttpMetrics>,
    /// The server ends: streams do too.
    stop: CancellationToken,
}

/// How handlers get it.
pub(crate) type State = Arc<House>;

/// Every route, with what it needs.
fn router(house: State) -> Router {
    let needs = |access, routes| needs(&house, access, routes);
    let answered_at_once = Router::new()
        .route("/v1/jobs", needs(Access::See, get(jobs::list)).merge(needs(Access::Submit, post(jobs::submit))))
        .route("/v1/jobs/{id}", needs(Access::See, get(jobs::show)).merge(needs(Access::Submit, delete(jobs::cancel))))
        .route("/v1/jobs/{id}/explain", needs(Access::See, get(jobs::explain)))
        .route("/v1/drills", needs(Access::Operate, post(jobs::drill)))
        .route("/v1/agents", needs(Access::See, get(agents::list)))
        .route("/v1/agents/{host}/drain", needs(Access::Operate, post(agents::drain)))
        .route("/v1/agents/{host}/quarantine", needs(Access::Operate, post(agents::quarantine)))
        .route("/v1/agents/{host}/readmit", needs(Access::Operate, post(agents::readmit)))
        .route("/v1/frontier", needs(Access::See, get(frontier::list)))
        .route_layer(from_fn_with_state(house.clone(), quick));
    let blob = needs(Access::ReadBlob, get(blobs::read)).merge(needs(Access::KeepBlob, head(blobs::probe).merge(put(blobs::keep))));
    let lasting = Router::new()
        .route("/v1/blobs/{digest}", blob)
        .route("/v1/jobs/{id}/events", needs(Access::See, get(events::follow)))
        .route("/v1/jobs/{id}/outputs", needs(Access::See, get(outputs::fetch)));
    let open = Router::new()
        .route("/openapi.json", get(openapi::show))
        .route("/healthz", get(probes::health))
        .route("/readyz", get(probes::ready))
        .route("/metrics", get(probes::metrics));
    answered_at_once
        .merge(lasting)
        .merge(open)
        .fallback(guard::no_such_path)
        .method_not_allowed_fallback(guard::no_such_method)
        .layer(DefaultBodyLimit::max(house.limits.json_bytes))
        .layer(from_fn_with_state(house.clone(), guard::attend))
        .with_state(house)
}
