//! Settings that change while requests are under way, and the end of the process.

use std::time::Duration;

use serde_json::json;

use crate::rig::{KEY, OPERATOR, Rig, TIMES, at, chat, model};
use crate::streams::events;
use crate::upstream::{Play, Step, Upstream, chunk, completion, delta, end, finish, ok, stream_head};

fn slow() -> Play {
    [stream_head()]
        .into_iter()
        .chain((0..10).flat_map(|n| [chunk(&delta(&format!("{n} "))), Step::Pause(Duration::from_millis(50))]))
        .chain([chunk(&finish()), end()])
        .collect()
}

#[tokio::test]
async fn a_reload_drops_no_request_and_takes_effect() {
    let (one, other) = (Upstream::start(|_| slow()).await, Upstream::start(|_| ok(&completion("the other"))).await);
    let rig = Rig::start(&[at(&one, "one", "openai", &["a"], TIMES), model(&["one"])].concat()).await;
    let reload = |key: &str| rig.client.post(format!("{}/v1/reload", rig.base)).bearer_auth(key).send();
    let response = rig.streamed().await;
    rig.rewrite("", &[at(&other, "other", "openai", &["b"], TIMES), model(&["other"])].concat());
    assert_eq!(reload(KEY).await.unwrap().status(), 403);
    assert_eq!(reload(OPERATOR).await.unwrap().status(), 200);
    let body: serde_json::Value = rig.chat().await.json().await.unwrap();
    assert_eq!(body["choices"][0]["message"]["content"], "the other");
    let all = events(response).await;
    assert_eq!((all.len(), all.last()), (13, Some(&json!("[DONE]"))), "what was begun with the old settings ends with them");
    rig.quiet().await;
    // A file that cannot be used changes nothing.
    rig.rewrite("nonsense = 1", "");
    assert_eq!(reload(OPERATOR).await.unwrap().status(), 400);
    assert_eq!(rig.chat().await.status(), 200);
    assert_eq!(rig.metric("kernelopt_gateway_reloads_total", &["taken"]), 1.0);
    assert_eq!(rig.metric("kernelopt_gateway_reloads_total", &["refused"]), 1.0);
}

#[tokio::test]
async fn the_end_waits_for_what_is_under_way() {
    let upstream = Upstream::start(|_| slow()).await;
    let rig = Rig::with(&upstream, "openai").await;
    let response = rig.streamed().await;
    rig.stop.cancel();
    let all = events(response).await;
    assert_eq!(all.last(), Some(&json!("[DONE]")));
    let refused = rig.client.post(format!("{}/v1/chat/completions", rig.base)).bearer_auth(KEY).json(&chat()).send().await;
    assert!(refused.is_err());
    tokio::time::timeout(Duration::from_secs(5), rig.served).await.unwrap().unwrap();
}
