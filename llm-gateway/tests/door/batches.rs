//! Files and batches, over HTTP, and across restarts.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::rig::{KEY, Rig, TIMES, at, json, model};
use crate::upstream::{Play, Step, Upstream, completion, error, ok};

/// A gateway that keeps batches in `data`.
async fn rig(upstream: &Upstream, data: &Path) -> Rig {
    Rig::start_with(&top(data), &[at(upstream, "one", "openai", &["a"], TIMES), model(&["one"])].concat()).await
}

fn top(data: &Path) -> String {
    format!("data = '{}'\n[retry]\nmost_attempts = 2\nfirst_wait_ms = 10\nlongest_wait_ms = 10", data.display())
}

fn line(id: &str, content: &str) -> Value {
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": content}]});
    json!({"custom_id": id, "method": "POST", "url": "/v1/chat/completions", "body": body})
}

fn lines(count: usize) -> String {
    (0..count).map(|n| format!("{}\n", line(&format!("id-{n}"), &format!("say {n}")))).collect()
}

/// A multipart form, as clients send it.
async fn upload(rig: &Rig, purpose: &str, content: &str) -> (u16, Value) {
    let body = format!(
        "--cut\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\n{purpose}\r\n--cut\r\ncontent-disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\ncontent-type: application/octet-stream\r\n\r\n{content}\r\n--cut--\r\n"
    );
    let request =
        rig.client.post(format!("{}/v1/files", rig.base)).bearer_auth(KEY).header("content-type", "multipart/form-data; boundary=cut");
    let response = request.body(body).send().await.unwrap();
    (response.status().as_u16(), json(response).await)
}

async fn create(rig: &Rig, file: &str) -> Value {
    let asked = json!({"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h", "metadata": {"round": "1"}});
    json(rig.post("/v1/batches", &asked).send().await.unwrap()).await
}

async fn get(rig: &Rig, path: &str) -> reqwest::Response {
    rig.client.get(format!("{}{path}", rig.base)).bearer_auth(KEY).send().await.unwrap()
}

