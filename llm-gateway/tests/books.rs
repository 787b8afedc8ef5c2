//! What all books must do, in memory and in Redis. Redis is a real one, of this test alone.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernelopt_llm_gateway::limit::account::When;
use kernelopt_llm_gateway::limit::books::{Books, MemoryBooks};
use kernelopt_llm_gateway::limit::ledger::{AccountName, Ledger, TicketId, Wanted};
use kernelopt_llm_gateway::limit::shared::RedisBooks;
use kernelopt_llm_gateway::limit::{Amounts, Kind, Limits, Meter, Rate};
use kernelopt_llm_gateway::names::KeyName;
use kernelopt_llm_gateway::settings::Shared;
use kernelopt_shared::language_model::NanoUsd;
use kernelopt_test_servers::Redis;
use rand::{RngExt, SeedableRng, rngs::StdRng};

macro_rules! conformance {
    ($($check:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                super::$check(std::sync::Arc::new(super::MemoryBooks::default())).await;
            })*
        }
        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                let server = super::Redis::start(Default::default()).unwrap();
                super::$check(std::sync::Arc::new(super::open(&server))).await;
            })*
        }
    };
}

conformance!(
    all_accounts_or_none,
    many_at_once_stay_within_the_limits,
    a_ticket_counts_once,
    a_rate_refills_and_a_refund_comes_back,
    money_is_exact,
    obstacles_are_named,
);

fn open(server: &Redis) -> RedisBooks {
    RedisBooks::new(&Shared {
        url: server.url().into(),
        ca_file: None,
        prefix: "test".into(),
        deadline: Duration::from_secs(5),
        ticket: Duration::from_secs(60),
        gateways: 2,
    })
    .unwrap()
}

fn ticket(number: u64) -> TicketId {
    TicketId { gateway: 7, number }
}

fn account(name: &str) -> AccountName {
    AccountName::key(&KeyName::parse(name).unwrap())
}

fn wanted(of: &[(&str, &Arc<Limits>)], amounts: Amounts) -> Wanted {
    Wanted { accounts: of.iter().map(|(name, limits)| (account(name), Arc::clone(limits))).collect(), amounts }
}

fn tokens(input: u64) -> Amounts {
    Amounts { requests: 1, input, output: 0, money: NanoUsd(input), budget_tokens: input }
}

fn rate(kind: Kind, rate: Rate) -> Arc<Limits> {
    let mut limits = Limits::default();
    limits.rates[kind as usize] = Some(rate);
    Arc::new(limits)
}

async fn all_accounts_or_none(books: Arc<dyn Books>) {
    let wide = Arc::new(Limits { concurrent: Some(10), budget: Some(NanoUsd(1000)), ..Limits::default() });
    let narrow = Arc::new(Limits { concurrent: Some(1), ..Limits::default() });
    let both = wanted(&[("wide", &wide), ("narrow", &narrow)], tokens(100));
    books.reserve(ticket(0), &both).await.unwrap().unwrap();
    for again in 1..5 {
        let denied = books.reserve(ticket(again), &both).await.unwrap().unwrap_err();
        assert_eq!((denied.account, denied.meter, denied.when), (account("narrow"), Meter::Concurrent, When::Released));
    }
    let seen = books.position(&account("wide"), &wide).await.unwrap();
    assert_eq!((seen.in_flight, seen.reserved), (1, NanoUsd(100)), "a refusal has no effect");
    assert!(books.settle(ticket(0), &both, &tokens(40)).await.unwrap());
    let seen = books.position(&account("wide"), &wide).await.unwrap();
    assert_eq!((seen.in_flight, seen.reserved, seen.spent), (0, NanoUsd::ZERO, NanoUsd(40)));
    assert_eq!(books.position(&account("narrow"), &narrow).await.unwrap().in_flight, 0);
}

