//! What happens to a request before and after its handler.

use std::net::IpAddr;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State as Shared};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use kernelopt_shared::api::{ProblemKind, REQUEST_ID};
use kernelopt_shared::http_server::request_id;

use super::limits::Room;
use super::refusal::Refusal;
use super::tokens::{Access, Role};
use super::{House, State};

/// Names the request, refuses what a web page could have sent where there are no tokens, counts it, and writes a line of log.
pub async fn attend(Shared(house): Shared<State>, request: Request, next: Next) -> Response {
    let id = house.request_ids.of(request.headers());
    let (method, path, began) = (request.method().clone(), request.uri().path().to_owned(), Instant::now());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let answer = async {
        match house.check_origin(request.headers()) {
            Ok(()) => next.run(request).await,
            Err(refusal) => refusal.into_response(),
        }
    };
    let mut response = request_id::scope(id.clone(), answer).await;
    let headers = response.headers_mut();
    headers.extend(request_id::header(&id).map(|value| (header::HeaderName::from_static(REQUEST_ID), value)));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Some(counted) = &house.counted {
        counted.answered(method.as_str(), route.as_ref().map(MatchedPath::as_str), response.status().as_u16(), began.elapsed());
    }
    tracing::info!(%method, ?path, status = response.status().as_u16(), ms = began.elapsed().as_millis() as u64, id, "request");
    response
}

impl House {
    /// Where there are no tokens, a page in a browser on this host must not be able to give orders: neither across origins (Fetch standard: every
    /// such request that changes something has an `Origin`) nor by a name of its own that leads here (DNS rebinding).
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if self.tokens.is_some() {
            return Ok(());
        }
        let host = headers.get(header::HOST).map(|host| host.to_str().unwrap_or_default());
        if headers.contains_key(header::ORIGIN) || !host.is_none_or(is_loopback) {
            let refusal =
                Refusal::new(ProblemKind::Forbidden, "without tokens only programs on this host are served, under its loopback name");
            return Err(refusal.with_remedy("Start the coordinator with a file of tokens."));
        }
        Ok(())
    }

    fn role_of(&self, headers: &HeaderMap) -> Result<Role, Refusal> {
        let Some(tokens) = &self.tokens else { return Ok(Role::Operator) };
        let refusal = |detail| {
            let refusal = Refusal::new(ProblemKind::Unauthorized, detail);
            Err(refusal.with_remedy("Send the header `authorization: Bearer TOKEN`; an operator of the coordinator has the tokens."))
        };
        let Some(value) = headers.get(header::AUTHORIZATION) else { return refusal("there is no token in the request") };
        let words = value.to_str().ok().and_then(|text| text.split_once(' '));
        let Some((_, token)) = words.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) else {
            return refusal("the authorization header holds no bearer token");
        };
        tokens.role_of(token.trim()).map_or_else(|| refusal("the token is not known"), Ok)
    }
}

fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// `routes`, for those who may.
pub fn needs(house: &State, access: Access, routes: MethodRouter<State>) -> MethodRouter<State> {
    routes.route_layer(from_fn_with_state((house.clone(), access), check))
}

async fn check(Shared((house, access)): Shared<(State, Access)>, request: Request, next: Next) -> Result<Response, Refusal> {
    let role = house.role_of(request.headers())?;
    if !role.may(access) {
        return Err(Refusal::new(ProblemKind::Forbidden, format!("the token's role is {}, which does not reach so far", role.name())));
    }
    Ok(next.run(request).await)
}

/// For what is answered at once: as many at a time as there is room for, and no longer than a coordinator may take.
pub async fn quick(Shared(house): Shared<State>, request: Request, next: Next) -> Result<Response, Refusal> {
    let _place = house.rooms.enter(Room::Request)?;
    match tokio::time::timeout(house.limits.answer_within, next.run(request)).await {
        Ok(response) => Ok(response),
        Err(_) => {
            let detail = format!("the coordinator did not answer within {} s", house.limits.answer_within.as_secs());
            Err(Refusal::new(ProblemKind::Unavailable, detail))
        }
    }
}

/// Answer where no route is.
pub async fn no_such_path(uri: Uri) -> Refusal {
    Refusal::new(ProblemKind::NotFound, format!("there is nothing at {:?}", uri.path()))
        .with_remedy("GET /openapi.json lists what there is.")
}

/// Answer where the route has other methods.
pub async fn no_such_method(method: Method, uri: Uri) -> Refusal {
    Refusal::new(ProblemKind::MethodNotAllowed, format!("{:?} has no {method}", uri.path()))
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn this_host_has_few_names() {
        for here in ["localhost", "localhost:7117", "127.0.0.1:7117", "127.3.2.1", "[::1]:7117", "LOCALHOST"] {
            assert!(is_loopback(here), "{here}");
        }
        for elsewhere in ["", "example.org", "127.0.0.1.example.org:7117", "localhost.example.org", "10.0.0.1", "[::2]", "a b"] {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
    }
}
