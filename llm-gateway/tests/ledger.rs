//! The books under any mix of calls: limits hold at every instant, a refusal leaves no trace, and at the end nothing is in flight.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::sync::Arc;

use kernelopt_llm_gateway::limit::account::{Position, When};
use kernelopt_llm_gateway::limit::ledger::{AccountName, Ledger, TicketId, Wanted};
use kernelopt_llm_gateway::limit::{Amounts, Kind, Limits, Meter, Millis, Rate};
use kernelopt_llm_gateway::names::{JobName, KeyName};
use kernelopt_shared::language_model::NanoUsd;
use proptest::prelude::*;

fn ticket(number: u64) -> TicketId {
    TicketId { gateway: 1, number }
}

fn account(at: usize) -> AccountName {
    AccountName::job(&KeyName::parse("lab").unwrap(), &JobName::parse(&format!("job-{at}")).unwrap())
}

fn amounts(tokens: u64) -> Amounts {
    Amounts { requests: 1, input: tokens, output: tokens / 2, money: NanoUsd(tokens * 10), budget_tokens: tokens * 2 }
}

fn limits(seed: u64) -> Limits {
    let mut limits = Limits { concurrent: Some(2 + seed % 4), budget: Some(NanoUsd(20_000 + 1000 * seed)), ..Limits::default() };
    limits.budget_tokens = Some(5_000 + 100 * seed);
    limits.rates[Kind::Requests as usize] = Some(Rate { per_minute: 30 + seed, burst: 5 });
    limits.rates[Kind::Tokens as usize] = Some(Rate::minute(900 + seed));
    limits.rates[Kind::OutputTokens as usize] = Some(Rate { per_minute: 500, burst: 100 + seed });
    limits
}

/// A call, and what it counts for now.
#[derive(Clone)]
struct Call {
    begun: Millis,
    accounts: Vec<usize>,
    counts: Amounts,
    done: bool,
}

/// Every limit of every account, against a plain list of all calls.
fn nothing_is_passed(calls: &[Call], all: &[Arc<Limits>], now: Millis) -> Result<(), TestCaseError> {
    for (at, limits) in all.iter().enumerate() {
        let of = || calls.iter().filter(move |call| call.accounts.contains(&at));
        prop_assert!(of().filter(|call| !call.done).count() as u64 <= limits.concurrent.unwrap());
        prop_assert!(of().map(|call| call.counts.money.0).sum::<u64>() <= limits.budget.unwrap().0);
        prop_assert!(of().map(|call| call.counts.budget_tokens).sum::<u64>() <= limits.budget_tokens.unwrap());
        for kind in Kind::ALL {
            let Some(rate) = limits.rate(kind) else { continue };
            let mut sum = 0;
            for call in of().collect::<Vec<_>>().iter().rev() {
                sum += call.counts.of(kind) * 60_000;
                prop_assert!(sum <= rate.burst * 60_000 + rate.per_minute * (now - call.begun), "{kind:?}");
            }
        }
    }
    Ok(())
}

fn shown(ledger: &Ledger, now: Millis) -> Vec<(String, Position)> {
    let mut shown: Vec<_> = ledger.positions(now).map(|(name, position)| (name.to_string(), position)).collect();
    shown.sort_by(|a, b| a.0.cmp(&b.0));
    shown
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn limits_hold_and_nothing_stays(
        seeds in prop::collection::vec(0..50u64, 3),
        steps in prop::collection::vec((0..20_000u64, 1..150u64, prop::collection::btree_set(0..3usize, 1..4), any::<prop::sample::Index>(), 0..=120u64), 1..150),
    ) {
        let all: Vec<_> = seeds.iter().map(|seed| Arc::new(limits(*seed))).collect();
        let (mut ledger, mut calls, mut now) = (Ledger::default(), Vec::<Call>::new(), 0);
        for (pass, tokens, accounts, which, percent) in steps {
            now += pass;
            if percent > 60 && !calls.is_empty() {
                let at = which.index(calls.len());
                let call = &mut calls[at];
                // A cancelled one, one that took a part, one that took all; and each settles once however often it is told.
                let part = match percent { 61..=70 => 0, 71..=100 => percent - 70, _ => 100 };
                let of = |amount: u64| amount * part / 100;
                let used = Amounts {
                    requests: u64::from(part > 0), input: of(call.counts.input), output: of(call.counts.output),
                    money: NanoUsd(of(call.counts.money.0)), budget_tokens: of(call.counts.budget_tokens),
                };
                let was_open = !call.done;
                prop_assert_eq!(ledger.settle(ticket(at as u64), &used, now), was_open);
                if was_open {
                    (call.done, call.counts) = (true, used);
                }
            } else {
                let counts = amounts(tokens);
                let named = accounts.iter().map(|at| (account(*at), all[*at].clone())).collect();
                let before = shown(&ledger, now);
                match ledger.reserve(ticket(calls.len() as u64), Wanted { accounts: named, amounts: counts }, now) {
                    Ok(()) => calls.push(Call { begun: now, accounts: accounts.into_iter().collect(), counts, done: false }),
                    Err(denied) => {
                        prop_assert!(!denied.accounts.is_empty());
                        prop_assert_eq!(before, shown(&ledger, now), "a refusal leaves no trace");
                    }
                }
            }
            nothing_is_passed(&calls, &all, now)?;
        }
        for (at, call) in calls.iter().enumerate().filter(|(_, call)| !call.done) {
            prop_assert!(ledger.settle(ticket(at as u64), &call.counts, now));
        }
        prop_assert_eq!(ledger.in_flight(), 0);
        for (_, position) in ledger.positions(now) {
            prop_assert_eq!((position.in_flight, position.reserved, position.reserved_tokens), (0, NanoUsd::ZERO, 0));
        }
    }
}

