//! Path, query and body of a request, typed; what cannot be read becomes a problem document.

use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use kernelopt_shared::api::ProblemKind;
use serde::de::DeserializeOwned;

use super::House;
use super::refusal::Refusal;

/// The parameter in a path.
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let found = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        let axum::extract::Path(value) = found.map_err(|e| Refusal::new(ProblemKind::Malformed, e.body_text()))?;
        Ok(Self(value))
    }
}

/// The parameters after the question mark.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let found = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        let axum::extract::Query(value) = found.map_err(|e| Refusal::new(ProblemKind::Malformed, e.body_text()))?;
        Ok(Self(value))
    }
}

/// Longest key of a submission, in bytes.
const LONGEST_KEY: usize = 64;

/// What a client calls one wish: a request that is repeated with the same key is the same wish.
pub struct IdempotencyKey(pub Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        let Some(value) = parts.headers.get("idempotency-key") else { return Ok(Self(None)) };
        let plain = |key: &&str| (1..=LONGEST_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
        let what = format!("idempotency-key is not 1 to {LONGEST_KEY} printable characters");
        let key = value.to_str().ok().filter(plain).ok_or_else(|| Refusal::new(ProblemKind::Malformed, what))?;
        Ok(Self(Some(key.to_owned())))
    }
}

/// A body of JSON, of bounded size and in bounded time.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<super::State> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &super::State) -> Result<Self, Refusal> {
        let House { limits, .. } = state.as_ref();
        let read = axum::Json::<T>::from_request(request, state);
        match tokio::time::timeout(limits.json_within, read).await {
            Ok(Ok(axum::Json(value))) => Ok(Self(value)),
            Ok(Err(rejection)) => Err(unreadable(&rejection)),
            Err(_) => Err(Refusal::new(ProblemKind::TooSlow, format!("no whole body within {} s", limits.json_within.as_secs()))),
        }
    }
}

fn unreadable(rejection: &JsonRejection) -> Refusal {
    let (kind, remedy) = match rejection.status() {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => (ProblemKind::UnsupportedMediaType, Some("Send content-type: application/json.")),
        StatusCode::PAYLOAD_TOO_LARGE => (ProblemKind::TooLarge, None),
        StatusCode::UNPROCESSABLE_ENTITY => (ProblemKind::Refused, Some("GET /openapi.json says what a request may hold.")),
        _ => (ProblemKind::Malformed, None),
    };
    let refusal = Refusal::new(kind, rejection.body_text());
    remedy.into_iter().fold(refusal, Refusal::with_remedy)
}
