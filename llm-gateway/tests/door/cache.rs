//! Answers that are kept, from outside.

use serde_json::json;

use crate::rig::{Rig, TIMES, at, chat, json, model};
use crate::upstream::{Asked, Upstream, completion, delta, finish, ok, stream};

async fn keeping(upstream: &Upstream) -> Rig {
    Rig::start(
        &[at(upstream, "one", "openai", &["a"], TIMES), model(&["one"]), "[cache]\nmost_bytes = 1000000\nkeep_s = 60\n".into()].concat(),
    )
    .await
}

#[tokio::test]
async fn the_same_question_costs_once_and_a_stream_or_another_sample_goes_past() {
    let said = |asked: &Asked| if asked.body["stream"] == true { stream(&[delta("said"), finish()]) } else { ok(&completion("said")) };
    let upstream = Upstream::start(said).await;
    let rig = keeping(&upstream).await;
    let (first, again) = (rig.chat().await, rig.chat().await);
    assert_ne!(first.headers()["x-kernelopt-cost-nanousd"], "0");
    assert_eq!(again.headers()["x-kernelopt-cost-nanousd"], "0");
    assert_eq!(json(first).await, json(again).await);
    assert_eq!(upstream.count(), 1);
    rig.post("/v1/chat/completions", &chat()).header("x-kernelopt-sample", "1").send().await.unwrap();
    assert_eq!(upstream.count(), 2, "another sample is another answer");
    let mut other = chat();
    other["temperature"] = json!(0.25);
    rig.post("/v1/chat/completions", &other).send().await.unwrap();
    assert_eq!(upstream.count(), 3);
    rig.streamed().await.text().await.unwrap();
    assert_eq!(upstream.count(), 4, "a stream goes past");
    assert!(rig.metric("kernelopt_gateway_cache_total", &["outcome=\"hit\""]) >= 1.0);
}

#[tokio::test]
async fn what_was_cut_is_not_kept() {
    let upstream = Upstream::start(|_| {
        let mut answer = completion("cut");
        answer["choices"][0]["finish_reason"] = json!("length");
        ok(&answer)
    })
    .await;
    let rig = keeping(&upstream).await;
    for count in 1..=3 {
        assert_eq!(rig.chat().await.status(), 200);
        assert_eq!(upstream.count(), count);
    }
}
