//! Jobs.

use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use kernelopt_shared::api::{DrillSpec, Explanation, JobPage, JobSpec, JobView};
use kernelopt_shared::message::JobId;

use super::desk::JobFilter;
use super::extract::{Json, Path, Query};
use super::refusal::Refusal;
use super::{State, openapi};

/// Submits a job.
#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs", operation_id = "submit_job", security(("token" = [])),
    request_body = JobSpec,
    responses(
        (status = 201, description = "The job, taken", body = JobView, headers(("location" = String, description = "Path of the job"))),
        openapi::Taking,
    )
)]
pub async fn submit(Shared(house): Shared<State>, Json(spec): Json<JobSpec>) -> Result<impl IntoResponse, Refusal> {
    Ok(taken(house.desk.submit(spec).await?))
}

fn taken(job: JobView) -> impl IntoResponse {
    let location = format!("/v1/jobs/{}", job.id);
    (StatusCode::CREATED, [(header::LOCATION, location)], axum::Json(job))
}

/// Begins a drill: a job whose tasks do nothing, to see that a fleet works. It is shown, followed and cancelled as any other job.
#[utoipa::path(
    post, path = "/v1/drills", tag = "jobs", operation_id = "begin_drill", security(("token" = [])),
    request_body = DrillSpec,
    responses(
        (status = 201, description = "The job, taken", body = JobView, headers(("location" = String, description = "Path of the job"))),
        openapi::Taking,
    )
)]
pub async fn drill(Shared(house): Shared<State>, Json(spec): Json<DrillSpec>) -> Result<impl IntoResponse, Refusal> {
    Ok(taken(house.desk.drill(spec).await?))
}

/// Lists jobs, latest first.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", operation_id = "list_jobs", security(("token" = [])), params(JobFilter),
    responses((status = 200, description = "Some of them", body = JobPage), openapi::Asking)
)]
pub async fn list(Shared(house): Shared<State>, Query(wanted): Query<JobFilter>) -> Result<axum::Json<JobPage>, Refusal> {
    Ok(axum::Json(house.desk.jobs(&wanted).await?))
}

/// Shows a job.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "jobs", operation_id = "show_job", security(("token" = [])),
    params(("id" = inline(JobId), Path, description = "The job")),
    responses((status = 200, description = "The job", body = JobView), openapi::Asking)
)]
pub async fn show(Shared(house): Shared<State>, Path(id): Path<JobId>) -> Result<axum::Json<JobView>, Refusal> {
    Ok(axum::Json(house.desk.job(&id).await?))
}

/// Cancels a job. Cancelling it again changes nothing.
#[utoipa::path(
    delete, path = "/v1/jobs/{id}", tag = "jobs", operation_id = "cancel_job", security(("token" = [])),
    params(("id" = inline(JobId), Path, description = "The job")),
    responses((status = 200, description = "The job, cancelled", body = JobView), openapi::Changing)
)]
pub async fn cancel(Shared(house): Shared<State>, Path(id): Path<JobId>) -> Result<axum::Json<JobView>, Refusal> {
    Ok(axum::Json(house.desk.cancel(&id).await?))
}

/// Says why a job is where it is, or why nothing happens.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/explain", tag = "jobs", operation_id = "explain_job", security(("token" = [])),
    params(("id" = inline(JobId), Path, description = "The job")),
    responses((status = 200, description = "In sentences", body = Explanation), openapi::Asking)
)]
pub async fn explain(Shared(house): Shared<State>, Path(id): Path<JobId>) -> Result<axum::Json<Explanation>, Refusal> {
    Ok(axum::Json(house.desk.explain(&id).await?))
}
