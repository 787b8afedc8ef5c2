//! Gateways that share limits through a real Redis, and what holds when it is away.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod rig;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernelopt_llm_gateway::limit::books::Books;
use kernelopt_llm_gateway::limit::ledger::AccountName;
use kernelopt_llm_gateway::limit::shared::{RedisBooks, SharedBooks};
use kernelopt_llm_gateway::names::KeyName;
use kernelopt_llm_gateway::queue::{Admission, Ask, RefusedKind};
use kernelopt_llm_gateway::settings::{Settings, Shared};
use kernelopt_llm_gateway::usage::Usage;
use kernelopt_shared::language_model::NanoUsd;
use kernelopt_test_servers::{Redis, RedisOptions};
use rig::{World, ask, assert_empty};
use tokio::time::sleep;

const MS: Duration = Duration::from_millis(1);

fn shared(server: &Redis, ticket: Duration) -> Shared {
    Shared { url: server.url().into(), ca_file: None, prefix: "test".into(), deadline: 400 * MS, ticket, gateways: 2 }
}

/// A gateway of its own, as another process would have it.
fn gateway(server: &Redis, settings: &Arc<Settings>, ticket: Duration) -> Admission {
    let books = Arc::new(RedisBooks::new(&shared(server, ticket)).unwrap());
    Admission::with(settings.clone(), Some(SharedBooks::new(books, 2, ticket)))
}

fn lab() -> AccountName {
    AccountName::key(&KeyName::parse("lab").unwrap())
}

fn used(tokens: u64) -> Usage {
    Usage { input: tokens, exact: true, ..Usage::default() }
}