fn wanted(limits: &Arc<Limits>, tokens: u64) -> Wanted {
    Wanted { accounts: vec![(account(0), limits.clone())], amounts: amounts(tokens) }
}

#[test]
fn the_worst_obstacle_is_named() {
    let mut limits = Limits { concurrent: Some(1), budget: Some(NanoUsd(1000)), ..Limits::default() };
    limits.rates[Kind::InputTokens as usize] = Some(Rate::minute(60));
    let limits = Arc::new(limits);
    let mut ledger = Ledger::default();
    let refused = |ledger: &mut Ledger, tokens, now| {
        let denied = ledger.reserve(ticket(99), wanted(&limits, tokens), now).unwrap_err();
        (denied.meter, denied.when, denied.at_least)
    };
    assert_eq!(refused(&mut ledger, 61, 0), (Meter::Rate(Kind::InputTokens), When::Never, 0));
    ledger.reserve(ticket(0), wanted(&limits, 60), 0).unwrap();
    // The slot is taken, 30 tokens are there in 30 s, and money may be left.
    assert_eq!(refused(&mut ledger, 30, 0), (Meter::Concurrent, When::Released, 30_000));
    assert_eq!(refused(&mut ledger, 50, 0), (Meter::Concurrent, When::Released, 50_000));
    ledger.settle(ticket(0), &amounts(60), 0);
    assert_eq!(refused(&mut ledger, 30, 0), (Meter::Rate(Kind::InputTokens), When::After(30_000), 30_000));
    assert_eq!(refused(&mut ledger, 50, 0), (Meter::Money, When::Spent, 50_000));
    ledger.reserve(ticket(1), wanted(&limits, 30), 30_000).unwrap();
}

#[test]
fn a_provider_teaches_limits() {
    let mut ledger = Ledger::default();
    let (name, unlimited) = (account(0), Arc::new(Limits::default()));
    ledger.reserve(ticket(0), wanted(&unlimited, 1_000_000), 0).unwrap();
    ledger.observe(&name, &unlimited, Kind::InputTokens, Some(1000), Some(400), 0);
    let denied = ledger.reserve(ticket(1), wanted(&unlimited, 500), 0).unwrap_err();
    assert_eq!((denied.meter, denied.when), (Meter::Rate(Kind::InputTokens), When::After(6_000)));
    // More than we count to be left is not believed.
    ledger.observe(&name, &unlimited, Kind::InputTokens, Some(1000), Some(1000), 0);
    assert_eq!(ledger.position(&name, 0).left[Kind::InputTokens as usize], Some(400));
}

#[test]
fn idle_accounts_are_forgotten_and_spent_ones_are_not() {
    let mut rates = Limits::default();
    rates.rates[Kind::Requests as usize] = Some(Rate::minute(60));
    let (rates, budget) = (Arc::new(rates), Arc::new(Limits { budget: Some(NanoUsd(u64::MAX)), ..Limits::default() }));
    let mut ledger = Ledger::default();
    for call in 0..50_000 {
        let now = call * 100;
        // Every job comes once; each fiftieth has a budget.
        let limits = if call % 50 == 0 { &budget } else { &rates };
        let wanted = Wanted { accounts: vec![(account(call as usize), limits.clone())], amounts: amounts(10) };
        ledger.reserve(ticket(call), wanted, now).unwrap();
        ledger.settle(ticket(call), &amounts(10), now);
    }
    let kept = ledger.positions(0).count();
    assert!((1000..3100).contains(&kept), "{kept}");
    assert_eq!(ledger.position(&account(0), 0).spent, NanoUsd(100));
}
