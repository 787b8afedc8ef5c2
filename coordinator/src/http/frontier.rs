//! The best that is known.

use axum::extract::State as Shared;
use kernelopt_shared::api::FrontierPage;

use super::desk::FrontierFilter;
use super::extract::Query;
use super::refusal::Refusal;
use super::{State, openapi};

/// Lists the best confirmed candidate of each kernel and class of devices.
#[utoipa::path(
    get, path = "/v1/frontier", tag = "frontier", operation_id = "list_frontier", security(("token" = [])), params(FrontierFilter),
    responses((status = 200, description = "Some of it", body = FrontierPage), openapi::Asking)
)]
pub async fn list(Shared(house): Shared<State>, Query(wanted): Query<FrontierFilter>) -> Result<axum::Json<FrontierPage>, Refusal> {
    Ok(axum::Json(house.desk.frontier(&wanted).await?))
}
