//! Jobs.

use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use kernelopt_shared::api::{DrillSpec, Explanation, JobPage, JobSpec, JobView};
use kernelopt_shared::message::JobId;

use super::desk::{JobFilter, Submitted};
use super::extract::{IdempotencyKey, Json, Path, Query};
use super::refusal::Refusal;
use super::{State, openapi};

/// Submits a job. Repeated with the same key, as after a connection that was cut, it makes one job.
#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs", operation_id = "submit_job", security(("token" = [])),
    request_body = JobSpec,
    params(("idempotency-key" = Option<String>, Header, description = "Drawn by the client, one for each job: 1 to 64 printable characters",
        min_length = 1, max_length = 64, pattern = "^[!-~]*$")),
    responses(
        (status = 200, description = "The job that a request with this key made before", body = JobView),
        (status = 201, description = "The job, taken", body = JobView, headers(("location" = String, description = "Path of the job"))),
        openapi::Taking,
    )
)]
pub async fn submit(
    Shared(house): Shared<State>,
    IdempotencyKey(key): IdempotencyKey,
    Json(spec): Json<JobSpec>,
) -> Result<impl IntoResponse, Refusal> {
    let Submitted { job, is_new } = house.desk.submit(spec, key.as_deref()).await?;
    Ok(taken(if is_new { StatusCode::CREATED } else { StatusCode::OK }, job))
}

fn taken(status: StatusCode, job: JobView) -> impl IntoResponse {
    let location = format!("/v1/jobs/{}", job.id);
    (status, [(header::LOCATION, location)], axum::Json(job))
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
    Ok(taken(StatusCode::CREATED, house.desk.drill(spec).await?))
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
