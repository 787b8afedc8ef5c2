//! All that is counted of one key, job, upstream, credential or deployment.

use kernelopt_shared::language_model::NanoUsd;

use super::bucket::{self, Bucket};
use super::budget::{self, Budget};
use super::slots::Slots;
use super::spent::Taken;
use super::{Amounts, Kind, Limits, Meter, Millis, Rate};

/// When what is wanted can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// After so many milliseconds, if nobody else takes it.
    After(Millis),
    /// When calls in flight end, at the earliest.
    Released,
    /// Never: it is spent.
    Spent,
    /// Never: it is larger than the limit.
    Never,
}

/// The state of one account. Budgets and slots are counted also where they are not limited; rates only where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    buckets: [Bucket; 4],
    /// What the provider says that the limits are.
    learned: [Option<Rate>; 4],
    money: Budget,
    tokens: Budget,
    slots: Slots,
}

/// An account, to be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Calls in flight.
    pub in_flight: u64,
    /// Money that calls in flight may take.
    pub reserved: NanoUsd,
    /// Money that is gone.
    pub spent: NanoUsd,
    /// Tokens that calls in flight may take.
    pub reserved_tokens: u64,
    /// Tokens that are gone.
    pub spent_tokens: u64,
    /// What is left of each rate now; none where it is not limited.
    pub left: [Option<u64>; 4],
}

impl Account {
    /// What stands in the way of `wanted`; nothing, where it fits.
    pub fn obstacles(&self, limits: &Limits, wanted: &Amounts, now: Millis) -> impl Iterator<Item = (Meter, When)> {
        let rates = Kind::ALL.into_iter().filter_map(move |kind| {
            let fit = self.buckets[kind as usize].fit(self.rate(limits, kind)?, wanted.of(kind), now);
            let when = match fit {
                bucket::Fit::Now => None,
                bucket::Fit::After(wait) => Some(When::After(wait)),
                bucket::Fit::Never => Some(When::Never),
            };
            when.map(|when| (Meter::Rate(kind), when))
        });
        let slots = limits.concurrent.filter(|limit| !self.slots.fit(*limit)).map(|_| (Meter::Concurrent, When::Released));
        let money = limits.budget.and_then(|limit| unpaid(self.money, limit.0, wanted.money.0)).map(|when| (Meter::Money, when));
        let tokens = limits.budget_tokens.and_then(|limit| unpaid(self.tokens, limit, wanted.budget_tokens));
        rates.chain(slots).chain(money).chain(tokens.map(|when| (Meter::BudgetTokens, when)))
    }

    /// Takes what was found to fit.
    pub fn take(&mut self, limits: &Limits, wanted: &Amounts, now: Millis) {
        for kind in Kind::ALL {
            if let Some(rate) = self.rate(limits, kind) {
                self.buckets[kind as usize].charge(rate, wanted.of(kind), now);
            }
        }
        self.slots.take();
        self.money.reserve(wanted.money.0);
        self.tokens.reserve(wanted.budget_tokens);
    }

    /// Corrects what was taken at `begun` to what was used, and gives the slot back.
    pub fn settle(&mut self, limits: &Limits, begun: Millis, taken: &Amounts, used: &Amounts, now: Millis) {
        for kind in Kind::ALL {
            if let Some(rate) = self.rate(limits, kind) {
                self.buckets[kind as usize].correct(rate, begun, taken.of(kind), used.of(kind), now);
            }
        }
        self.slots.give();
        self.money.settle(taken.money.0, used.money.0);
        self.tokens.settle(taken.budget_tokens, used.budget_tokens);
    }

    /// Believes a provider: a limit that is lower than ours holds, and one that we have not is taken over; what is left is the smaller of
    /// both counts.
    pub fn observe(&mut self, limits: &Limits, kind: Kind, limit: Option<u64>, remaining: Option<u64>, now: Millis) {
        if let Some(limit) = limit.filter(|limit| *limit > 0) {
            self.learned[kind as usize] = Some(Rate::minute(limit.min(MOST_LEARNED)));
        }
        if let (Some(rate), Some(remaining)) = (self.rate(limits, kind), remaining) {
            self.buckets[kind as usize].lower(rate, remaining, now);
        }
    }

    fn rate(&self, limits: &Limits, kind: Kind) -> Option<Rate> {
        match (limits.rate(kind), self.learned[kind as usize]) {
            (Some(set), Some(learned)) => {
                Some(Rate { per_minute: set.per_minute.min(learned.per_minute), burst: set.burst.min(learned.burst) })
            }
            (set, learned) => set.or(learned),
        }
    }

    /// True where forgetting it changes nothing: nothing in flight, nothing spent of a budget, all rates full.
    pub fn is_idle(&self, limits: &Limits, now: Millis) -> bool {
        let full = |kind: Kind| self.rate(limits, kind).is_none_or(|rate| self.buckets[kind as usize].is_idle(rate, now));
        let unpaid = limits.budget.is_none() && limits.budget_tokens.is_none();
        let untouched = self.money == Budget::default() && self.tokens == Budget::default();
        self.slots.taken() == 0 && (unpaid || untouched) && Kind::ALL.into_iter().all(full)
    }

    /// What was spent before this process began.
    pub fn restore(&mut self, taken: Taken) {
        (self.money.spent, self.tokens.spent) = (taken.money.0, taken.tokens);
    }

    /// Spent and reserved of the budgets.
    pub fn taken(&self) -> Taken {
        let sum = |budget: Budget| budget.spent.saturating_add(budget.reserved);
        Taken { money: NanoUsd(sum(self.money)), tokens: sum(self.tokens) }
    }

    /// The account as it is.
    pub fn position(&self, limits: &Limits, now: Millis) -> Position {
        Position {
            in_flight: self.slots.taken(),
            reserved: NanoUsd(self.money.reserved),
            spent: NanoUsd(self.money.spent),
            reserved_tokens: self.tokens.reserved,
            spent_tokens: self.tokens.spent,
            left: Kind::ALL.map(|kind| self.rate(limits, kind).map(|rate| self.buckets[kind as usize].level(rate, now))),
        }
    }
}

/// The largest limit that is believed.
const MOST_LEARNED: u64 = 10_000_000_000;

fn unpaid(budget: Budget, limit: u64, wanted: u64) -> Option<When> {
    match budget.fit(limit, wanted) {
        budget::Fit::Now => None,
        budget::Fit::IfLess => Some(When::Released),
        budget::Fit::Never if wanted > limit => Some(When::Never),
        budget::Fit::Never => Some(When::Spent),
    }
}
