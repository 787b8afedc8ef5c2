//! Retries, failover and pauses, by the table.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::rig::{Rig, THEIRS, TIMES, at, chat, json, model};
use crate::upstream::{Play, Step, Upstream, answer, completion, error, ok};

/// An upstream that fails its first requests so, and answers the others.
async fn failing(times: usize, play: Play) -> Upstream {
    Upstream::start(move |asked| if asked.number < times { play.clone() } else { ok(&completion("said")) }).await
}

/// Two upstreams, the first of which fails.
async fn two(play: Play) -> (Upstream, Upstream, Rig) {
    let (one, other) = (failing(usize::MAX, play).await, failing(0, Vec::new()).await);
    let text = [at(&one, "one", "openai", &["a"], TIMES), at(&other, "other", "openai", &["b"], TIMES), model(&["one", "other"])].concat();
    let rig = Rig::start(&text).await;
    (one, other, rig)
}

const QUICK: &str = "[retry]\nmost_attempts = 3\nfirst_wait_ms = 50\nlongest_wait_ms = 200";

async fn one(upstream: &Upstream, top: &str) -> Rig {
    Rig::start_with(top, &[at(upstream, "one", "openai", &["a"], TIMES), model(&["one"])].concat()).await
}

#[tokio::test]
async fn what_the_table_says_fails_over_does_and_what_it_does_not_stops() {
    let cases: [(Play, bool); 12] = [
        (error(429, &[], "slow down"), true),
        (error(500, &[], "oops"), true),
        (error(502, &[], "oops"), true),
        (error(503, &[], "busy"), true),
        (error(529, &[], "overloaded"), true),
        (error(401, &[], "no such key"), true),
        (error(403, &[], "no"), true),
        (error(402, &[], "pay"), true),
        (answer(200, &[], &json!({"error": {"message": "overloaded", "type": "overloaded_error"}}).to_string()), true),
        (answer(200, &[], "<html>"), true),
        (vec![Step::Cut], true),
        (answer(302, &[("location", "http://127.0.0.1:1/")], ""), true),
    ];
    for (play, goes_on) in cases {
        let said = format!("{play:?}");
        let (first, second, rig) = two(play).await;
        let response = rig.chat().await;
        assert_eq!((response.status() == 200, first.count(), second.count()), (goes_on, 1, 1), "{said}");
        rig.quiet().await;
    }
    for status in [400, 404, 413, 422] {
        let (first, second, rig) = two(error(status, &[], "no")).await;
        let response = rig.chat().await;
        assert!(response.status().is_client_error(), "{status}");
        assert_eq!((first.count(), second.count()), (1, 0), "{status}");
    }
}

#[tokio::test]
async fn a_key_that_is_refused_gives_way_to_the_next_at_once() {
    let upstream = Upstream::start(|asked| {
        let first = asked.header("authorization").is_some_and(|value| value.ends_with(THEIRS[0]));
        if first { error(401, &[], "Incorrect API key provided") } else { ok(&completion("said")) }
    })
    .await;
    let rig = Rig::start(&[at(&upstream, "one", "openai", &["a", "b"], TIMES), model(&["one"])].concat()).await;
    let began = Instant::now();
    for _ in 0..4 {
        assert_eq!(rig.chat().await.status(), 200);
    }
    assert!(began.elapsed() < Duration::from_millis(400), "no waiting");
}

#[tokio::test]
async fn where_all_keys_are_refused_the_caller_hears_of_no_key() {
    let upstream = failing(usize::MAX, error(401, &[], &format!("Incorrect API key provided: {}", THEIRS[0]))).await;
    let rig = Rig::start(&[at(&upstream, "one", "openai", &["a", "b"], TIMES), model(&["one"])].concat()).await;
    let response = rig.chat().await;
    assert_eq!(response.status(), 502);
    let text = response.text().await.unwrap();
    assert!(text.contains("does not take the gateway's key") && !text.contains("canary"), "{text}");
    assert_eq!(upstream.count(), 2, "each once");
}

#[tokio::test]
async fn a_sole_upstream_is_tried_again_after_a_while_and_not_for_ever() {
    let upstream = failing(2, error(500, &[], "oops")).await;
    let rig = one(&upstream, QUICK).await;
    let began = Instant::now();
    assert_eq!(rig.chat().await.status(), 200);
    assert!(upstream.count() == 3 && began.elapsed() >= Duration::from_millis(100), "two waits, of 50 and 100 ms less a quarter");
    let upstream = failing(usize::MAX, error(500, &[], "oops")).await;
    let rig = one(&upstream, QUICK).await;
    assert_eq!(rig.chat().await.status(), 502);
    assert_eq!(upstream.count(), 3, "as many as are set");
    assert_eq!(rig.metric("kernelopt_gateway_attempts_total", &["server_error"]), 3.0);
}

