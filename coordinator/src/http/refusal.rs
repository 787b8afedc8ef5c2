//! How an error leaves the server: always a problem document (RFC 9457), never a bare status.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kernelopt_shared::api::{PROBLEM_JSON, Problem, ProblemKind};
use kernelopt_shared::http_server::request_id;

use super::desk::DeskError;

/// Seconds after which a client that was turned away may come again.
const RETRY_AFTER_S: &str = "2";

/// An error on its way to the client.
#[derive(Clone, Debug)]
pub struct Refusal {
    kind: ProblemKind,
    problem: Box<Problem>,
}

impl Refusal {
    /// A refusal of `kind`.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self { kind, problem: Box::new(Problem::new(kind, detail)) }
    }

    /// Adds what to do.
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.problem.remedy = Some(remedy.into());
        self
    }

    /// The document, named by the request that is being answered.
    pub fn into_problem(self) -> Problem {
        Problem { request_id: request_id::current(), ..*self.problem }
    }

    /// What an I/O error of the server's own disk means for a client.
    pub fn of_disk(doing: &str, error: &std::io::Error) -> Self {
        tracing::error!(doing, %error, "disk");
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::new(ProblemKind::StorageFull, format!("{doing}: no space is left on the coordinator's disk"))
            }
            _ => Self::new(ProblemKind::Unavailable, format!("{doing}: the coordinator's disk failed: {}", error.kind())),
        }
    }
}

impl From<DeskError> for Refusal {
    fn from(error: DeskError) -> Self {
        match error {
            DeskError::NotFound(what) => Self::new(ProblemKind::NotFound, what),
            DeskError::Conflict(what) => Self::new(ProblemKind::Conflict, what),
            DeskError::Refused { what, remedy } => Self::new(ProblemKind::Refused, what).with_remedy(remedy),
            DeskError::StorageFull(what) => Self::new(ProblemKind::StorageFull, what),
            DeskError::Unavailable(what) => Self::new(ProblemKind::Unavailable, what),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let extra: Option<(HeaderName, &'static str)> = match self.kind {
            ProblemKind::Unauthorized => Some((header::WWW_AUTHENTICATE, "Bearer")),
            ProblemKind::Busy | ProblemKind::Unavailable => Some((header::RETRY_AFTER, RETRY_AFTER_S)),
            // What is left of the request is not read.
            ProblemKind::TooLarge | ProblemKind::TooSlow => Some((header::CONNECTION, "close")),
            _ => None,
        };
        let body = serde_json::to_vec(&self.into_problem()).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        if let Some((name, value)) = extra {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