async fn ended(rig: &Rig, id: &str) -> Value {
    for _ in 0..1000 {
        let batch = json(get(rig, &format!("/v1/batches/{id}")).await).await;
        if ["completed", "failed", "cancelled", "expired"].contains(&batch["status"].as_str().unwrap()) {
            return batch;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the batch does not end");
}

async fn results(rig: &Rig, file: &Value) -> Vec<Value> {
    let text = get(rig, &format!("/v1/files/{}/content", file.as_str().unwrap())).await.text().await.unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn every_line_is_answered_or_has_its_error() {
    let upstream = Upstream::start(|asked| {
        let said = asked.body["messages"][0]["content"].as_str().unwrap().to_owned();
        if said == "say 3" { error(400, &[], "no") } else { ok(&completion(&said)) }
    })
    .await;
    let data = tempfile::tempdir().unwrap();
    let rig = rig(&upstream, data.path()).await;
    let (status, file) = upload(&rig, "batch", &lines(100)).await;
    assert_eq!((status, &file["purpose"], &file["filename"]), (200, &json!("batch"), &json!("in.jsonl")), "{file}");
    assert_eq!(get(&rig, &format!("/v1/files/{}/content", file["id"].as_str().unwrap())).await.text().await.unwrap(), lines(100));
    let batch = create(&rig, file["id"].as_str().unwrap()).await;
    assert_eq!((&batch["object"], &batch["metadata"]), (&json!("batch"), &json!({"round": "1"})));
    let batch = ended(&rig, batch["id"].as_str().unwrap()).await;
    assert_eq!((&batch["status"], &batch["request_counts"]), (&json!("completed"), &json!({"total": 100, "completed": 99, "failed": 1})));
    assert_eq!(batch["usage"], json!({"input_tokens": 693, "output_tokens": 297, "total_tokens": 990}));
    let answers = results(&rig, &batch["output_file_id"]).await;
    let ids: BTreeSet<_> = answers.iter().map(|answer| answer["custom_id"].as_str().unwrap().to_owned()).collect();
    assert!(answers.len() == 99 && ids.len() == 99 && !ids.contains("id-3"));
    for answer in &answers {
        let n = answer["custom_id"].as_str().unwrap().trim_start_matches("id-");
        assert_eq!((&answer["response"]["status_code"], &answer["error"]), (&json!(200), &Value::Null));
        assert_eq!(answer["response"]["body"]["choices"][0]["message"]["content"], format!("say {n}"));
    }
    let errors = results(&rig, &batch["error_file_id"]).await;
    assert_eq!((errors.len(), &errors[0]["custom_id"], &errors[0]["response"]["status_code"]), (1, &json!("id-3"), &json!(400)));
    rig.quiet().await;
}

#[test]
fn a_batch_goes_on_after_a_restart_and_asks_no_line_twice() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let data = tempfile::tempdir().unwrap();
    let first = runtime();
    let (id, rig_kept) = first.block_on(async {
        let upstream = Upstream::start(|asked| {
            let pause = Step::Pause(Duration::from_millis(if asked.number < 40 { 1 } else { 30_000 }));
            [pause].into_iter().chain(ok(&completion("said"))).collect::<Play>()
        })
        .await;
        let rig = Rig::start_with(&top(data.path()), &[at(&upstream, "one", "openai", &["a"], ""), model(&["one"])].concat()).await;
        let (_, file) = upload(&rig, "batch", &lines(90)).await;
        let batch = create(&rig, file["id"].as_str().unwrap()).await;
        rig.until("forty lines are answered", || rig.metric("kernelopt_gateway_batch_lines_total", &["completed"]) == 40.0).await;
        (batch["id"].as_str().unwrap().to_owned(), rig)
    });
    // As a kill: nothing is waited for.
    first.shutdown_background();
    drop(rig_kept);
    runtime().block_on(async {
        let quick = Upstream::start(|_| ok(&completion("said"))).await;
        let rig = rig(&quick, data.path()).await;
        let batch = ended(&rig, &id).await;
        assert_eq!(
            (&batch["status"], &batch["request_counts"]),
            (&json!("completed"), &json!({"total": 90, "completed": 90, "failed": 0}))
        );
        let answers = results(&rig, &batch["output_file_id"]).await;
        let ids: BTreeSet<_> = answers.iter().map(|line| line["custom_id"].as_str().unwrap().to_owned()).collect();
        assert_eq!((answers.len(), ids.len(), quick.count()), (90, 90, 50), "what was answered is not asked again");
    });
}

#[tokio::test]
async fn a_batch_that_is_cancelled_keeps_what_it_has() {
    let upstream = Upstream::start(|asked| {
        let pause = Step::Pause(Duration::from_millis(if asked.number < 10 { 1 } else { 300 }));
        [pause].into_iter().chain(ok(&completion("said"))).collect()
    })
    .await;
    let data = tempfile::tempdir().unwrap();
    let rig = rig(&upstream, data.path()).await;
    let (_, file) = upload(&rig, "batch", &lines(500)).await;
    let batch = create(&rig, file["id"].as_str().unwrap()).await;
    let id = batch["id"].as_str().unwrap();
    rig.until("ten lines are answered", || rig.metric("kernelopt_gateway_batch_lines_total", &["completed"]) >= 10.0).await;
    let cancelled = json(rig.post(&format!("/v1/batches/{id}/cancel"), &json!({})).send().await.unwrap()).await;
    assert_eq!(cancelled["status"], "cancelling");
    let batch = ended(&rig, id).await;
    let completed = batch["request_counts"]["completed"].as_u64().unwrap();
    assert!(batch["status"] == "cancelled" && (10..200).contains(&completed), "{batch}");
    assert_eq!(results(&rig, &batch["output_file_id"]).await.len() as u64, completed);
    assert_eq!(rig.post(&format!("/v1/batches/{id}/cancel"), &json!({})).send().await.unwrap().status(), 400);
    rig.quiet().await;
}

#[tokio::test]
async fn what_cannot_be_a_batch_is_said() {
    let upstream = Upstream::start(|_| ok(&completion("said"))).await;
    let data = tempfile::tempdir().unwrap();
    let rig = rig(&upstream, data.path()).await;
    assert_eq!(upload(&rig, "fine-tune", "x").await.0, 400);
    let (_, bad) = upload(&rig, "batch", &format!("{}\n{}\nnonsense\n", line("a", "x"), line("a", "y"))).await;
    let id = bad["id"].as_str().unwrap().to_owned();
    let batch = create(&rig, &id).await;
    let batch = ended(&rig, batch["id"].as_str().unwrap()).await;
    assert_eq!(batch["status"], "failed");
    let lines: Vec<_> = batch["errors"]["data"].as_array().unwrap().iter().map(|error| error["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [2, 3]);
    assert_eq!(upstream.count(), 0, "nothing is asked of a file that is wrong");
    for (field, value) in [("endpoint", json!("/v1/embeddings")), ("completion_window", json!("1h")), ("input_file_id", json!("file-none"))]
    {
        let mut asked = json!({"input_file_id": id, "endpoint": "/v1/chat/completions", "completion_window": "24h"});
        asked[field] = value;
        let response = rig.post("/v1/batches", &asked).send().await.unwrap();
        assert!(response.status().is_client_error());
        assert_eq!(json(response).await["error"]["param"], field);
    }
    for path in ["/v1/files/..%2f..%2fetc%2fpasswd", "/v1/files/file-none", "/v1/batches/batch_none", "/v1/files/file-none/content"] {
        assert_eq!(get(&rig, path).await.status(), 404, "{path}");
    }
    let listed = json(get(&rig, "/v1/files").await).await;
    assert_eq!((&listed["object"], listed["data"].as_array().unwrap().len()), (&json!("list"), 1));
    assert_eq!(rig.client.delete(format!("{}/v1/files/{id}", rig.base)).bearer_auth(KEY).send().await.unwrap().status(), 200);
    assert_eq!(get(&rig, &format!("/v1/files/{id}")).await.status(), 404);
}

#[tokio::test]
async fn a_gateway_without_a_folder_says_so() {
    let upstream = Upstream::start(|_| ok(&completion("said"))).await;
    let rig = Rig::with(&upstream, "openai").await;
    let response = get(&rig, "/v1/batches").await;
    assert_eq!(response.status(), 404);
    assert!(response.text().await.unwrap().contains("keeps no batches"));
}