#[tokio::test]
async fn a_connection_that_is_refused_fails_over() {
    let (_, other, rig) = {
        let gone = Upstream { port: 1, ..failing(0, Vec::new()).await };
        let other = failing(0, Vec::new()).await;
        let text =
            [at(&gone, "one", "openai", &["a"], TIMES), at(&other, "other", "openai", &["b"], TIMES), model(&["one", "other"])].concat();
        let rig = Rig::start(&text).await;
        (gone, other, rig)
    };
    assert_eq!(rig.chat().await.status(), 200);
    assert_eq!(other.count(), 1);
    assert_eq!(rig.metric("kernelopt_gateway_attempts_total", &["unreachable"]), 1.0);
}

#[tokio::test]
async fn a_silent_upstream_times_out_though_its_answer_is_no_stream() {
    let upstream = failing(usize::MAX, vec![Step::Stall]).await;
    let times = "timeouts = { connect_ms = 200, first_byte_ms = 200, idle_ms = 200, total_ms = 700 }";
    let rig =
        Rig::start_with("[retry]\nmost_attempts = 1", &[at(&upstream, "one", "openai", &["a"], times), model(&["one"])].concat()).await;
    let began = Instant::now();
    assert_eq!(rig.chat().await.status(), 504);
    assert!((600..1500).contains(&began.elapsed().as_millis()), "an answer that is no stream may take all of the time, and no more");
    rig.until("the upstream hears it", || upstream.hung_up.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn the_time_to_connect_is_its_own() {
    // A socket whose queue of connections is full: nobody answers there, and nobody refuses.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(1).unwrap();
    let address = full.local_addr().unwrap();
    let mut filling = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(100), tokio::net::TcpStream::connect(address)).await {
        filling.push(stream);
    }
    let gone = Upstream { port: address.port(), ..failing(0, Vec::new()).await };
    let times = "timeouts = { connect_ms = 300, first_byte_ms = 5000, idle_ms = 5000, total_ms = 6000 }";
    let rig = Rig::start_with("[retry]\nmost_attempts = 1", &[at(&gone, "one", "openai", &["a"], times), model(&["one"])].concat()).await;
    let began = Instant::now();
    let response = rig.chat().await;
    assert_eq!(response.status(), 504);
    assert!(response.text().await.unwrap().contains("Connect"));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn hidden_spending_there_is_none() {
    // An attempt that was silent may have worked: it is charged as reserved, besides the one that answered.
    let upstream = failing(1, vec![Step::Stall]).await;
    let times = "timeouts = { connect_ms = 200, first_byte_ms = 200, idle_ms = 200, total_ms = 400 }";
    let rig = Rig::start_with(QUICK, &[at(&upstream, "one", "openai", &["a"], times), model(&["one"])].concat()).await;
    assert_eq!(rig.chat().await.status(), 200);
    assert_eq!(rig.metric("kernelopt_gateway_tokens_total", &["kind=\"output\""]), 53.0, "50 reserved, 3 told");
    assert_eq!(
        (rig.metric("kernelopt_gateway_settled_total", &["estimated"]), rig.metric("kernelopt_gateway_settled_total", &["exact"])),
        (1.0, 1.0)
    );
    // One that was refused is not.
    let upstream = failing(1, error(500, &[], "oops")).await;
    let rig = one(&upstream, QUICK).await;
    assert_eq!(rig.chat().await.status(), 200);
    assert_eq!(rig.metric("kernelopt_gateway_tokens_total", &["kind=\"output\""]), 3.0);
}

#[tokio::test]
async fn a_provider_that_lies_about_usage_is_not_believed() {
    let lie = |usage: Value| {
        let mut body = completion("said something");
        body["usage"] = usage;
        ok(&body)
    };
    for (usage, how, output) in [
        (json!({"prompt_tokens": 0, "completion_tokens": 0}), "implausible", 4.0),
        (json!({"prompt_tokens": 7, "completion_tokens": 5_000_000}), "implausible", 50.0),
        (json!({"prompt_tokens": 900_000_000, "completion_tokens": 3}), "implausible", 4.0),
        (json!({"prompt_tokens": -7, "completion_tokens": 3}), "estimated", 4.0),
        (Value::Null, "estimated", 4.0),
    ] {
        let upstream = failing(usize::MAX, lie(usage.clone())).await;
        let rig = one(&upstream, "").await;
        assert_eq!(rig.chat().await.status(), 200);
        assert_eq!(rig.metric("kernelopt_gateway_settled_total", &[how]), 1.0, "{usage}");
        assert_eq!(rig.metric("kernelopt_gateway_tokens_total", &["kind=\"output\""]), output, "{usage}");
        rig.quiet().await;
    }
}

#[tokio::test]
async fn a_caller_who_leaves_between_attempts_is_not_tried_for() {
    let upstream = failing(usize::MAX, error(500, &[], "oops")).await;
    let rig = one(&upstream, "[retry]\nmost_attempts = 5\nfirst_wait_ms = 400\nlongest_wait_ms = 400").await;
    let left = tokio::time::timeout(Duration::from_millis(150), rig.chat()).await;
    assert!(left.is_err());
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(upstream.count(), 1);
    assert_eq!(rig.metric("kernelopt_gateway_requests_total", &["cancelled"]), 1.0);
    rig.quiet().await;
}

fn http_date(later: Duration) -> String {
    httpdate::fmt_http_date(SystemTime::now() + later)
}

#[tokio::test]
async fn a_wish_for_a_pause_is_a_minimum() {
    for (name, value, least) in [("retry-after-ms", Some("600"), 600), ("retry-after", Some("0.6"), 600), ("retry-after", None, 1900)] {
        // A date has whole seconds, so it may lie up to one earlier.
        let upstream = Upstream::start(move |asked| match asked.number {
            0 => error(429, &[(name, value.unwrap_or(&http_date(Duration::from_secs(3))))], "slow down"),
            _ => ok(&completion("said")),
        })
        .await;
        let rig = one(&upstream, QUICK).await;
        let began = Instant::now();
        assert_eq!(rig.chat().await.status(), 200, "{value:?}");
        assert!(began.elapsed() >= Duration::from_millis(least), "{value:?}: {:?}", began.elapsed());
        assert_eq!(upstream.count(), 2);
    }
}

#[tokio::test]
async fn the_newest_wish_counts_and_closes_the_deployment_for_everybody() {
    let upstream = Upstream::start(|asked| match asked.number {
        0 => error(429, &[("retry-after-ms", "300")], "slow down"),
        1 => error(429, &[("retry-after-ms", "700")], "slower"),
        _ => ok(&completion("said")),
    })
    .await;
    let rig = one(&upstream, QUICK).await;
    let began = Instant::now();
    let (first, second) = tokio::join!(rig.chat(), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        rig.chat().await
    });
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    assert!(began.elapsed() >= Duration::from_millis(1000), "{:?}", began.elapsed());
    assert!(upstream.count() <= 4, "no storm: {}", upstream.count());
}

#[tokio::test]
async fn a_wish_beyond_the_deadline_is_passed_on_at_once() {
    let upstream = failing(usize::MAX, error(429, &[("retry-after", "107")], "slow down")).await;
    let rig = one(&upstream, QUICK).await;
    let began = Instant::now();
    let response = rig.post("/v1/chat/completions", &chat()).header("x-kernelopt-deadline-ms", "5000").send().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "nobody waits for what cannot come: {:?}", began.elapsed());
    assert_eq!(response.status(), 429);
    let wait: f64 = response.headers()["retry-after-ms"].to_str().unwrap().parse().unwrap();
    assert!((105_000.0..=107_000.0).contains(&wait), "{wait}");
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(json(response).await["error"]["code"], "rate_limit_exceeded");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_deployment_that_keeps_failing_is_left_alone() {
    let top = "[retry]\nmost_attempts = 2\nfirst_wait_ms = 10\nlongest_wait_ms = 10\n[breaker]\nfailure_percent = 50\nleast_attempts = 4\nwindow_s = 30\nopen_s = 30";
    let (one, other) = (failing(usize::MAX, error(500, &[], "oops")).await, failing(0, Vec::new()).await);
    let text = [at(&one, "one", "openai", &["a"], TIMES), at(&other, "other", "openai", &["b"], TIMES), model(&["one", "other"])].concat();
    let rig = Rig::start_with(top, &text).await;
    for _ in 0..20 {
        assert_eq!(rig.chat().await.status(), 200);
    }
    assert_eq!((one.count(), other.count()), (4, 20));
    rig.until("it is said", || rig.metric("kernelopt_gateway_upstream_closed", &["\"one\""]) == 1.0).await;
    assert_eq!(rig.metric("kernelopt_gateway_upstream_closed", &["\"other\""]), 0.0);
}
