//! What limits, budgets and the queue look like from outside, and that nothing is left over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::rig::{KEY, Rig, TIMES, at, chat, json, model};
use crate::upstream::{Step, Upstream, chunk, completion, delta, end, error, finish, ok, stream_head};

/// With limits on jobs.
async fn limited(upstream: &Upstream, limits: &str) -> Rig {
    let text = [at(upstream, "one", "openai", &["a"], TIMES), model(&["one"]), format!("[jobs]\nlimits = {{ {limits} }}\n")].concat();
    Rig::start(&text).await
}

async fn answering() -> Upstream {
    Upstream::start(|_| ok(&completion("said"))).await
}

#[tokio::test]
async fn a_budget_that_is_spent_is_said_in_each_dialect_and_nothing_is_sent() {
    let upstream = answering().await;
    // A request is reserved at about 150 micro-dollars: 50 tokens of output at $2 a million, and its input; it costs 13.
    let rig = limited(&upstream, "budget_usd = 0.000160").await;
    let mut sent = 0;
    let refused = loop {
        let response = rig.chat().await;
        if response.status() != 200 {
            break response;
        }
        sent += 1;
        assert!(sent < 20, "the budget is never spent");
    };
    assert!(sent >= 1 && upstream.count() == sent, "what was not used comes back");
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["x-should-retry"], "false");
    assert_eq!(json(refused).await["error"]["code"], "insufficient_quota");
    let request = rig.client.post(format!("{}/v1/messages", rig.base)).header("x-api-key", KEY).json(&chat());
    let refused = request.send().await.unwrap();
    assert_eq!(refused.status(), 402);
    assert_eq!(json(refused).await["error"]["type"], "billing_error");
    assert_eq!(upstream.count(), sent);
    assert!(rig.metric("kernelopt_gateway_cost_nanousd_total", &[]) <= 160_000.0, "never overrun");
    // Another job has its own.
    assert_eq!(rig.post("/v1/chat/completions", &chat()).header("x-kernelopt-job", "other").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn our_own_429_says_the_true_wait_and_is_no_sign_of_ill_health() {
    let upstream = answering().await;
    let rig = limited(&upstream, "requests_per_minute = 2").await;
    let ask = || rig.post("/v1/chat/completions", &chat()).header("x-kernelopt-deadline-ms", "200").send();
    assert_eq!((ask().await.unwrap().status().as_u16(), ask().await.unwrap().status().as_u16()), (200, 200));
    for _ in 0..20 {
        let refused = ask().await.unwrap();
        assert_eq!(refused.status(), 429);
        let header = |name: &str| refused.headers()[name].to_str().unwrap().parse::<u64>().unwrap();
        // Half a minute; a bucket counts a little late, never too little.
        let (seconds, milliseconds) = (header("retry-after"), header("retry-after-ms"));
        assert!((29_000..=34_000).contains(&milliseconds) && seconds == milliseconds.div_ceil(1000), "{milliseconds}");
    }
    assert_eq!(upstream.count(), 2);
    rig.gateway.show();
    assert_eq!(rig.metric("kernelopt_gateway_upstream_closed", &[]), 0.0);
    let other = rig.post("/v1/chat/completions", &chat()).header("x-kernelopt-job", "other").send().await.unwrap();
    assert_eq!(other.status(), 200, "refused requests have taken nothing");
}

#[tokio::test]
async fn what_never_fits_is_refused_at_once() {
    let upstream = answering().await;
    let rig = limited(&upstream, "tokens_per_minute = 40").await;
    let began = Instant::now();
    let response = rig.chat().await;
    assert_eq!(response.status(), 400);
    assert_eq!(json(response).await["error"]["code"], "over_limit");
    assert!(began.elapsed() < Duration::from_secs(1) && upstream.count() == 0);
}

#[tokio::test]
async fn requests_beyond_what_may_be_in_flight_wait_their_turn() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let upstream =
        { Upstream::start(|_| [Step::Pause(Duration::from_millis(50))].into_iter().chain(ok(&completion("said"))).collect()).await };
    let rig = limited(&upstream, "concurrent = 3").await;
    let watching = {
        let (upstream, now, most) = (upstream.clone(), now.clone(), most.clone());
        tokio::spawn(async move {
            while now.load(Ordering::SeqCst) == 0 {
                most.fetch_max(upstream.busy.load(Ordering::SeqCst), Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    };
    let all = futures_util::future::join_all((0..12).map(|_| rig.chat())).await;
    now.store(1, Ordering::SeqCst);
    watching.await.unwrap();
    assert!(all.iter().all(|response| response.status() == 200));
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_any_mix_of_ends_nothing_is_in_flight() {
    let upstream = Upstream::start(|asked| match asked.number % 9 {
        0 => error(500, &[], "oops"),
        1 => error(400, &[], "no"),
        2 => vec![Step::Cut],
        3 => vec![Step::Stall],
        4 => vec![stream_head(), chunk(&delta("a")), Step::Cut],
        5 => vec![stream_head(), chunk(&delta("a")), Step::Stall],
        6 => error(429, &[("retry-after-ms", "20")], "slow down"),
        7 => vec![stream_head(), chunk(&delta("a")), chunk(&finish()), end()],
        _ => ok(&completion("said")),
    })
    .await;
    let top =
        "[retry]\nmost_attempts = 2\nfirst_wait_ms = 5\nlongest_wait_ms = 20\n[breaker]\nfailure_percent = 100\nleast_attempts = 1000000";
    let times = "timeouts = { connect_ms = 200, first_byte_ms = 150, idle_ms = 150, total_ms = 300 }";
    let text =
        [at(&upstream, "one", "openai", &["a", "b"], times), model(&["one"]), "[jobs]\nlimits = { concurrent = 16 }\n".into()].concat();
    let rig = Rig::start_with(top, &text).await;
    let requests = (0..300u64).map(|number| {
        let rig = &rig;
        async move {
            let mut body = chat();
            body["stream"] = (number % 2 == 0).into();
            let request = rig.post("/v1/chat/completions", &body).header("x-kernelopt-job", format!("job-{}", number % 5));
            let asked = async { Ok::<_, reqwest::Error>(request.send().await?.text().await?.len()) };
            // One in three leaves, somewhere between the queue and the last byte.
            let patience = Duration::from_millis(if number % 3 == 0 { number } else { 20_000 });
            let _ = tokio::time::timeout(patience, asked).await;
        }
    });
    futures_util::future::join_all(requests).await;
    rig.quiet().await;
    rig.until("the books are empty", || {
        let standing = rig.gateway.standing();
        standing.in_flight == 0 && standing.waiting == 0 && standing.deployments.values().all(|deployment| deployment.in_flight == 0)
    })
    .await;
    // Some left before the gateway had heard them.
    let ended = rig.metric("kernelopt_gateway_requests_total", &["model=\"m\""]);
    assert!((200.0..=300.0).contains(&ended), "each is counted once: {ended}");
    assert_eq!(
        rig.metric("kernelopt_gateway_attempts_total", &[]),
        rig.metric("kernelopt_gateway_settled_total", &[]),
        "each attempt is settled once"
    );
    assert_eq!(json!(rig.metric("kernelopt_gateway_requests_total", &["internal"])), json!(0.0));
}