fn patient(tokens: u64, seconds: u64) -> Ask {
    Ask { deadline: tokio::time::Instant::now() + Duration::from_secs(seconds), ..ask("job", tokens) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_stay_within_one_limit() {
    let server = Redis::start(RedisOptions::default()).unwrap();
    let world = World { key: "input_tokens_per_minute = 60000, burst_s = 1, concurrent = 4, budget_usd = 1", ..World::default() };
    let settings = world.settings();
    let ticket = Duration::from_secs(20);
    let gateways = [gateway(&server, &settings, ticket), gateway(&server, &settings, ticket)];
    let look = RedisBooks::new(&shared(&server, ticket)).unwrap();
    let limits = settings.keys[&KeyName::parse("lab").unwrap()].limits.clone();
    let started = Instant::now();
    let lasts = Duration::from_secs(4);
    let mut callers = Vec::new();
    for caller in 0..16 {
        let gateway = gateways[caller % 2].clone();
        callers.push(tokio::spawn(async move {
            let mut sum = 0;
            while started.elapsed() < lasts {
                let Ok(mut permit) = gateway.admit(patient(50, 20)).await else { continue };
                permit.sent();
                sleep(10 * MS).await;
                permit.settle(used(50));
                sum += 50;
            }
            sum
        }));
    }
    let mut most = 0;
    while started.elapsed() < lasts {
        most = most.max(look.position(&lab(), &limits).await.unwrap().in_flight);
        sleep(20 * MS).await;
    }
    let mut sum = 0;
    for caller in callers {
        sum += caller.await.unwrap();
    }
    let took = started.elapsed().as_secs_f64();
    // A thousand at once and a thousand a second: for both together, and a good part of it is used.
    assert!(sum as f64 <= 1_000.0 + 1_000.0 * took, "{sum} in {took:.1} s");
    assert!(sum as f64 >= 0.7 * 1_000.0 * lasts.as_secs_f64(), "{sum} in {took:.1} s");
    assert!((1..=4).contains(&most), "{most} at once");
    for gateway in &gateways {
        assert!(gateway.flush(Duration::from_secs(5)).await);
        assert_empty(gateway);
    }
    let seen = look.position(&lab(), &limits).await.unwrap();
    assert_eq!((seen.in_flight, seen.reserved, seen.spent), (0, NanoUsd::ZERO, NanoUsd(1_000 * sum)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_spent_once_however_many_gateways() {
    let server = Redis::start(RedisOptions::default()).unwrap();
    let settings = World { key: "budget_usd = 0.001", ..World::default() }.settings();
    let ticket = Duration::from_secs(20);
    let (one, two) = (gateway(&server, &settings, ticket), gateway(&server, &settings, ticket));
    let mut permit = one.admit(patient(700, 5)).await.unwrap();
    permit.sent();
    // Not yet spent, so the other one waits; then it is.
    let waits = tokio::spawn(async move { two.admit(patient(600, 20)).await.map(drop).map_err(|refused| refused.kind) });
    sleep(300 * MS).await;
    assert!(!waits.is_finished());
    permit.settle(used(700));
    assert_eq!(waits.await.unwrap(), Err(RefusedKind::Budget));
    assert!(one.admit(patient(300, 5)).await.is_ok());
}

/// Its own process: a gateway that is killed with calls in flight. Here it is one whose tasks all end with its runtime, and whose permits are
/// never dropped.
#[test]
fn what_a_killed_gateway_held_is_free_when_its_tickets_expire() {
    let server = Redis::start(RedisOptions::default()).unwrap();
    let settings = World { key: "concurrent = 3, budget_usd = 1, input_tokens_per_minute = 100000", ..World::default() }.settings();
    let ticket = Duration::from_secs(2);
    let dying = tokio::runtime::Runtime::new().unwrap();
    dying.block_on(async {
        let gateway = gateway(&server, &settings, ticket);
        for _ in 0..3 {
            let mut permit = gateway.admit(patient(100, 5)).await.unwrap();
            permit.sent();
            std::mem::forget(permit);
        }
        // Alive, it renews them.
        sleep(3 * ticket / 2).await;
    });
    let limits = settings.keys[&KeyName::parse("lab").unwrap()].limits.clone();
    let living = tokio::runtime::Runtime::new().unwrap();
    living.block_on(async {
        let look = RedisBooks::new(&shared(&server, ticket)).unwrap();
        assert_eq!(look.position(&lab(), &limits).await.unwrap().in_flight, 3);
        dying.shutdown_timeout(Duration::ZERO);
        let other = gateway(&server, &settings, ticket);
        let started = Instant::now();
        let permit = other.admit(patient(100, 20)).await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
        drop(permit);
        assert!(other.flush(Duration::from_secs(5)).await);
        let seen = look.position(&lab(), &limits).await.unwrap();
        // Nothing is in flight, and what may have been spent is.
        assert_eq!((seen.in_flight, seen.reserved, seen.spent), (0, NanoUsd::ZERO, NanoUsd(300_000)));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_money_is_closed_and_rates_are_a_part() {
    let mut server = Redis::start(RedisOptions::default()).unwrap();
    let more = "[[keys]]\nname = \"paid\"\npriority = 0\nfile = \"OTHER_KEY\"\nlimits = { budget_usd = 1 }";
    let settings = World { key: "concurrent = 6", more, ..World::default() }.settings();
    let gateway = gateway(&server, &settings, Duration::from_secs(20));
    let paid = |tokens| Ask { key: KeyName::parse("paid").unwrap(), ..patient(tokens, 5) };
    let held = gateway.admit(paid(1_000)).await.unwrap();
    assert!(gateway.store_is_up());
    server.stop();

    let started = Instant::now();
    let closed = gateway.admit(paid(1)).await.err().unwrap();
    assert_eq!(closed.kind, RefusedKind::LimitsDown);
    assert!(!gateway.store_is_up(), "what is said of the store follows it");
    assert!(closed.retry_after.is_some_and(|wait| wait <= Duration::from_secs(2)), "{closed:?}");
    // Two tries with a deadline each, and what a busy machine adds.
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    // It is known to be away now: nobody waits for it.
    let started = Instant::now();
    let mut part = Vec::new();
    for _ in 0..3 {
        part.push(gateway.admit(patient(1, 5)).await.unwrap());
    }
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    // Half of six.
    let fourth = gateway.admit(patient(1, 1)).await.err().unwrap();
    assert_eq!(fourth.kind, RefusedKind::Deadline);

    // A permit of before is settled when Redis is back, and money is open again.
    held.settle(used(1_000));
    server.restart().unwrap();
    let started = Instant::now();
    let permit = loop {
        match gateway.admit(paid(1)).await {
            Ok(permit) => break permit,
            Err(refused) => assert_eq!(refused.kind, RefusedKind::LimitsDown),
        }
        assert!(started.elapsed() < Duration::from_secs(40));
        sleep(200 * MS).await;
    };
    assert!(gateway.store_is_up());
    drop((permit, part));
    assert!(gateway.flush(Duration::from_secs(10)).await);
    assert_empty(&gateway);
    let look = RedisBooks::new(&shared(&server, Duration::from_secs(20))).unwrap();
    let key = KeyName::parse("paid").unwrap();
    let seen = look.position(&AccountName::key(&key), &settings.keys[&key].limits).await.unwrap();
    assert_eq!((seen.in_flight, seen.reserved, seen.spent), (0, NanoUsd::ZERO, NanoUsd(1_000_000)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_does_not_answer_costs_a_deadline_and_not_a_call() {
    let server = Redis::start(RedisOptions::default()).unwrap();
    let settings = World { key: "concurrent = 6", ..World::default() }.settings();
    let gateway = gateway(&server, &settings, Duration::from_secs(20));
    drop(gateway.admit(patient(1, 5)).await.unwrap());
    server.pause();
    let started = Instant::now();
    let permit = gateway.admit(patient(1, 5)).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    // A caller that leaves while it waits for Redis leaves nothing there.
    sleep(1_100 * MS).await;
    let _ = tokio::time::timeout(50 * MS, gateway.admit(patient(1, 5))).await;
    drop(permit);
    server.resume();
    assert!(gateway.flush(Duration::from_secs(20)).await);
    assert_empty(&gateway);
    let look = RedisBooks::new(&Shared { deadline: Duration::from_secs(5), ..shared(&server, Duration::from_secs(20)) }).unwrap();
    assert_eq!(look.position(&lab(), &settings.keys[&KeyName::parse("lab").unwrap()].limits).await.unwrap().in_flight, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_throws_keys_away_is_not_trusted_with_budgets() {
    let server = Redis::start(RedisOptions::default().set("maxmemory", "10mb").set("maxmemory-policy", "allkeys-lru")).unwrap();
    let settings = World { key: "budget_usd = 1", ..World::default() }.settings();
    let gateway = gateway(&server, &settings, Duration::from_secs(20));
    assert_eq!(gateway.admit(patient(1, 5)).await.err().unwrap().kind, RefusedKind::LimitsDown);
}
