//! The HTTP side of a coordinator's blobs, over real sockets, with faults on demand.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use kernelopt_shared::digest::Digest;
use tokio::net::TcpListener;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The next so many requests end with 503.
    Busy(u32),
    /// Bytes end before their announced length.
    TornAnswer,
    /// Other bytes of the same length.
    OtherBytes,
    /// No length is announced.
    NoLength,
    /// No answer comes.
    Silence,
    /// Whatever is sent is too large.
    TooLarge,
}

#[derive(Default)]
pub struct Shared {
    pub blobs: Mutex<HashMap<String, Bytes>>,
    pub fault: Mutex<Option<Fault>>,
    pub requests: Mutex<u32>,
    token: String,
}

/// Starts one: the address of its blobs.
pub async fn start(token: &str) -> (String, Arc<Shared>) {
    let shared = Arc::new(Shared { token: token.into(), ..Shared::default() });
    let router = Router::new().route("/v1/blobs/{digest}", any(blob)).layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&shared));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = format!("http://{}/v1/blobs", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, shared)
}

async fn blob(State(shared): State<Arc<Shared>>, Path(name): Path<String>, method: Method, headers: HeaderMap, body: Body) -> Response {
    *shared.requests.lock().unwrap() += 1;
    let authorized = headers.get("authorization").is_some_and(|value| value == &format!("Bearer {}", shared.token));
    if !authorized {
        return (StatusCode::UNAUTHORIZED, "this token is unknown here").into_response();
    }
    let fault = *shared.fault.lock().unwrap();
    match fault {
        Some(Fault::Busy(left)) => {
            *shared.fault.lock().unwrap() = (left > 1).then_some(Fault::Busy(left - 1));
            return (StatusCode::SERVICE_UNAVAILABLE, "busy").into_response();
        }
        Some(Fault::Silence) => tokio::time::sleep(Duration::from_secs(60)).await,
        Some(Fault::TooLarge) if method == Method::PUT => return (StatusCode::PAYLOAD_TOO_LARGE, "at most 5 bytes").into_response(),
        _ => {}
    }
    if method == Method::PUT {
        return keep(&shared, &name, body).await;
    }
    let Some(bytes) = shared.blobs.lock().unwrap().get(&name).cloned() else { return StatusCode::NOT_FOUND.into_response() };
    let length = bytes.len();
    let body = match fault {
        Some(Fault::TornAnswer) => {
            let pieces = [Ok(bytes.slice(..length / 2)), Err(std::io::Error::other("torn"))];
            Body::from_stream(futures_util::stream::iter(pieces))
        }
        Some(Fault::OtherBytes) => Body::from(vec![b'x'; length]),
        Some(Fault::NoLength) => Body::from_stream(futures_util::stream::iter([Ok::<_, Infallible>(bytes)])),
        _ => Body::from(bytes),
    };
    match fault {
        Some(Fault::TornAnswer) => ([("content-length", length.to_string())], body).into_response(),
        _ => body.into_response(),
    }
}

async fn keep(shared: &Shared, name: &str, body: Body) -> Response {
    // A torn upload ends here.
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else { return StatusCode::BAD_REQUEST.into_response() };
    if Digest::of([&bytes[..]]).to_string() != name {
        return (StatusCode::BAD_REQUEST, "not what its name says").into_response();
    }
    shared.blobs.lock().unwrap().insert(name.into(), bytes);
    StatusCode::CREATED.into_response()
}
