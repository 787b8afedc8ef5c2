//! Answers event by event.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use kernelopt_llm_gateway::sse::{Event, Splitter};
use serde_json::{Value, json};

use crate::rig::{KEY, Rig, TIMES, at, chat, model};
use crate::upstream::{Play, Step, Upstream, chunk, completion, delta, end, event, finish, ok, stream, stream_head};

/// All events of a response, read as the standard says; data that is no JSON as a text.
pub async fn events(response: reqwest::Response) -> Vec<Value> {
    let (mut bytes, mut splitter, mut all) = (response.bytes_stream(), Splitter::default(), Vec::new());
    while let Some(piece) = bytes.next().await {
        splitter.push(piece.unwrap());
        while let Some(event) = splitter.next_event().unwrap() {
            if let Some(data) = Event::read(&event).data {
                all.push(serde_json::from_slice(&data).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&data))));
            }
        }
    }
    all
}

fn text(events: &[Value]) -> String {
    events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect()
}

fn words(count: usize) -> Vec<String> {
    (0..count).map(|n| delta(&format!("{n} "))).chain([finish()]).collect()
}

fn anthropic() -> Vec<String> {
    [
        json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "theirs", "content": [], "usage": {"input_tokens": 4, "cache_read_input_tokens": 3, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "0 1 "}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ]
    .iter()
    .map(event)
    .collect()
}

#[tokio::test]
async fn a_stream_passes_through_byte_by_byte() {
    let upstream = Upstream::start(|_| stream(&words(20))).await;
    let rig = Rig::with(&upstream, "openai").await;
    let response = rig.streamed().await;
    assert_eq!((response.status().as_u16(), &response.headers()["content-type"]), (200, &"text/event-stream".parse().unwrap()));
    assert_eq!(response.text().await.unwrap(), words(20).concat());
    rig.until("settled", || rig.metric("kernelopt_gateway_settled_total", &["exact"]) == 1.0).await;
    assert_eq!(rig.metric("kernelopt_gateway_tokens_total", &["kind=\"output\""]), 3.0);
    rig.quiet().await;
}

#[tokio::test]
async fn usage_is_always_asked_for_and_taken_out_where_the_caller_did_not() {
    let upstream = Upstream::start(|_| stream(&words(2))).await;
    let rig = Rig::with(&upstream, "openai").await;
    let mut body = chat();
    body["stream"] = true.into();
    let events = events(rig.post("/v1/chat/completions", &body).send().await.unwrap()).await;
    assert_eq!(upstream.last().body["stream_options"], json!({"include_usage": true}));
    assert!(events.len() == 4 && events.iter().all(|event| event.get("usage").is_none()) && events[3] == "[DONE]", "{events:?}");
    assert_eq!(rig.metric("kernelopt_gateway_settled_total", &["exact"]), 1.0);
}

#[tokio::test]
async fn each_dialect_streams_from_each_kind_of_upstream() {
    let openai = Upstream::start(|_| stream(&words(2))).await;
    let anthropic = Upstream::start(|_| stream(&anthropic())).await;
    for (upstream, dialect) in [(&openai, "openai"), (&anthropic, "anthropic")] {
        let rig = Rig::with(upstream, dialect).await;
        let all = events(rig.streamed().await).await;
        assert_eq!((text(&all).as_str(), all.last()), ("0 1 ", Some(&json!("[DONE]"))), "{all:?}");
        assert_eq!(all[all.len() - 2]["usage"]["prompt_tokens"], 7);
        let mut body = chat();
        body["stream"] = true.into();
        let request = rig.client.post(format!("{}/v1/messages", rig.base)).header("x-api-key", KEY).json(&body);
        let all = events(request.send().await.unwrap()).await;
        let said: String = all.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
        assert_eq!((said.as_str(), all.last().map(|event| &event["type"])), ("0 1 ", Some(&json!("message_stop"))), "{all:?}");
        assert_eq!(rig.metric("kernelopt_gateway_tokens_total", &["kind=\"input\""]), 14.0);
    }
}

#[tokio::test]
async fn a_cut_stream_does_not_look_complete() {
    for last in [vec![Step::Cut], vec![end()], vec![chunk("data: {\"choi"), end()], vec![chunk("data: {\"choi\n\n"), end()]] {
        let play: Play = [stream_head(), chunk(&delta("half ")), chunk(&delta("an answer"))].into_iter().chain(last).collect();
        let upstream = Upstream::start(move |_| play.clone()).await;
        let rig = Rig::with(&upstream, "openai").await;
        let all = events(rig.streamed().await).await;
        assert_eq!(text(&all), "half an answer");
        let error = all.last().unwrap();
        assert!(error["error"]["message"].is_string() && !all.contains(&json!("[DONE]")), "{all:?}");
        assert_eq!(upstream.count(), 1, "nothing is sent again once something went out");
        rig.quiet().await;
        assert_eq!(rig.metric("kernelopt_gateway_requests_total", &["outcome=\"cut\""]), 1.0);
        // Two parts, fourteen bytes: four tokens by our count.
        assert_eq!(rig.metric("kernelopt_gateway_tokens_total", &["kind=\"output\""]), 4.0);
        assert_eq!(rig.metric("kernelopt_gateway_settled_total", &["estimated"]), 1.0);
    }
}

