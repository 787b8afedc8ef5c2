//! Answers and errors as HTTP responses. Headers of upstreams are not among them.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use kernelopt_shared::http_server::request_id;

use crate::dialect::{Dialect, Fault, Problem};
use crate::flight::Charged;

/// What an answer cost, in billionths of a US dollar; not there where no price is known.
pub const COST: &str = "x-kernelopt-cost-nanousd";
/// `hit` where an answer comes from the cache.
pub const CACHE: &str = "x-kernelopt-cache";

/// An error on its way to a caller who speaks this dialect.
#[derive(Debug)]
pub struct Refusal(pub Dialect, pub Problem);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(dialect, problem) = self;
        let id = request_id::current();
        let mut response = (problem.status(dialect), axum::Json(problem.body(dialect, id.as_deref()))).into_response();
        let headers = response.headers_mut();
        headers.extend(problem.headers());
        if problem.fault == Fault::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if problem.fault == Fault::TooLarge {
            // What is left of the request is not read.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// An answer in one piece.
pub fn whole(body: Bytes, charged: &Charged) -> Response {
    let mut response = ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response();
    if let Some(cost) = charged.cost {
        response.headers_mut().insert(HeaderName::from_static(COST), HeaderValue::from(cost.0));
    }
    response
}

/// An answer that comes event by event.
pub fn stream(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let body = Body::from_stream(events.map(Ok::<_, Infallible>));
    let kind = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        // nginx would collect events before it sends them.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (kind, body).into_response()
}