async fn many_at_once_stay_within_the_limits(books: Arc<dyn Books>) {
    let limits = Arc::new(Limits { concurrent: Some(20), budget: Some(NanoUsd(3_000)), ..Limits::default() });
    let mut callers = Vec::new();
    for caller in 0..40 {
        let (books, limits) = (books.clone(), limits.clone());
        callers.push(tokio::spawn(async move {
            let mut spent = 0;
            for call in 0..20 {
                let wanted = wanted(&[("key", &limits)], tokens(10));
                if books.reserve(ticket(caller * 100 + call), &wanted).await.unwrap().is_err() {
                    continue;
                }
                let seen = books.position(&account("key"), &limits).await.unwrap();
                assert!(seen.in_flight <= 20 && seen.reserved.0 + seen.spent.0 <= 3_000, "{seen:?}");
                let used = if call % 3 == 0 { Amounts::default() } else { tokens(10) };
                assert!(books.settle(ticket(caller * 100 + call), &wanted, &used).await.unwrap());
                spent += used.money.0;
            }
            spent
        }));
    }
    let mut spent = 0;
    for caller in callers {
        spent += caller.await.unwrap();
    }
    let seen = books.position(&account("key"), &limits).await.unwrap();
    assert_eq!((seen.in_flight, seen.reserved, seen.spent), (0, NanoUsd::ZERO, NanoUsd(spent)));
    assert!(spent <= 3_000);
}

async fn a_ticket_counts_once(books: Arc<dyn Books>) {
    let limits = Arc::new(Limits { concurrent: Some(5), ..Limits::default() });
    let wanted = wanted(&[("key", &limits)], tokens(1));
    for _ in 0..3 {
        books.reserve(ticket(1), &wanted).await.unwrap().unwrap();
    }
    assert_eq!(books.position(&account("key"), &limits).await.unwrap().in_flight, 1);
    books.renew(&[ticket(1), ticket(99)]).await.unwrap();
    assert!(books.settle(ticket(1), &wanted, &tokens(1)).await.unwrap());
    assert!(!books.settle(ticket(1), &wanted, &tokens(1)).await.unwrap());
    assert!(!books.settle(ticket(99), &wanted, &tokens(1)).await.unwrap());
    let seen = books.position(&account("key"), &limits).await.unwrap();
    assert_eq!((seen.in_flight, seen.spent), (0, NanoUsd(1)));
}

