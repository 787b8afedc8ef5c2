//! Jobs, agents and the frontier, from submission to outputs.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use kernelopt_coordinator::http::Limits;
use kernelopt_shared::api::{AgentAvailability, AgentList, Explanation, FrontierPage, JobPage, JobView, Phase, Problem, Readiness};
use kernelopt_shared::archive;
use kernelopt_shared::result::TuneResult;
use kernelopt_test_api::{Running, bundle_tar, script, token};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

struct Api {
    running: Running,
    client: Client,
}

impl Api {
    async fn start() -> Self {
        kernelopt_shared::tls::install();
        let limits = Limits { turn_within: Duration::from_millis(200), ..Limits::default() };
        Self { running: Running::start(limits, true).await, client: Client::new() }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, String) {
        let request = self.client.request(method, self.running.url(path)).bearer_auth(token("operator"));
        let request = body.iter().fold(request, |request, body| request.json(body));
        let response = request.send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> T {
        let (status, text) = self.ask(Method::GET, path, None).await;
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn store_bundle(&self) -> String {
        let (bytes, digest) = bundle_tar();
        let put = self.client.put(self.running.url(&format!("/v1/blobs/{digest}"))).bearer_auth(token("operator")).body(bytes);
        assert!(put.send().await.unwrap().status().is_success());
        digest.to_string()
    }

    async fn submit(&self, spec: Value) -> JobView {
        let (status, text) = self.ask(Method::POST, "/v1/jobs", Some(spec)).await;
        assert_eq!(status, StatusCode::CREATED, "{text}");
        serde_json::from_str(&text).unwrap()
    }
}

#[tokio::test]
async fn a_job_from_submission_to_outputs() {
    let api = Api::start().await;
    let digest = api.store_bundle().await;
    let job = api.submit(json!({"name": "softmax", "bundle": digest, "priority": 9, "weight": 1, "budget_seconds": 60})).await;
    assert_eq!((job.phase, job.priority, job.weight, job.budget.seconds, job.budget.max_candidates), (Phase::Waiting, 9, 1, 60, 1000));
    assert_eq!(
        (job.class.as_ref().map(|class| class.as_str()), job.model.as_str()),
        (Some("nvidia-h200-139g-sm90"), "examples/h200_suite.py:softmax")
    );
    let path = format!("/v1/jobs/{}", job.id);
    assert_eq!(api.ask(Method::GET, &format!("{path}/outputs"), None).await.0, StatusCode::CONFLICT);

    script::play(&api.running.desk, &job.id);
    let done: JobView = api.get(&path).await;
    assert_eq!((done.phase, done.judged, done.targets.len()), (Phase::Finished, 3, 1));
    let best = done.targets[0].best.unwrap();
    assert!(best.confirmed && (best.speedup.estimate - 1.6).abs() < 1e-9 && done.targets[0].baseline_us == Some(40.0));
    assert_eq!(done.verdict.as_ref().map(|verdict| verdict.improved), Some(true));

    let outputs = api.client.get(api.running.url(&format!("{path}/outputs"))).bearer_auth(token("viewer")).send().await.unwrap();
    assert_eq!(outputs.headers()["content-type"], "application/x-tar");
    let bytes = outputs.bytes().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (tar, out) = (folder.path().join("tar"), folder.path().join("out"));
    std::fs::write(&tar, &bytes).unwrap();
    archive::unpack(&tar, &out, archive::Limits::default(), |_| Ok::<_, archive::ArchiveError>(())).unwrap();
    let result: TuneResult = serde_json::from_slice(&std::fs::read(out.join("result.json")).unwrap()).unwrap();
    assert_eq!(result.targets[0].speedup, best.speedup.estimate);
    assert!(!out.join(".lock").exists(), "hidden files are the coordinator's own");

    let frontier: FrontierPage = api.get("/v1/frontier").await;
    assert_eq!((frontier.rows.len(), frontier.rows[0].best_us, frontier.more), (1, 25.0, false));
    let elsewhere: FrontierPage = api.get("/v1/frontier?class=nvidia-l4-22g-sm89").await;
    assert!(elsewhere.rows.is_empty());
}

#[tokio::test]
async fn a_job_needs_a_bundle() {
    let api = Api::start().await;
    let nothing = "0".repeat(32);
    let (status, text) = api.ask(Method::POST, "/v1/jobs", Some(json!({"name": "a", "bundle": nothing}))).await;
    let problem: Problem = serde_json::from_str(&text).unwrap();
    assert_eq!((status, problem.status), (StatusCode::UNPROCESSABLE_ENTITY, 422));
    assert!(problem.detail.contains(&nothing) && problem.remedy.unwrap().contains("PUT"));
}

#[tokio::test]
async fn a_submission_that_is_repeated_with_its_key_is_one_job() {
    let api = Api::start().await;
    let digest = api.store_bundle().await;
    let submit = async |key: &str, name: &str| {
        let request = api.client.post(api.running.url("/v1/jobs")).bearer_auth(token("operator")).header("idempotency-key", key);
        let answer = request.json(&json!({"name": name, "bundle": digest})).send().await.unwrap();
        let (status, place) = (answer.status(), answer.headers().get("location").map(|place| place.to_str().unwrap().to_owned()));
        (status, place)
    };
    let first = submit("one", "a").await;
    assert_eq!(first.0, StatusCode::CREATED);
    assert_eq!(submit("one", "a").await, (StatusCode::OK, first.1.clone()));
    assert_eq!(submit("one", "b").await, (StatusCode::CONFLICT, None));
    assert_ne!(submit("two", "a").await.1, first.1);
    assert_eq!(submit(&"x".repeat(65), "a").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(api.get::<JobPage>("/v1/jobs").await.jobs.len(), 2);
}

#[tokio::test]
async fn a_cancelled_job_stays_cancelled_and_a_finished_one_finished() {
    let api = Api::start().await;
    let digest = api.store_bundle().await;
    let spec = json!({"name": "a", "bundle": digest});
    let (first, second) = (api.submit(spec.clone()).await, api.submit(spec).await);
    for _ in 0..2 {
        let (status, text) = api.ask(Method::DELETE, &format!("/v1/jobs/{}", first.id), None).await;
        assert_eq!((status, serde_json::from_str::<JobView>(&text).unwrap().phase), (StatusCode::OK, Phase::Cancelled));
    }
    script::play(&api.running.desk, &second.id);
    assert_eq!(api.ask(Method::DELETE, &format!("/v1/jobs/{}", second.id), None).await.0, StatusCode::CONFLICT);
}

#[tokio::test]
async fn jobs_come_in_pages_latest_first() {
    let api = Api::start().await;
    let digest = api.store_bundle().await;
    for i in 0..5 {
        api.submit(json!({"name": format!("job {i}"), "bundle": digest})).await;
    }
    let mut names = Vec::new();
    let mut path = "/v1/jobs?limit=2".to_owned();
    loop {
        let page: JobPage = api.get(&path).await;
        assert!(page.jobs.len() <= 2);
        names.extend(page.jobs.into_iter().map(|job| job.name));
        match page.next {
            Some(next) => path = format!("/v1/jobs?limit=2&after={next}"),
            None => break,
        }
    }
    assert_eq!(names, ["job 4", "job 3", "job 2", "job 1", "job 0"]);
    let none: JobPage = api.get("/v1/jobs?phase=checking_model").await;
    assert!(none.jobs.is_empty() && none.next.is_none());
}

#[tokio::test]
async fn orders_reach_all_agents_of_a_host_and_no_other() {
    let api = Api::start().await;
    ["gpu1/cuda0", "gpu1/cuda1", "rack/gpu2/cuda0"].into_iter().for_each(|agent| api.running.desk.beat(script::beat(agent)));
    let (status, text) = api.ask(Method::POST, "/v1/agents/gpu1/quarantine", Some(json!({"reason": "XID 79"}))).await;
    let touched: AgentList = serde_json::from_str(&text).unwrap();
    assert_eq!((status, touched.agents.len()), (StatusCode::OK, 2));
    let all: AgentList = api.get("/v1/agents").await;
    let modes: Vec<_> = all.agents.iter().map(|agent| (agent.mode, agent.reason.as_deref())).collect();
    assert_eq!(
        modes,
        [
            (AgentAvailability::Quarantined, Some("XID 79")),
            (AgentAvailability::Quarantined, Some("XID 79")),
            (AgentAvailability::Working, None)
        ]
    );
    assert_eq!(api.ask(Method::POST, "/v1/agents/gpu1/readmit", None).await.0, StatusCode::OK);
    assert_eq!(api.ask(Method::POST, "/v1/agents/rack%2Fgpu2/drain", None).await.0, StatusCode::OK);
    let all: AgentList = api.get("/v1/agents").await;
    assert_eq!(
        all.agents.iter().map(|a| a.mode).collect::<Vec<_>>(),
        [AgentAvailability::Working, AgentAvailability::Working, AgentAvailability::Draining]
    );
    assert_eq!(api.ask(Method::POST, "/v1/agents/gpu9/drain", None).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn why_nothing_happens_is_said() {
    let api = Api::start().await;
    let digest = api.store_bundle().await;
    let job = api.submit(json!({"name": "a", "bundle": digest})).await;
    let explanation: Explanation = api.get(&format!("/v1/jobs/{}/explain", job.id)).await;
    assert!(explanation.sentences[1].contains("No agent of class nvidia-h200-139g-sm90"), "{explanation:?}");
}

#[tokio::test]
async fn probes_tell_a_stuck_loop_from_a_lost_journal() {
    let api = Api::start().await;
    assert_eq!(api.ask(Method::GET, "/healthz", None).await, (StatusCode::OK, "ok\n".into()));
    assert!(api.get::<Readiness>("/readyz").await.ready);
    assert_eq!(api.ask(Method::GET, "/metrics", None).await, (StatusCode::OK, "kernelopt_up 1\n".into()));
    api.running.desk.set_works(false);
    assert_eq!(api.ask(Method::GET, "/healthz", None).await.0, StatusCode::SERVICE_UNAVAILABLE);
    let (status, text) = api.ask(Method::GET, "/readyz", None).await;
    let readiness: Readiness = serde_json::from_str(&text).unwrap();
    assert_eq!((status, readiness.checks[0].what.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "journal"));
}
