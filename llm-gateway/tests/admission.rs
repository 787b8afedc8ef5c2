//! Queue and limits together, on a clock that the tests own: who waits, for how long, who is refused, and that nothing stays behind.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod rig;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kernelopt_llm_gateway::estimate::Estimate;
use kernelopt_llm_gateway::names::ModelName;
use kernelopt_llm_gateway::queue::{Admission, Ask, Headers, Permit, Refused, RefusedKind, Seen};
use kernelopt_llm_gateway::settings::Settings;
use kernelopt_llm_gateway::usage::Usage;
use kernelopt_shared::language_model::NanoUsd;
use rig::{World, ask, assert_empty};
use tokio::time::{Instant, sleep, timeout};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn used(tokens: u64) -> Usage {
    Usage { input: tokens, exact: true, ..Usage::default() }
}

/// Sends it: everything that was asked for is used.
async fn through(admission: &Admission, ask: Ask) -> Result<Permit, Refused> {
    let mut permit = admission.admit(ask).await?;
    permit.sent();
    Ok(permit)
}

async fn refused(admission: &Admission, ask: Ask) -> Refused {
    admission.admit(ask).await.err().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_exactly_until_its_limit_has_refilled() {
    let admission = World { key: "input_tokens_per_minute = 600", ..World::default() }.admission();
    let started = Instant::now();
    through(&admission, ask("a", 600)).await.unwrap().settle(used(600));
    assert_eq!(started.elapsed(), Duration::ZERO);
    // Ten tokens a second.
    through(&admission, ask("a", 50)).await.unwrap().settle(used(50));
    assert!((5 * SECOND..5 * SECOND + 10 * MS).contains(&started.elapsed()), "{:?}", started.elapsed());
    assert_empty(&admission);
}

#[tokio::test(start_paused = true)]
async fn what_a_call_did_not_use_lets_the_next_one_in_at_once() {
    let admission = World { key: "input_tokens_per_minute = 600", ..World::default() }.admission();
    let permit = through(&admission, ask("a", 600)).await.unwrap();
    let next = tokio::spawn({
        let admission = admission.clone();
        async move { through(&admission, ask("a", 500)).await.map(|permit| (permit, Instant::now())) }
    });
    sleep(SECOND).await;
    let settled = Instant::now();
    permit.settle(used(100));
    let (_permit, at) = next.await.unwrap().unwrap();
    assert_eq!(at, settled);
}

#[tokio::test(start_paused = true)]
async fn a_drop_refunds_what_was_not_sent_and_keeps_what_was() {
    let admission = World { key: "budget_usd = 1", ..World::default() }.admission();
    let million = || ask("a", 1_000_000);
    drop(admission.admit(million()).await.unwrap());
    drop(through(&admission, million()).await.unwrap());
    assert_empty(&admission);
    let gone = refused(&admission, ask("a", 1)).await;
    assert_eq!((gone.kind, gone.retry_after), (RefusedKind::Budget, None), "{gone}");
}

#[tokio::test(start_paused = true)]
async fn money_is_reserved_before_it_is_spent() {
    let admission = World { key: "budget_usd = 0.001", ..World::default() }.admission();
    // A thousand tokens' worth: never in one.
    let large = refused(&admission, ask("a", 1_001)).await;
    assert_eq!((large.kind, large.retry_after), (RefusedKind::Budget, None));
    let first = through(&admission, ask("a", 700)).await.unwrap();
    // 700 are reserved, and may come back: the second waits, and is not refused.
    let second = tokio::spawn({
        let admission = admission.clone();
        async move { through(&admission, ask("a", 600)).await }
    });
    sleep(10 * SECOND).await;
    assert!(!second.is_finished());
    let settled = first.settle(used(400));
    assert_eq!((settled.cost, settled.beyond), (Some(NanoUsd(400_000)), false));
    second.await.unwrap().unwrap().settle(used(600));
    assert_eq!(refused(&admission, ask("a", 1)).await.kind, RefusedKind::Budget);
    let spent: Vec<_> = admission.standing().accounts.values().map(|position| position.spent).collect();
    assert!(spent.contains(&NanoUsd(1_000_000)), "{spent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_learns_that_the_budget_is_gone_when_it_is() {
    let admission = World { key: "budget_usd = 0.001", ..World::default() }.admission();
    let first = through(&admission, ask("a", 700)).await.unwrap();
    let second = tokio::spawn({
        let admission = admission.clone();
        async move { refused(&admission, ask("a", 600)).await }
    });
    sleep(SECOND).await;
    first.settle(used(700));
    assert_eq!(second.await.unwrap().kind, RefusedKind::Budget);
    assert_empty(&admission);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_claims_more_than_can_be_is_charged_and_told_of() {
    let admission = World { key: "budget_usd = 0.001", ..World::default() }.admission();
    let lied = through(&admission, ask("a", 100)).await.unwrap().settle(used(5_000));
    assert!(lied.beyond);
    assert_eq!(refused(&admission, ask("a", 1)).await.kind, RefusedKind::Budget);
    assert_empty(&admission);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_paid_at_an_unknown_price() {
    let text = World { key: "budget_usd = 1", ..World::default() };
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("key");
    std::fs::write(&secret, "0123456789abcdef").unwrap();
    let text = text.text(&secret).replace("price = { input = 1, output = 1 }", "");
    let admission = Admission::new(Arc::new(Settings::parse(&text).unwrap()));
    let refused = refused(&admission, ask("a", 1)).await;
    assert_eq!(refused.kind, RefusedKind::Budget);
    assert!(refused.what.contains("nobody has said what m costs"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_is_refused_at_once() {
    let world = World {
        key: "tokens_per_minute = 100",
        more: "[[keys]]\nname = \"other\"\nfile = \"OTHER_KEY\"\nuse = \"operate\"",
        ..World::default()
    };
    let admission = world.admission();
    let started = Instant::now();
    assert_eq!(refused(&admission, ask("a", 101)).await.kind, RefusedKind::TooLarge);
    let nowhere = Ask { model: ModelName::parse("n").unwrap(), ..ask("a", 1) };
    assert_eq!(refused(&admission, nowhere).await.kind, RefusedKind::UnknownModel);
    // A key for operating has no limits, and calls no model.
    let operator = Ask { key: kernelopt_llm_gateway::names::KeyName::parse("other").unwrap(), ..ask("a", 1) };
    assert_eq!(refused(&admission, operator).await.kind, RefusedKind::UnknownModel);
    let deployment = admission.admit(ask("a", 1)).await.unwrap().deployment().id.clone();
    let failed = Ask { without: vec![deployment], ..ask("a", 1) };
    assert_eq!(refused(&admission, failed).await.kind, RefusedKind::NoneLeft);
    // It has refilled in a minute, and the deadline is in ten seconds: no need to wait for it.
    through(&admission, ask("a", 100)).await.unwrap().settle(used(100));
    let late = Ask { deadline: Instant::now() + 10 * SECOND, ..ask("a", 50) };
    let late = refused(&admission, late).await;
    assert_eq!(late.kind, RefusedKind::Deadline);
    let wait = late.retry_after.unwrap();
    assert!((30 * SECOND..=31 * SECOND).contains(&wait), "the true wait: {wait:?}");
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_empty(&admission);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_the_wait() {
    let admission = World { key: "concurrent = 1", ..World::default() }.admission();
    let permit = through(&admission, ask("a", 1)).await.unwrap();
    let started = Instant::now();
    let late = refused(&admission, Ask { deadline: started + 5 * SECOND, ..ask("a", 1) }).await;
    assert_eq!((late.kind, started.elapsed().as_secs()), (RefusedKind::Deadline, 5));
    assert!(late.retry_after.is_some());
    permit.settle(used(1));
    assert_empty(&admission);
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded() {
    let world = World { key: "concurrent = 1", more: "[queue]\nmost = 3\nmost_per_job = 2", ..World::default() };
    let admission = world.admission();
    let permit = through(&admission, ask("a", 1)).await.unwrap();
    let waits: Vec<_> = ["a", "a", "b"]
        .map(|job| {
            tokio::spawn({
                let admission = admission.clone();
                async move { through(&admission, ask(job, 1)).await.map(drop) }
            })
        })
        .into();
    sleep(MS).await;
    for (job, what) in [("a", "wait already"), ("c", "3 requests wait already")] {
        let full = refused(&admission, ask(job, 1)).await;
        assert_eq!(full.kind, RefusedKind::QueueFull);
        assert!(full.what.contains(what) && full.retry_after.is_some(), "{full}");
    }
    drop(permit);
    for wait in waits {
        wait.await.unwrap().unwrap();
    }
    assert_empty(&admission);
}

#[tokio::test(start_paused = true)]
async fn a_closed_deployment_is_waited_for_and_then_probed() {
    let admission = World::default().admission();
    let permit = through(&admission, ask("a", 1)).await.unwrap();
    let started = Instant::now();
    permit.close(started + 20 * SECOND);
    // An earlier end does not shorten it.
    permit.close(started + 5 * SECOND);
    permit.fail(Usage::NONE);
    let soon = refused(&admission, Ask { deadline: started + 10 * SECOND, ..ask("a", 1) }).await;
    assert_eq!((soon.kind, soon.retry_after), (RefusedKind::Deadline, Some(20 * SECOND)));
    let waits: Vec<_> = (0..16)
        .map(|_| {
            let admission = admission.clone();
            tokio::spawn(async move {
                let permit = through(&admission, ask("a", 1)).await.unwrap();
                let at = started.elapsed();
                sleep(SECOND).await;
                permit.settle(used(1));
                at.as_secs()
            })
        })
        .collect();
    let mut seen = BTreeMap::new();
    for wait in waits {
        *seen.entry(wait.await.unwrap()).or_insert(0) += 1;
    }
    // One, and each that goes well lets two more in.
    assert_eq!(seen, BTreeMap::from([(20, 1), (21, 2), (22, 8), (23, 5)]));
    assert_empty(&admission);
}

#[tokio::test(start_paused = true)]
async fn another_deployment_is_taken_where_one_is_full_closed_or_has_failed() {
    let at = "limits = { concurrent = 1 }\n[[models.at]]\nupstream = \"up\"\nmodel = \"m-2\"\ntier = 1\nprice = { input = 1, output = 1 }";
    let admission = World { at, ..World::default() }.admission();
    let model = |permit: &Permit| permit.deployment().model.clone();
    let first = through(&admission, ask("a", 1)).await.unwrap();
    assert_eq!(model(&first), "m-1");
    let second = through(&admission, ask("a", 1)).await.unwrap();
    assert_eq!(model(&second), "m-2");
    first.close(Instant::now() + SECOND);
    let failed = first.deployment().id.clone();
    first.fail(Usage::NONE);
    assert_eq!(model(&through(&admission, ask("a", 1)).await.unwrap()), "m-2");
    sleep(2 * SECOND).await;
    assert_eq!(model(&through(&admission, ask("a", 1)).await.unwrap()), "m-1");
    assert_eq!(model(&through(&admission, Ask { without: vec![failed], ..ask("a", 1) }).await.unwrap()), "m-2");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_counts_less_left_is_believed() {
    let admission = World::default().admission();
    let permit = through(&admission, ask("a", 10)).await.unwrap();
    let seen = Seen { limit: Some(6_000), remaining: Some(100), reset: None };
    permit.observe(&Headers { input_tokens: seen, ..Headers::default() });
    permit.settle(used(10));
    let started = Instant::now();
    through(&admission, ask("a", 1_100)).await.unwrap().settle(used(1_100));
    // A thousand are missing, a hundred come each second.
    assert!((9 * SECOND..11 * SECOND).contains(&started.elapsed()), "{:?}", started.elapsed());
}

/// Two jobs at one limit, one of which floods it: each gets its half of the tokens, also where the other never has more than a few in the queue.
#[tokio::test(start_paused = true)]
async fn a_flood_takes_no_more_than_its_share() {
    let admission =
        World { upstream: "input_tokens_per_minute = 60000\nconcurrent = 50".replace('\n', ", ").leak(), ..World::default() }.admission();
    let got = Arc::new(Mutex::new(BTreeMap::<&str, u64>::new()));
    let mut workers = Vec::new();
    for (job, count, tokens) in [("flood", 500, 100), ("few", 8, 700)] {
        for _ in 0..count {
            let (admission, got) = (admission.clone(), got.clone());
            workers.push(tokio::spawn(async move {
                loop {
                    let patient = Ask { deadline: Instant::now() + 500 * SECOND, ..ask(job, tokens) };
                    let permit = through(&admission, patient).await.unwrap();
                    *got.lock().unwrap().entry(job).or_default() += tokens;
                    sleep(3 * SECOND).await;
                    permit.settle(used(tokens));
                }
            }));
        }
    }
    sleep(120 * SECOND).await;
    got.lock().unwrap().clear();
    let minutes = 20;
    sleep(minutes * 60 * SECOND).await;
    let got = got.lock().unwrap().clone();
    let total: u64 = got.values().sum();
    let share = got["few"] as f64 / total as f64;
    assert!((share - 0.5).abs() < 0.025, "{got:?}");
    let used = total as f64 / (60_000.0 * f64::from(minutes));
    assert!((0.95..1.01).contains(&used), "{used} of the limit");
    workers.iter().for_each(tokio::task::JoinHandle::abort);
    sleep(MS).await;
    assert_empty(&admission);
}

#[tokio::test(start_paused = true)]
async fn a_jobs_own_limit_holds_nobody_else_up() {
    let world = World {
        upstream: "input_tokens_per_minute = 6000",
        more: "[[jobs.named]]\nname = \"slow\"\nlimits = { input_tokens_per_minute = 60 }",
        ..World::default()
    };
    let admission = world.admission();
    through(&admission, ask("slow", 60)).await.unwrap().settle(used(60));
    let slow = tokio::spawn({
        let admission = admission.clone();
        async move { through(&admission, ask("slow", 50)).await }
    });
    sleep(MS).await;
    let started = Instant::now();
    for _ in 0..10 {
        through(&admission, ask("quick", 100)).await.unwrap().settle(used(100));
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(slow.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_large_request_is_not_starved_by_small_ones() {
    let admission = World { upstream: "input_tokens_per_minute = 6000", ..World::default() }.admission();
    through(&admission, ask("small", 6_000)).await.unwrap().settle(used(6_000));
    let small: Vec<_> = (0..400)
        .map(|_| {
            let admission = admission.clone();
            tokio::spawn(async move {
                let patient = Ask { deadline: Instant::now() + 500 * SECOND, ..ask("small", 100) };
                through(&admission, patient).await.unwrap().settle(used(100));
            })
        })
        .collect();
    sleep(MS).await;
    let started = Instant::now();
    let large = Ask { deadline: Instant::now() + 500 * SECOND, ..ask("large", 3_000) };
    through(&admission, large).await.unwrap().settle(used(3_000));
    // Half of what refills is its own: 3000 tokens at 50 a second, and not after the 400 others.
    assert!(started.elapsed() < 65 * SECOND, "{:?}", started.elapsed());
    small.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_what_is_in_flight_and_frees_who_waits() {
    let admission = World { key: "concurrent = 1", ..World::default() }.admission();
    let permit = through(&admission, ask("a", 1)).await.unwrap();
    let waits = tokio::spawn({
        let admission = admission.clone();
        async move { through(&admission, ask("a", 1)).await }
    });
    sleep(MS).await;
    admission.reconfigure(World { key: "concurrent = 2", ..World::default() }.settings());
    // It was called off by nobody and let in by the new limit.
    let second = waits.await.unwrap().unwrap();
    let third = tokio::spawn({
        let admission = admission.clone();
        async move { refused(&admission, ask("b", 1)).await }
    });
    sleep(MS).await;
    assert!(!third.is_finished());
    // Its model is no more.
    let gone = World { key: "concurrent = 2", ..World::default() };
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("key");
    std::fs::write(&secret, "0123456789abcdef").unwrap();
    admission.reconfigure(Arc::new(Settings::parse(&gone.text(&secret).replace("\"m\"", "\"other\"")).unwrap()));
    assert_eq!(third.await.unwrap().kind, RefusedKind::UnknownModel);
    permit.settle(used(1));
    second.settle(used(1));
    assert_empty(&admission);
}

/// Callers that leave at any moment: before they are let in, in the moment in which they are, and after; with limits of all kinds in the way.
#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_callers_nothing_stays_behind() {
    use rand::{RngExt, SeedableRng, rngs::StdRng};
    let world = World {
        key: "input_tokens_per_minute = 20000, concurrent = 7, budget_usd = 1000",
        upstream: "requests_per_minute = 900, concurrent = 5",
        more: "[queue]\nmost = 60",
        ..World::default()
    };
    let admission = world.admission();
    let mut random = StdRng::seed_from_u64(5);
    let mut callers = Vec::new();
    for number in 0..4_000 {
        let (admission, ends) = (admission.clone(), random.random_range(0..6));
        let (tokens, patience) = (random.random_range(1..400), random.random_range(0..3_000) * MS);
        let (time, job) = (random.random_range(0..1_500) * MS, ["a", "b", "c"][number % 3]);
        callers.push(tokio::spawn(async move {
            let call = async {
                let deadline = Instant::now() + patience;
                let Ok(mut permit) = admission.admit(Ask { deadline, again: tokens % 7 == 0, ..ask(job, tokens) }).await else { return };
                if ends == 0 {
                    return;
                }
                permit.sent();
                sleep(time).await;
                match ends {
                    1 => drop(permit),
                    2 => {
                        permit.fail(Usage::NONE);
                    }
                    3 => {
                        permit.close(Instant::now() + time);
                        permit.fail(Usage::NONE);
                    }
                    _ => {
                        permit.settle(used(tokens / 2));
                    }
                }
            };
            // One in two leaves when it has had enough, wherever it is.
            let _ = timeout(if tokens % 2 == 0 { patience / 2 } else { 100 * SECOND }, call).await;
        }));
        sleep(random.random_range(0..20) * MS).await;
    }
    for caller in callers {
        caller.await.unwrap();
    }
    assert_empty(&admission);
    assert!(admission.standing().accounts.values().any(|position| position.spent > NanoUsd::ZERO));
}

#[tokio::test(start_paused = true)]
async fn estimates_are_learned_from_what_is_settled() {
    let world = World::default();
    let (admission, settings) = (world.admission(), world.settings());
    let model = &settings.models[&ModelName::parse("m").unwrap()];
    let text = "x".repeat(6_000);
    let before = admission.estimator().estimate(model, [text.as_str()], 10);
    assert_eq!((before.input, before.most_input, before.output), (2_016, 6_016, 10));
    let permit = through(&admission, Ask { estimate: before, ..ask("a", 0) }).await.unwrap();
    permit.settle(used(1_500));
    let after: Estimate = admission.estimator().estimate(model, [text.as_str()], 10);
    assert_eq!(after.input, 1_516);
    // What was not counted by the provider teaches nothing.
    let permit = through(&admission, Ask { estimate: before, ..ask("a", 0) }).await.unwrap();
    permit.settle(Usage::estimated(6_000, 0));
    assert_eq!(admission.estimator().estimate(model, [text.as_str()], 10), after);
}

#[tokio::test]
async fn what_is_spent_is_spent_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let settings = || {
        let settings = World { key: "budget_usd = 0.01", ..World::default() }.settings();
        let mut settings = Arc::into_inner(settings).unwrap();
        settings.data = Some(folder.path().into());
        Arc::new(settings)
    };
    let admission = Admission::open(settings()).unwrap();
    through(&admission, ask("a", 4_000)).await.unwrap().settle(used(4_000));
    // One gateway at a time counts in a folder.
    assert!(Admission::open(settings()).is_err());
    drop(admission);
    tokio::task::yield_now().await;
    // An orderly end: to the token. Then a kill with a call in flight: that one counts, and a two-hundredth more.
    let admission = Admission::open(settings()).unwrap();
    let permit = through(&admission, ask("a", 1_000)).await.unwrap();
    let spent = |admission: &Admission| {
        admission.standing().accounts.values().map(|position| position.spent.0 + position.reserved.0).max().unwrap()
    };
    assert_eq!(spent(&admission), 5_000_000);
    let killed = folder.path().join("spent.jsonl");
    let on_disk = std::fs::read_to_string(&killed).unwrap();
    drop((permit, admission));
    tokio::task::yield_now().await;
    std::fs::write(&killed, on_disk).unwrap();
    let admission = Admission::open(settings()).unwrap();
    assert_eq!(spent(&admission), 5_050_000);
    assert_eq!(refused(&admission, ask("a", 5_000)).await.kind, RefusedKind::Budget);
}