#[tokio::test]
async fn an_error_at_the_start_of_a_stream_is_a_failed_attempt() {
    let failing = |data: &Value| {
        let event = format!("data: {data}\n\n");
        [stream_head(), chunk(": hello\n\n"), chunk(&event), end()].to_vec()
    };
    let overloaded = failing(&json!({"error": {"message": "overloaded", "type": "overloaded_error"}}));
    let one = Upstream::start(move |_| overloaded.clone()).await;
    let other = Upstream::start(|_| stream(&words(2))).await;
    let text_of =
        [at(&one, "one", "openai", &["a"], TIMES), at(&other, "other", "openai", &["b"], TIMES), model(&["one", "other"])].concat();
    let rig = Rig::start(&text_of).await;
    let all = events(rig.streamed().await).await;
    assert_eq!((text(&all).as_str(), one.count(), other.count()), ("0 1 ", 1, 1));
    assert_eq!(rig.metric("kernelopt_gateway_attempts_total", &["upstream=\"one\"", "overloaded"]), 1.0);
    rig.quiet().await;
}

#[tokio::test]
async fn an_error_later_in_a_stream_is_told_as_one() {
    let error = json!({"error": {"message": format!("boom at 10.0.0.1 with {}", crate::rig::THEIRS[0]), "type": "server_error"}});
    let play: Play = vec![stream_head(), chunk(&delta("half")), chunk(&format!("data: {error}\n\n")), end()];
    let upstream = Upstream::start(move |_| play.clone()).await;
    let rig = Rig::with(&upstream, "openai").await;
    let all = events(rig.streamed().await).await;
    assert_eq!((all.len(), &all[1]["error"]["type"]), (2, &json!("server_error")));
    assert!(!all[1].to_string().contains("canary") && !all[1].to_string().contains("10.0.0.1"));
    rig.quiet().await;
}

#[tokio::test]
async fn each_time_of_a_stream_runs_out_on_its_own() {
    // Before the first byte, between two, and in all.
    let slow: Play = [stream_head()]
        .into_iter()
        .chain((0..100).flat_map(|n| [chunk(&delta(&format!("{n} "))), Step::Pause(Duration::from_millis(100))]))
        .collect();
    let plays: [(Play, &str, &str); 3] = [
        (vec![Step::Stall], "", "FirstByte"),
        (vec![stream_head(), chunk(&delta("a")), Step::Stall], "a", "Idle"),
        (slow, "0 1 ", "Total"),
    ];
    for (play, said, which) in plays {
        let upstream = Upstream::start(move |_| play.clone()).await;
        let times = "timeouts = { connect_ms = 500, first_byte_ms = 300, idle_ms = 300, total_ms = 900 }";
        let rig =
            Rig::start_with("[retry]\nmost_attempts = 1", &[at(&upstream, "one", "openai", &["a"], times), model(&["one"])].concat()).await;
        let began = Instant::now();
        let response = rig.streamed().await;
        let problem = if response.status() == 200 {
            let all = events(response).await;
            assert!(text(&all).starts_with(said));
            all.last().unwrap()["error"].clone()
        } else {
            assert_eq!(response.status(), 504);
            crate::rig::json(response).await["error"].clone()
        };
        assert!(problem["message"].as_str().unwrap().contains(which), "{problem}");
        assert!(began.elapsed() < Duration::from_secs(2), "{which}: {:?}", began.elapsed());
        rig.until("the upstream hears that nobody waits", || upstream.hung_up.load(Ordering::SeqCst) == 1).await;
        rig.quiet().await;
    }
}

