//! The stream of a job's events: in order, each once, from where a client left off, to the end.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use futures_util::StreamExt;
use kernelopt_coordinator::http::{Desk, Limits};
use kernelopt_coordinator::journal::{Entry, Event};
use kernelopt_coordinator::search::state::JobState;
use kernelopt_shared::api::{EventView, JobRow, JobSpec, Phase};
use kernelopt_shared::message::JobId;
use kernelopt_test_api::{Running, bundle_tar, script, token};
use reqwest::{Client, Response};

fn limits() -> Limits {
    Limits { heartbeat: Duration::from_millis(100), ..Limits::default() }
}

fn client() -> Client {
    kernelopt_shared::tls::install();
    Client::new()
}

async fn submit(running: &Running) -> JobId {
    let (bytes, digest) = bundle_tar();
    let put = client().put(running.url(&format!("/v1/blobs/{digest}"))).bearer_auth(token("submitter")).body(bytes);
    assert!(put.send().await.unwrap().status().is_success());
    let spec: JobSpec = serde_json::from_value(serde_json::json!({"name": "softmax", "bundle": digest})).unwrap();
    running.desk.submit(spec, None).await.unwrap().job.id
}

async fn open(running: &Running, job: &JobId, query: &str) -> Response {
    client().get(running.url(&format!("/v1/jobs/{job}/events{query}"))).bearer_auth(token("viewer")).send().await.unwrap()
}

/// Frames of a stream: name, id and data.
async fn frames(response: Response, mut until: impl FnMut(&(String, String, String)) -> bool) -> Vec<(String, String, String)> {
    let (mut bytes, mut text, mut found) = (response.bytes_stream(), String::new(), Vec::new());
    while let Some(piece) = bytes.next().await {
        text.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
        while let Some((frame, rest)) = text.split_once("\n\n") {
            let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap_or_default().to_owned();
            found.push((field("event"), field("id"), field("data")));
            text = rest.to_owned();
            if until(found.last().unwrap()) {
                return found;
            }
        }
    }
    found
}

fn entries(frames: &[(String, String, String)]) -> Vec<EventView> {
    frames.iter().filter(|(name, ..)| name == "event").map(|(_, _, data)| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn a_stream_folds_to_the_state_of_the_job() {
    let running = Running::start(limits(), true).await;
    let job = submit(&running).await;
    let response = open(&running, &job, "").await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let reading = tokio::spawn(frames(response, |_| false));
    for event in script::events(&running.desk.targets(&job)) {
        running.desk.append(&job, event);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let frames = reading.await.unwrap();
    let seen = entries(&frames);
    assert!(seen.iter().zip(1..).all(|(event, number)| event.seq == number), "in order, without gaps");
    let entries = seen.into_iter().map(|event| Entry {
        job: Some(event.job.clone()),
        seq: event.seq as i64,
        active: Duration::from_millis(event.active_ms),
        event: serde_json::from_value::<Event>(event.body).unwrap(),
    });
    let state = JobState::replay(&entries.collect::<Vec<_>>());
    let view = running.desk.job(&job).await.unwrap();
    assert_eq!((state.judged(), state.targets.len(), state.active.as_secs_f64()), (view.judged, view.targets.len(), view.active_seconds));
    assert_eq!(kernelopt_coordinator::http::view::targets(&state), view.targets);
    let phases: Vec<Phase> =
        frames.iter().filter(|(name, ..)| name == "job").map(|(_, _, row)| serde_json::from_str::<JobRow>(row).unwrap().phase).collect();
    assert_eq!((phases.first(), phases.last()), (Some(&Phase::Waiting), Some(&Phase::Finished)));
}

#[tokio::test]
async fn a_client_that_comes_again_misses_nothing_and_sees_nothing_twice() {
    let running = Running::start(limits(), true).await;
    let job = submit(&running).await;
    let events = script::events(&running.desk.targets(&job));
    let half = events.len() / 2;
    events[..half].iter().for_each(|event| running.desk.append(&job, event.clone()));
    let first = frames(open(&running, &job, "").await, |(_, id, _)| id == "3").await;
    assert_eq!(entries(&first).last().unwrap().seq, 3);
    events[half..].iter().for_each(|event| running.desk.append(&job, event.clone()));
    let by_query = entries(&frames(open(&running, &job, "?after=3").await, |_| false).await);
    assert_eq!(by_query.iter().map(|event| event.seq).collect::<Vec<_>>(), (4..=events.len() as u64 + 1).collect::<Vec<_>>());
    let by_header = client().get(running.url(&format!("/v1/jobs/{job}/events"))).bearer_auth(token("viewer")).header("last-event-id", "3");
    assert_eq!(entries(&frames(by_header.send().await.unwrap(), |_| false).await), by_query);
    let beyond = frames(open(&running, &job, "?after=9000000000000000").await, |_| false).await;
    assert!(entries(&beyond).is_empty() && beyond.len() == 1, "the job's row, and the end");
}

#[tokio::test]
async fn a_job_without_events_shows_signs_of_life() {
    let running = Running::start(limits(), true).await;
    let job = submit(&running).await;
    let mut rows = 0;
    frames(open(&running, &job, "").await, |(name, ..)| {
        rows += usize::from(name == "job");
        rows == 4
    })
    .await;
    assert_eq!(rows, 4);
}

#[tokio::test]
async fn a_cancelled_job_ends_its_streams() {
    let running = Running::start(limits(), true).await;
    let job = submit(&running).await;
    let reading = tokio::spawn(frames(open(&running, &job, "").await, |_| false));
    let delete = client().delete(running.url(&format!("/v1/jobs/{job}"))).bearer_auth(token("submitter"));
    assert!(delete.send().await.unwrap().status().is_success());
    let frames = tokio::time::timeout(Duration::from_secs(5), reading).await.unwrap().unwrap();
    let (_, _, last) = frames.last().unwrap();
    assert_eq!(serde_json::from_str::<JobRow>(last).unwrap().phase, Phase::Cancelled);
}

#[tokio::test]
async fn a_server_that_ends_says_so_and_does_not_wait_for_its_streams() {
    let running = Running::start(Limits { heartbeat: Duration::from_secs(60), ..limits() }, true).await;
    let job = submit(&running).await;
    let reading = tokio::spawn(frames(open(&running, &job, "").await, |_| false));
    tokio::time::sleep(Duration::from_millis(100)).await;
    tokio::time::timeout(Duration::from_secs(5), running.end()).await.expect("the server ends at once");
    assert_eq!(reading.await.unwrap().last().unwrap().0, "problem");
}

#[tokio::test]
async fn a_stream_of_no_job_is_refused_at_once() {
    let running = Running::start(Limits { streams: 1, ..limits() }, true).await;
    assert_eq!(open(&running, &JobId::parse("none").unwrap(), "").await.status(), 404);
    let job = submit(&running).await;
    for bad in ["?after=-1", "?after=x", "?after=1&after=2", "?since=1"] {
        assert_eq!(open(&running, &job, bad).await.status(), 400, "{bad}");
    }
    let held = open(&running, &job, "").await;
    assert_eq!(open(&running, &job, "").await.status(), 429);
    drop(held);
}
