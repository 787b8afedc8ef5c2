//! Agents, and orders to them.

use axum::extract::State as Shared;
use kernelopt_shared::api::{AgentList, QuarantineOrder};
use kernelopt_shared::message::HostName;

use super::desk::AgentOrder;
use super::extract::{Json, Path};
use super::refusal::Refusal;
use super::{House, State, openapi};

/// Lists all agents.
#[utoipa::path(
    get, path = "/v1/agents", tag = "agents", operation_id = "list_agents", security(("token" = [])),
    responses((status = 200, description = "All that were heard of", body = AgentList), openapi::Asking)
)]
pub async fn list(Shared(house): Shared<State>) -> Result<axum::Json<AgentList>, Refusal> {
    Ok(axum::Json(house.desk.agents().await?))
}

/// Has a host's agents end what they have and leave.
#[utoipa::path(
    post, path = "/v1/agents/{host}/drain", tag = "agents", operation_id = "drain_host", security(("token" = [])),
    params(("host" = inline(HostName), Path, description = "The agent's name without its device; a slash in it is written %2F")),
    responses((status = 200, description = "The host's agents as they are now", body = AgentList), openapi::Changing)
)]
pub async fn drain(Shared(house): Shared<State>, Path(host): Path<HostName>) -> Result<axum::Json<AgentList>, Refusal> {
    order(&house, &host, AgentOrder::Drain).await
}

/// Keeps a host's agents from taking tasks until they are readmitted.
#[utoipa::path(
    post, path = "/v1/agents/{host}/quarantine", tag = "agents", operation_id = "quarantine_host", security(("token" = [])),
    params(("host" = inline(HostName), Path, description = "The agent's name without its device; a slash in it is written %2F")),
    request_body = QuarantineOrder,
    responses((status = 200, description = "The host's agents as they are now", body = AgentList), openapi::Taking)
)]
pub async fn quarantine(
    Shared(house): Shared<State>,
    Path(host): Path<HostName>,
    Json(body): Json<QuarantineOrder>,
) -> Result<axum::Json<AgentList>, Refusal> {
    order(&house, &host, AgentOrder::Quarantine(body.reason)).await
}

/// Has a host's agents test themselves and take tasks again.
#[utoipa::path(
    post, path = "/v1/agents/{host}/readmit", tag = "agents", operation_id = "readmit_host", security(("token" = [])),
    params(("host" = inline(HostName), Path, description = "The agent's name without its device; a slash in it is written %2F")),
    responses((status = 200, description = "The host's agents as they are now", body = AgentList), openapi::Changing)
)]
pub async fn readmit(Shared(house): Shared<State>, Path(host): Path<HostName>) -> Result<axum::Json<AgentList>, Refusal> {
    order(&house, &host, AgentOrder::Readmit).await
}

async fn order(house: &House, host: &HostName, order: AgentOrder) -> Result<axum::Json<AgentList>, Refusal> {
    tracing::info!(%host, ?order, "order to agents");
    Ok(axum::Json(house.desk.order(host, order).await?))
}