#[tokio::test]
async fn a_caller_who_leaves_ends_the_work_upstream() {
    let plays: [Play; 3] =
        [vec![Step::Stall], vec![stream_head(), Step::Stall], vec![stream_head(), chunk(&delta("a few words")), Step::Stall]];
    for play in plays {
        let upstream = Upstream::start(move |_| play.clone()).await;
        let rig = Rig::start(&[at(&upstream, "one", "openai", &["a"], ""), model(&["one"])].concat()).await;
        for stream in [true, false] {
            let mut body = chat();
            body["stream"] = stream.into();
            let before = upstream.hung_up.load(Ordering::SeqCst);
            let response = tokio::time::timeout(Duration::from_millis(200), async {
                let mut response = rig.post("/v1/chat/completions", &body).send().await.unwrap();
                while response.chunk().await.unwrap().is_some() {}
            });
            assert!(response.await.is_err(), "nothing more comes");
            rig.until("the upstream hears it", || upstream.hung_up.load(Ordering::SeqCst) == before + 1).await;
            rig.quiet().await;
        }
        assert_eq!(rig.metric("kernelopt_gateway_requests_total", &["outcome=\"cancelled\""]), 2.0);
        assert_eq!(rig.metric("kernelopt_gateway_settled_total", &["estimated"]), 2.0);
    }
}

#[tokio::test]
async fn a_quiet_stream_has_heartbeats() {
    let play: Play = vec![
        Step::Pause(Duration::from_millis(1500)),
        stream_head(),
        chunk(&delta("a")),
        Step::Pause(Duration::from_millis(1500)),
        chunk(&finish()),
        end(),
    ];
    let upstream = Upstream::start(move |_| play.clone()).await;
    let rig = Rig::start_with("[http]\nheartbeat_s = 1", &[at(&upstream, "one", "openai", &["a"], ""), model(&["one"])].concat()).await;
    let began = Instant::now();
    let response = rig.streamed().await;
    assert!(began.elapsed() < Duration::from_millis(1400), "the head does not wait for the first event");
    let text = response.text().await.unwrap();
    let beats: Vec<_> = text.match_indices(": still here\n\n").map(|(at, _)| at).collect();
    let a = text.find("\"a\"").unwrap();
    assert!(beats.len() == 2 && beats[0] < a && beats[1] > a && text.ends_with("[DONE]\n\n"), "{text}");
}

#[tokio::test]
async fn what_fails_after_the_head_went_out_is_an_error_within_the_stream() {
    let one = Upstream::start(|_| vec![Step::Pause(Duration::from_millis(1300)), Step::Cut]).await;
    let rig = Rig::start_with(
        "[http]\nheartbeat_s = 1\n[retry]\nmost_attempts = 1",
        &[at(&one, "one", "openai", &["a"], ""), model(&["one"])].concat(),
    )
    .await;
    let all = events(rig.streamed().await).await;
    assert!(all.len() == 1 && all[0]["error"]["message"].is_string(), "{all:?}");
    // And where there is another, it is still asked.
    let other = Upstream::start(|_| stream(&words(2))).await;
    let rig = Rig::start_with(
        "[http]\nheartbeat_s = 1",
        &[at(&one, "one", "openai", &["a"], ""), at(&other, "other", "openai", &["a"], ""), model(&["one", "other"])].concat(),
    )
    .await;
    assert_eq!(text(&events(rig.streamed().await).await), "0 1 ");
}

#[tokio::test]
async fn what_is_no_stream_is_a_failed_attempt() {
    let upstream = Upstream::start(|asked| if asked.number == 0 { ok(&completion("not a stream")) } else { stream(&words(1)) }).await;
    let rig = Rig::with(&upstream, "openai").await;
    assert_eq!(text(&events(rig.streamed().await).await), "0 ");
    assert_eq!(upstream.count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_and_twelve_streams_lose_nothing() {
    const STREAMS: usize = 512;
    const EVENTS: usize = 40;
    let play: Play = [stream_head()]
        .into_iter()
        .chain((0..EVENTS).flat_map(|n| [chunk(&delta(&format!("{n} "))), Step::Pause(Duration::from_millis(5))]))
        .chain([chunk(&finish()), end()])
        .collect();
    let upstream = Upstream::start(move |_| play.clone()).await;
    let rig = Rig::start(&[at(&upstream, "one", "openai", &["a"], ""), model(&["one"])].concat()).await;
    let wanted = words(EVENTS).concat();
    let all = futures_util::future::join_all((0..STREAMS).map(|_| async { rig.streamed().await.text().await.unwrap() })).await;
    assert!(all.iter().all(|text| *text == wanted), "the same bytes, {} of {STREAMS}", all.iter().filter(|text| **text == wanted).count());
    rig.quiet().await;
    assert_eq!(rig.metric("kernelopt_gateway_settled_total", &["exact"]), STREAMS as f64);
}

#[tokio::test]
async fn connections_are_used_again() {
    let upstream = Upstream::start(|_| stream(&words(3))).await;
    let rig = Rig::with(&upstream, "openai").await;
    for _ in 0..20 {
        assert!(rig.streamed().await.text().await.unwrap().ends_with("[DONE]\n\n"));
    }
    assert!(upstream.connections.load(Ordering::SeqCst) <= 2, "{}", upstream.connections.load(Ordering::SeqCst));
}
