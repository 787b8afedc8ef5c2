//! Whatever is sent: the answer is a problem document with the right status.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use kernelopt_coordinator::http::{Limits, document};
use kernelopt_shared::api::{PROBLEM_JSON, Problem};
use kernelopt_test_api::{Running, token};
use reqwest::{Client, Method, Response};

fn client() -> Client {
    kernelopt_shared::tls::install();
    Client::new()
}

async fn problem(response: Response) -> Problem {
    let status = response.status().as_u16();
    assert_eq!(response.headers()["content-type"], PROBLEM_JSON, "{}", response.url());
    let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    let problem: Problem = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!((problem.status, problem.request_id.as_deref()), (status, Some(&*id)));
    assert!(problem.known().is_some());
    problem
}

#[tokio::test]
async fn bodies_that_are_no_job() {
    let running = Running::start(Limits::default(), true).await;
    let zero = "0".repeat(32);
    let with = |field: &str| format!(r#"{{"name": "a", "bundle": "{zero}", {field}}}"#);
    let json = Some("application/json");
    let cases: Vec<(Option<&str>, String, u16)> = vec![
        (json, String::new(), 400),
        (json, "{".into(), 400),
        (json, "\u{0}".into(), 400),
        (json, "[".repeat(10_000), 422),
        (json, "null".into(), 422),
        (json, "[]".into(), 422),
        (json, "{}".into(), 422),
        (json, with(r#""priority": 10"#), 422),
        (json, with(r#""priority": -1"#), 422),
        (json, with(r#""priority": 1.5"#), 422),
        (json, with(r#""weight": 0"#), 422),
        (json, with(r#""budget_seconds": 99999999999"#), 422),
        (json, with(r#""seed": 9007199254740992"#), 422),
        (json, with(r#""class": "../../x""#), 422),
        (json, with(r#""class": "a b""#), 422),
        (json, with(r#""proposers": []"#), 422),
        (json, with(r#""proposers": ["replay=/etc/passwd"]"#), 422),
        (json, with(r#""surprise": 1"#), 422),
        (json, with(r#""name": "b""#), 422),
        (json, format!(r#"{{"name": "a\u001b[2J", "bundle": "{zero}"}}"#), 422),
        (json, format!(r#"{{"name": "{}", "bundle": "{zero}"}}"#, "x".repeat(81)), 422),
        (json, format!(r#"{{"name": "{}"}}"#, "x".repeat(100_000)), 413),
        (None, with(r#""priority": 1"#), 415),
        (Some("text/plain"), with(r#""priority": 1"#), 415),
        (Some("application/json; charset=utf-8"), with(r#""priority": 1"#), 422),
    ];
    for (content_type, body, status) in cases {
        let request = client().post(running.url("/v1/jobs")).bearer_auth(token("submitter")).body(body.clone());
        let request = content_type.into_iter().fold(request, |request, value| request.header("content-type", value));
        let found = problem(request.send().await.unwrap()).await;
        assert_eq!(found.status, status, "{}: {found:?}", body.chars().take(100).collect::<String>());
    }
}

#[tokio::test]
async fn paths_and_queries_that_are_nothing() {
    let running = Running::start(Limits::default(), true).await;
    let cases = [
        (Method::GET, "/", 404),
        (Method::GET, "/v1", 404),
        (Method::GET, "/v1/jobs/", 404),
        (Method::GET, "/v2/jobs", 404),
        (Method::GET, "/v1/jobs/unknown", 404),
        (Method::GET, "/v1/jobs/a%20b", 400),
        (Method::GET, "/v1/jobs/%FF", 400),
        (Method::GET, "/v1/jobs/..%2F..%2Fetc%2Fpasswd", 400),
        (Method::GET, "/v1/jobs/unknown/events", 404),
        (Method::GET, "/v1/jobs/unknown/outputs", 404),
        (Method::GET, "/v1/jobs/unknown/explain", 404),
        (Method::DELETE, "/v1/jobs/unknown", 404),
        (Method::GET, "/v1/jobs?limit=0", 400),
        (Method::GET, "/v1/jobs?limit=501", 400),
        (Method::GET, "/v1/jobs?limit=99999999999999999999", 400),
        (Method::GET, "/v1/jobs?phase=dreaming", 400),
        (Method::GET, "/v1/jobs?surprise=1", 400),
        (Method::GET, "/v1/jobs?after=unknown", 404),
        (Method::GET, "/v1/frontier?fingerprint=x", 400),
        (Method::PUT, "/v1/jobs", 405),
        (Method::PATCH, "/v1/jobs/unknown", 405),
        (Method::POST, "/v1/agents", 405),
        (Method::DELETE, "/healthz", 405),
        (Method::OPTIONS, "/v1/jobs", 405),
        (Method::POST, "/v1/agents/a%20b/drain", 400),
        (Method::POST, "/v1/agents/unknown/drain", 404),
        (Method::POST, "/v1/agents/unknown/quarantine", 415),
        (Method::POST, "/v1/agents/unknown/dance", 404),
    ];
    for (method, path, status) in cases {
        let request = client().request(method.clone(), running.url(path)).bearer_auth(token("operator"));
        let response = request.send().await.unwrap();
        let allow = response.headers().get("allow").cloned();
        assert_eq!(problem(response).await.status, status, "{method} {path}");
        assert_eq!(allow.is_some(), status == 405, "{method} {path}: RFC 9110, 15.5.6");
    }
}

#[tokio::test]
async fn a_request_may_bring_a_plain_name_of_its_own() {
    let running = Running::start(Limits::default(), true).await;
    let named = |name: &str| client().get(running.url("/v1/nothing")).header("x-request-id", name).send();
    assert_eq!(problem(named("build-7.3").await.unwrap()).await.request_id.as_deref(), Some("build-7.3"));
    for odd in ["a b", "\u{fc}", &"x".repeat(65), "<script>"] {
        assert_ne!(problem(named(odd).await.unwrap()).await.request_id.as_deref(), Some(odd));
    }
}

#[test]
fn the_document_changes_on_purpose_only() {
    insta::assert_snapshot!(document().to_pretty_json().unwrap());
}

#[tokio::test]
async fn the_document_is_served() {
    let running = Running::start(Limits::default(), true).await;
    let served: serde_json::Value =
        serde_json::from_str(&client().get(running.url("/openapi.json")).send().await.unwrap().text().await.unwrap()).unwrap();
    assert_eq!(served, serde_json::to_value(document()).unwrap());
}
