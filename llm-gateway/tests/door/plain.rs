//! Requests and answers in one piece.

use serde_json::json;

use crate::rig::{KEY, Rig, THEIRS, chat, json};
use crate::upstream::{Upstream, answer, completion, error, message, ok};

#[tokio::test]
async fn an_answer_passes_through_byte_by_byte() {
    let written = r#"{"id": "x",  "choices":[{"index":0,"message":{"role":"assistant","content":"h\u00e9"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3}, "timings":{"a":1.50}}"#;
    let upstream = Upstream::start(move |_| answer(200, &[("openai-organization", "secret-org"), ("set-cookie", "a=b")], written)).await;
    let rig = Rig::with(&upstream, "openai").await;
    let response = rig.chat().await;
    assert_eq!(response.status(), 200);
    assert!(response.headers().contains_key("x-request-id") && response.headers()["content-type"] == "application/json");
    assert!(
        !response.headers().contains_key("openai-organization") && !response.headers().contains_key("set-cookie"),
        "headers of upstreams are not passed on"
    );
    assert_eq!(response.headers()["x-kernelopt-cost-nanousd"], "13000", "7 tokens at $1 and 3 at $2 a million");
    assert_eq!(response.text().await.unwrap(), written);
    let asked = upstream.last();
    assert_eq!((asked.path.as_str(), &asked.body["model"]), ("/v1/chat/completions", &json!("theirs")));
    assert_eq!(asked.header("authorization"), Some(format!("Bearer {}", THEIRS[0]).as_str()));
    assert!(!asked.head.contains(KEY), "the caller's key stays here");
    assert_eq!(rig.metric("kernelopt_gateway_tokens_total", &["model=\"m\"", "kind=\"input\""]), 7.0);
    assert_eq!(rig.metric("kernelopt_gateway_requests_total", &["outcome=\"answered\""]), 1.0);
    rig.quiet().await;
}

#[tokio::test]
async fn each_dialect_reaches_each_kind_of_upstream() {
    let openai = Upstream::start(|_| ok(&completion("said"))).await;
    let anthropic = Upstream::start(|_| ok(&message("said"))).await;
    for (upstream, dialect) in [(&openai, "openai"), (&anthropic, "anthropic")] {
        let rig = Rig::with(upstream, dialect).await;
        let answer = json(rig.chat().await).await;
        assert_eq!(answer["choices"][0]["message"]["content"], "said", "{answer}");
        assert_eq!((&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]), (&json!(7), &json!(3)));
        let request =
            rig.client.post(format!("{}/v1/messages", rig.base)).header("x-api-key", KEY).header("anthropic-version", "2023-06-01");
        let answer = json(request.json(&chat()).send().await.unwrap()).await;
        assert_eq!((&answer["content"][0]["text"], &answer["stop_reason"]), (&json!("said"), &json!("end_turn")), "{answer}");
        let usage = &answer["usage"];
        assert_eq!(usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap(), 7);
        assert_eq!(upstream.count(), 2);
    }
    let asked = anthropic.last();
    assert_eq!(
        (asked.path.as_str(), asked.header("x-api-key"), asked.header("anthropic-version")),
        ("/v1/messages", Some(THEIRS[0]), Some("2023-06-01"))
    );
}