async fn a_rate_refills_and_a_refund_comes_back(books: Arc<dyn Books>) {
    // A hundred a second.
    let limits = rate(Kind::InputTokens, Rate { per_minute: 6_000, burst: 1_000 });
    let key = |input| wanted(&[("key", &limits)], tokens(input));
    books.reserve(ticket(0), &key(1_000)).await.unwrap().unwrap();
    let denied = books.reserve(ticket(1), &key(500)).await.unwrap().unwrap_err();
    let When::After(wait) = denied.when else { panic!("{denied:?}") };
    assert!((4_000..=5_700).contains(&wait), "{wait}");
    books.settle(ticket(0), &key(1_000), &tokens(400)).await.unwrap();
    books.reserve(ticket(1), &key(600)).await.unwrap().unwrap();
    let started = Instant::now();
    let wait = loop {
        match books.reserve(ticket(2), &key(100)).await.unwrap() {
            Ok(()) => break started.elapsed(),
            Err(denied) => {
                let When::After(wait) = denied.when else { panic!("{denied:?}") };
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
        }
    };
    assert!((Duration::from_millis(400)..Duration::from_secs(4)).contains(&wait), "{wait:?}");
}

async fn money_is_exact(books: Arc<dyn Books>) {
    // A million dollars, less a nano-dollar.
    let limits = Arc::new(Limits { budget: Some(NanoUsd(999_999_999_999_999)), ..Limits::default() });
    let of = |money| wanted(&[("key", &limits)], Amounts { money: NanoUsd(money), ..Amounts::default() });
    books.reserve(ticket(0), &of(999_999_999_999_998)).await.unwrap().unwrap();
    let denied = books.reserve(ticket(1), &of(2)).await.unwrap().unwrap_err();
    assert_eq!((denied.meter, denied.when), (Meter::Money, When::Released));
    books.reserve(ticket(1), &of(1)).await.unwrap().unwrap();
    books.settle(ticket(0), &of(0), &of(999_999_999_999_998).amounts).await.unwrap();
    let denied = books.reserve(ticket(2), &of(2)).await.unwrap().unwrap_err();
    assert_eq!((denied.meter, denied.when), (Meter::Money, When::Spent));
    assert_eq!(books.position(&account("key"), &limits).await.unwrap().spent, NanoUsd(999_999_999_999_998));
}

async fn obstacles_are_named(books: Arc<dyn Books>) {
    let limits = rate(Kind::Requests, Rate { per_minute: 60, burst: 2 });
    let mut tokens_too = (*limits).clone();
    (tokens_too.budget_tokens, tokens_too.budget) = (Some(50), Some(NanoUsd(1_000)));
    tokens_too.rates[Kind::Tokens as usize] = Some(Rate::minute(70));
    let limits = Arc::new(tokens_too);
    for (input, meter, when) in [(51, Meter::BudgetTokens, When::Never), (71, Meter::Rate(Kind::Tokens), When::Never)] {
        let denied = books.reserve(ticket(0), &wanted(&[("key", &limits)], tokens(input))).await.unwrap().unwrap_err();
        assert_eq!((denied.meter, denied.when, denied.accounts.len()), (meter, when, 1));
    }
}

/// The two kinds of books count alike: the same calls at the same time, with rates so low that no time passes for them.
#[tokio::test(flavor = "multi_thread")]
async fn redis_counts_as_memory_does() {
    let server = Redis::start(Default::default()).unwrap();
    let redis = open(&server);
    let (mut ledger, mut random) = (Ledger::default(), StdRng::seed_from_u64(11));
    // One part a millisecond: in the seconds of this test no unit is refilled.
    let limits: Vec<_> = (0..3u64)
        .map(|at| {
            let mut limits =
                Limits { concurrent: Some(6 + at), budget: Some(NanoUsd(9_000)), budget_tokens: Some(20_000), ..Limits::default() };
            limits.rates[Kind::InputTokens as usize] = Some(Rate { per_minute: 1, burst: 4_000 + at });
            limits.rates[Kind::Requests as usize] = Some(Rate { per_minute: 1, burst: 150 });
            Arc::new(limits)
        })
        .collect();
    let mut open = Vec::new();
    let mut refusals = 0;
    for number in 0..600 {
        if random.random_range(0..5) < 2 && !open.is_empty() {
            let (id, wanted): (TicketId, Wanted) = open.swap_remove(random.random_range(0..open.len()));
            let used = tokens(wanted.amounts.input * random.random_range(0..=110) / 100);
            assert!(ledger.settle(id, &used, 1) && redis.settle(id, &wanted, &used).await.unwrap());
        } else {
            let names = ["a", "b", "c"];
            let from = random.random_range(0..3);
            let of: Vec<_> = (from..3).map(|at| (names[at], &limits[at])).collect();
            let wanted = wanted(&of, tokens(random.random_range(1..200)));
            let (here, there) = (ledger.reserve(ticket(number), wanted.clone(), 1), redis.reserve(ticket(number), &wanted).await.unwrap());
            let plain = |answer: &Result<(), kernelopt_llm_gateway::limit::ledger::Denied>| {
                let mut accounts = answer.as_ref().err().map(|denied| denied.accounts.clone());
                accounts.iter_mut().for_each(|accounts| accounts.sort());
                let when =
                    answer.as_ref().err().map(|denied| if matches!(denied.when, When::After(_)) { When::After(0) } else { denied.when });
                (accounts, when)
            };
            assert_eq!(plain(&here), plain(&there), "call {number}");
            refusals += u32::from(here.is_err());
            if here.is_ok() {
                open.push((ticket(number), wanted));
            }
        }
    }
    assert!((50..500).contains(&refusals), "{refusals}");
    for (id, wanted) in open {
        assert!(ledger.settle(id, &wanted.amounts, 1) && redis.settle(id, &wanted, &wanted.amounts).await.unwrap());
    }
    for (name, limits) in ["a", "b", "c"].into_iter().zip(&limits) {
        assert_eq!(ledger.position(&account(name), 1), redis.position(&account(name), limits).await.unwrap(), "{name}");
    }
}
