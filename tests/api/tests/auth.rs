//! Who may do what, for every operation of the OpenAPI document.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use kernelopt_coordinator::http::{Limits, Options, Server, ServerError, document};
use kernelopt_shared::api::Problem;
use kernelopt_test_api::{MemoryDesk, Running, token};
use reqwest::{Client, Method, RequestBuilder, StatusCode};

/// Roles that may use each operation, by first letters: viewer, submitter, agent, operator. `all` needs no token.
const MAY: [(&str, &str); 20] = [
    ("submit_job", "so"),
    ("begin_drill", "o"),
    ("list_jobs", "vso"),
    ("show_job", "vso"),
    ("cancel_job", "so"),
    ("explain_job", "vso"),
    ("follow_job", "vso"),
    ("fetch_outputs", "vso"),
    ("keep_blob", "sao"),
    ("probe_blob", "sao"),
    ("read_blob", "ao"),
    ("list_agents", "vso"),
    ("drain_host", "o"),
    ("quarantine_host", "o"),
    ("readmit_host", "o"),
    ("list_frontier", "vso"),
    ("openapi", "all"),
    ("health", "all"),
    ("readiness", "all"),
    ("metrics", "all"),
];

/// Name, method and path of every operation, with parameters that stand for nothing.
fn operations() -> Vec<(String, Method, String)> {
    let document: serde_json::Value = serde_json::from_str(&document().to_json().unwrap()).unwrap();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let path = path.replace("{id}", "none").replace("{host}", "none").replace("{digest}", &"0".repeat(32));
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap().to_owned();
            found.push((name, method.to_uppercase().parse().unwrap(), path.clone()));
        }
    }
    found
}

fn client() -> Client {
    kernelopt_shared::tls::install();
    Client::new()
}

async fn status(request: RequestBuilder) -> StatusCode {
    let response = request.send().await.unwrap();
    let status = response.status();
    if status.is_client_error() {
        assert_eq!(response.headers()["content-type"], "application/problem+json");
    }
    status
}

#[tokio::test]
async fn every_operation_is_for_some_roles_only() {
    let running = Running::start(Limits::default(), true).await;
    let (client, operations) = (client(), operations());
    assert_eq!(operations.len(), MAY.len(), "an operation without a line in the matrix");
    for (name, method, path) in operations {
        let (_, may) = MAY.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name} has no line in the matrix"));
        let request = || client.request(method.clone(), running.url(&path));
        let refusals = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
        if *may == "all" {
            assert_eq!(status(request()).await, StatusCode::OK, "{name}");
            continue;
        }
        for header in [None, Some("Bearer wrong-0123456789abcdef"), Some("Basic b3A6b3A="), Some("Bearer"), Some("Bearer "), Some("")] {
            let request = header.into_iter().fold(request(), |request, value| request.header("authorization", value));
            assert_eq!(status(request).await, StatusCode::UNAUTHORIZED, "{name} {header:?}");
        }
        for role in ["viewer", "submitter", "agent", "operator"] {
            let found = status(request().bearer_auth(token(role))).await;
            assert_eq!(!refusals.contains(&found), may.contains(&role[..1]), "{name} as {role}: {found}");
            assert_ne!(found, StatusCode::METHOD_NOT_ALLOWED, "{name}");
        }
    }
}

#[tokio::test]
async fn a_refusal_says_how_to_come_in_and_not_what_was_sent() {
    let running = Running::start(Limits::default(), true).await;
    let response = client().get(running.url("/v1/jobs")).bearer_auth("secret-0123456789abcdef").send().await.unwrap();
    assert_eq!(response.headers()["www-authenticate"], "Bearer");
    let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    let text = response.text().await.unwrap();
    let problem: Problem = serde_json::from_str(&text).unwrap();
    assert_eq!((problem.status, problem.request_id), (401, Some(id)));
    assert!(!text.contains("secret") && problem.remedy.is_some());
}

#[tokio::test]
async fn without_tokens_only_programs_on_this_host_are_served() {
    let running = Running::start(Limits::default(), false).await;
    let get = || client().get(running.url("/v1/jobs"));
    assert_eq!(status(get()).await, StatusCode::OK);
    assert_eq!(status(get().header("host", "localhost:7117")).await, StatusCode::OK);
    // A page of another origin, and one whose name was made to lead here.
    assert_eq!(status(get().header("origin", "https://example.org")).await, StatusCode::FORBIDDEN);
    assert_eq!(status(get().header("host", "rebound.example.org")).await, StatusCode::FORBIDDEN);
    let order = client().post(running.url("/v1/agents/gpu1/drain")).header("origin", "null");
    assert_eq!(status(order).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn without_tokens_nobody_listens_to_the_world() {
    let folder = tempfile::tempdir().unwrap();
    let desk = std::sync::Arc::new(MemoryDesk::new(folder.path().join("desk")).unwrap());
    for address in ["0.0.0.0:0", "[::]:0"] {
        let options = Options {
            listen: address.parse().unwrap(),
            tokens: None,
            spool: folder.path().join("spool"),
            limits: Limits::default(),
            counted: None,
        };
        let refused = Server::bind(options, desk.clone(), std::sync::Arc::new(String::new)).await.err().unwrap();
        assert!(matches!(refused, ServerError::OpenToAll { .. }), "{refused}");
    }
}