#[tokio::test]
async fn bad_requests_are_refused_in_the_callers_dialect_and_nothing_is_sent() {
    let upstream = Upstream::start(|_| ok(&completion("said"))).await;
    let rig = Rig::with(&upstream, "openai").await;
    let post = |path: &str| rig.client.post(format!("{}{path}", rig.base));
    let status = async |request: reqwest::RequestBuilder| {
        let response = request.send().await.unwrap();
        let (status, retry) = (response.status().as_u16(), response.headers().get("x-should-retry").cloned());
        let body = json(response).await;
        assert_eq!(retry.is_some_and(|retry| retry == "false"), status < 500, "{body}");
        (status, body)
    };
    let (code, body) = status(post("/v1/chat/completions").json(&chat())).await;
    assert_eq!((code, &body["error"]["code"]), (401, &json!("invalid_api_key")));
    let (code, body) = status(post("/v1/messages").header("x-api-key", "wrong").json(&chat())).await;
    assert_eq!((code, &body["type"], &body["error"]["type"]), (401, &json!("error"), &json!("authentication_error")));
    assert!(body["request_id"].is_string());
    let mut unknown = chat();
    unknown["model"] = "nobody".into();
    assert_eq!(status(post("/v1/chat/completions").bearer_auth(KEY).json(&unknown)).await.0, 404);
    assert_eq!(status(post("/v1/chat/completions").bearer_auth(crate::rig::OPERATOR).json(&chat())).await.0, 403);
    assert_eq!(status(post("/v1/chat/completions").bearer_auth(KEY).body("{")).await.0, 400);
    assert_eq!(status(post("/v1/nothing").bearer_auth(KEY)).await.0, 404);
    assert_eq!(status(rig.client.get(format!("{}/v1/chat/completions", rig.base))).await.0, 405);
    for (header, value) in [("x-kernelopt-priority", "10"), ("x-kernelopt-job", "a b"), ("x-kernelopt-sample", "x")] {
        assert_eq!(status(rig.post("/v1/chat/completions", &chat()).header(header, value)).await.0, 400, "{header}");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn refusals_of_upstreams_are_rebuilt_and_stop_there() {
    let upstream = Upstream::start(|_| error(400, &[], &format!("messages.0 is wrong, {}", THEIRS[0]))).await;
    let rig = Rig::with(&upstream, "openai").await;
    let response = rig.chat().await;
    assert_eq!(response.status(), 400);
    let text = response.text().await.unwrap();
    assert!(text.contains("messages.0 is wrong") && !text.contains("canary"), "{text}");
    assert_eq!(upstream.count(), 1);
    rig.quiet().await;
}

#[tokio::test]
async fn ten_megabytes_pass_and_more_than_the_limit_does_not() {
    let upstream = Upstream::start(|_| ok(&completion("said"))).await;
    let rig = Rig::start_with(
        "[http]\nmost_body_bytes = 12000000",
        &[crate::rig::at(&upstream, "one", "openai", &["a"], ""), crate::rig::model(&["one"])].concat(),
    )
    .await;
    let long = |bytes: usize| {
        let mut body = chat();
        body["messages"][0]["content"] = "x".repeat(bytes).into();
        body
    };
    assert_eq!(rig.post("/v1/chat/completions", &long(10 << 20)).send().await.unwrap().status(), 200);
    assert_eq!(upstream.last().body["messages"][0]["content"].as_str().unwrap().len(), 10 << 20);
    let refused = rig.post("/v1/chat/completions", &long(13 << 20)).send().await;
    // The connection is closed on the rest of the body, which a client may take for an error of its own.
    assert!(refused.is_err() || refused.unwrap().status() == 413);
    let chunked = reqwest::Body::wrap_stream(futures_util::stream::iter((0..13).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1 << 20]))));
    let refused = rig.client.post(format!("{}/v1/chat/completions", rig.base)).bearer_auth(KEY).body(chunked).send().await;
    assert!(refused.is_err() || refused.unwrap().status() == 413);
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn models_are_listed_in_both_dialects() {
    let upstream = Upstream::start(|_| ok(&completion("said"))).await;
    let rig = Rig::with(&upstream, "openai").await;
    let get = |path: &str| rig.client.get(format!("{}{path}", rig.base)).bearer_auth(KEY);
    let models = json(get("/v1/models").send().await.unwrap()).await;
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("m")));
    let models = json(get("/v1/models").header("anthropic-version", "2023-06-01").send().await.unwrap()).await;
    assert_eq!((&models["data"][0]["type"], &models["has_more"]), (&json!("model"), &json!(false)));
    assert_eq!(json(get("/v1/models/m").send().await.unwrap()).await["id"], "m");
    assert_eq!(get("/v1/models/other").send().await.unwrap().status(), 404);
    assert_eq!(rig.client.get(format!("{}/v1/models", rig.base)).send().await.unwrap().status(), 401);
    for probe in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(rig.client.get(format!("{}{probe}", rig.base)).send().await.unwrap().status(), 200, "{probe}");
    }
}
