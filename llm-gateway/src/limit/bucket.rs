//! A rate: so much at once, so much a minute.
//!
//! A bucket keeps its *debt*: what was charged less what has since been refilled, never below zero. A charge fits where debt and charge
//! together are at most the burst; so in any stretch of time at most the burst and the stretch's refill are charged.
//!
//! A call is charged with what it *may* take when it begins, and corrected when it ends. The bucket is then what it would be had the call
//! been charged the truth *at its beginning*. Both easier rules are wrong. To add what was not used to the level of now lets the burst
//! through twice, where the bucket had filled up meanwhile. To hold a reservation until its end, and refill only what is not held, leaves
//! most of a limit unused when answers take minutes. So the charges of the recent past are kept, in cells, and the debt is counted from
//! them: a correction changes its cell. A charge counts from the end of its cell (or from now, where that is earlier), a little late and so
//! never too little.
//!
//! All numbers are integers, and those of `limit/shared/common.lua` are the same ones: a sixty-thousandth of a unit is a *part*, so that
//! a rate of N per minute refills N parts each millisecond, and nothing is lost by rounding however often it is looked at.

use std::collections::VecDeque;

use super::{Millis, Rate};

/// Parts of a unit.
const PARTS: i64 = 60_000;
/// Cells in the time that an empty bucket takes to fill.
const CELLS_IN_FILL: u64 = 16;
/// Cells that are kept; what is older can no longer be corrected downwards.
const MOST_CELLS: usize = 256;
/// More than any charge, small enough that sums of it are exact in binary64.
const MOST_UNITS: u64 = 10_000_000_000;

/// Charges of a short while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    /// When its charges begin to be refilled.
    ends: Millis,
    parts: i64,
}

/// The state of one rate. The rate itself is given with each call, so that it may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Debt at `base_at`, of what is older than all cells.
    base: i64,
    base_at: Millis,
    cells: VecDeque<Cell>,
}

/// Whether a charge fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It does.
    Now,
    /// It will after so many milliseconds, if nothing else is charged.
    After(Millis),
    /// It is larger than the burst.
    Never,
}

impl Bucket {
    /// Whether `amount` can be charged.
    pub fn fit(&self, rate: Rate, amount: u64, now: Millis) -> Fit {
        if amount > rate.burst {
            return Fit::Never;
        }
        let room = parts(rate.burst - amount);
        let over = |at: Millis| (self.debt(rate, at) - room).max(0);
        let refilled = |over: i64| over.unsigned_abs().div_ceil(rate.per_minute);
        match over(now) {
            0 => Fit::Now,
            more => {
                let soonest = now + refilled(more);
                // The last cell may not have ended by then, and only then begins to be refilled.
                let after = self.cells.back().map_or(soonest, |last| last.ends.max(soonest));
                Fit::After(if over(soonest) == 0 { soonest } else { after + refilled(over(after)) } - now)
            }
        }
    }

    /// Charges `amount`, whether it fits or not.
    pub fn charge(&mut self, rate: Rate, amount: u64, now: Millis) {
        self.forget(rate, now);
        let ends = cell_end(rate, now);
        match self.cells.back_mut() {
            // A clock that went back is still in the last cell.
            Some(last) if last.ends >= ends => last.parts += parts(amount),
            _ => self.cells.push_back(Cell { ends, parts: parts(amount) }),
        }
    }

    /// Corrects a charge of `reserved`, made at `begun`, to the truth. More than was reserved is charged as of now where the cell of then is
    /// gone; less has no effect then: the bucket has long been refilled as if nothing had been charged, or it is too long ago.
    pub fn correct(&mut self, rate: Rate, begun: Millis, reserved: u64, used: u64, now: Millis) {
        let length = cell_length(rate);
        let found = self.cells.iter_mut().find(|cell| cell.ends >= begun).filter(|cell| cell.ends - begun < length);
        match found {
            Some(cell) => cell.parts = (cell.parts + parts(used) - parts(reserved)).max(0),
            None if used > reserved => self.charge(rate, used - reserved, now),
            None => {}
        }
    }

    /// What is left now, in whole units.
    pub fn level(&self, rate: Rate, now: Millis) -> u64 {
        let left = (parts(rate.burst) - self.debt(rate, now)).max(0);
        left.unsigned_abs() / PARTS.unsigned_abs()
    }

    /// Somebody who counts too has seen that no more than `remaining` is left: the smaller figure holds.
    pub fn lower(&mut self, rate: Rate, remaining: u64, now: Millis) {
        let level = self.level(rate, now);
        if remaining < level {
            self.charge(rate, level - remaining, now);
        }
    }

    /// True where it is full, and no correction can change that: it need not be kept.
    pub fn is_idle(&self, rate: Rate, now: Millis) -> bool {
        self.debt(rate, now) == 0 && self.cells.back().is_none_or(|last| last.ends <= now)
    }

    fn debt(&self, rate: Rate, now: Millis) -> i64 {
        let (mut debt, mut at) = (self.base, self.base_at);
        for cell in &self.cells {
            let counts_from = cell.ends.min(now).max(at);
            debt = refill(debt, rate, counts_from - at) + cell.parts;
            at = counts_from;
        }
        refill(debt, rate, now.saturating_sub(at))
    }

    /// Drops cells that can have no more effect, and the oldest where there are too many.
    fn forget(&mut self, rate: Rate, now: Millis) {
        if self.is_idle(rate, now) {
            self.cells.clear();
            (self.base, self.base_at) = (0, now.max(self.base_at));
        }
        while self.cells.len() >= MOST_CELLS
            && let Some(first) = self.cells.pop_front()
        {
            self.base = refill(self.base, rate, first.ends.saturating_sub(self.base_at)) + first.parts;
            self.base_at = first.ends.max(self.base_at);
        }
    }
}

fn parts(units: u64) -> i64 {
    i64::try_from(units.min(MOST_UNITS)).unwrap_or(i64::MAX).saturating_mul(PARTS)
}

fn refill(debt: i64, rate: Rate, for_ms: Millis) -> i64 {
    let refilled = u128::from(rate.per_minute) * u128::from(for_ms);
    (debt - i64::try_from(refilled).unwrap_or(i64::MAX)).max(0)
}

/// Length of a cell, in milliseconds.
fn cell_length(rate: Rate) -> Millis {
    let fill = parts(rate.burst).unsigned_abs() / rate.per_minute;
    (fill / CELLS_IN_FILL).max(1)
}

fn cell_end(rate: Rate, now: Millis) -> Millis {
    now.next_multiple_of(cell_length(rate))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Millis = 60_000;

    #[test]
    fn a_burst_fits_and_then_what_is_refilled() {
        let rate = Rate::minute(60);
        let mut bucket = Bucket::default();
        assert_eq!(bucket.fit(rate, 61, 0), Fit::Never);
        bucket.charge(rate, 60, 0);
        assert_eq!(bucket.level(rate, 0), 0);
        assert_eq!(bucket.fit(rate, 1, 0), Fit::After(1_000));
        assert_eq!(bucket.fit(rate, 1, 1_000), Fit::Now);
        assert_eq!(bucket.fit(rate, 60, 0), Fit::After(MINUTE));
        assert_eq!(bucket.level(rate, 30_000), 30);
    }

    /// Its two easier rules are in the module's description; this is where they go wrong.
    #[test]
    fn what_was_not_used_comes_back_only_where_it_is_missing() {
        let rate = Rate::minute(100);
        // Full again by the time that the call ends: nothing comes back, or 200 would pass at once.
        let mut bucket = Bucket::default();
        bucket.charge(rate, 100, 0);
        let later = 2 * MINUTE;
        bucket.charge(rate, 100, later);
        bucket.correct(rate, 0, 100, 0, later);
        assert_eq!(bucket.level(rate, later), 0);
        // Still missing: it comes back at once.
        bucket.correct(rate, later, 100, 40, later + 1);
        assert_eq!(bucket.level(rate, later + 1), 60);
    }

    #[test]
    fn looking_often_loses_nothing() {
        // 7 a minute are 7 parts a millisecond: rounded to units at each look, nothing would ever be refilled.
        let rate = Rate { per_minute: 7, burst: 7 };
        let mut bucket = Bucket::default();
        bucket.charge(rate, 7, 0);
        for now in 0..MINUTE {
            assert_eq!(bucket.level(rate, now), 7 * now / MINUTE, "at {now}");
        }
        assert_eq!(bucket.fit(rate, 7, MINUTE), Fit::Now);
    }

    #[test]
    fn a_provider_that_sees_less_left_is_believed() {
        let rate = Rate::minute(100);
        let mut bucket = Bucket::default();
        bucket.lower(rate, 30, 0);
        assert_eq!(bucket.level(rate, 0), 30);
        bucket.lower(rate, 90, 0);
        assert_eq!(bucket.level(rate, 0), 30);
    }

    #[test]
    fn more_than_was_reserved_is_a_debt() {
        let rate = Rate::minute(100);
        let mut bucket = Bucket::default();
        bucket.charge(rate, 100, 0);
        bucket.correct(rate, 0, 100, 250, 10);
        assert_eq!(bucket.level(rate, 10), 0);
        assert_eq!(bucket.fit(rate, 100, 10), Fit::After(150_000 - 10));
    }

    #[test]
    fn memory_is_bounded() {
        let rate = Rate { per_minute: 1_000_000, burst: 100 };
        let mut bucket = Bucket::default();
        for now in 0..100_000 {
            bucket.charge(rate, 17, now);
            assert!(bucket.cells.len() <= MOST_CELLS);
        }
        assert!(bucket.is_idle(rate, 200_000));
        bucket.charge(rate, 1, 200_000);
        assert_eq!(bucket.cells.len(), 1);
    }

    /// A call that is in flight, or was.
    #[derive(Clone, Copy, Debug)]
    struct Call {
        begun: Millis,
        counts: u64,
        reserved: u64,
        done: bool,
    }

    fn step() -> impl Strategy<Value = (Millis, u64, prop::sample::Index, u8)> {
        (prop_oneof![0..5u64, 0..3_000u64, 0..100_000u64], 1..120u64, any::<prop::sample::Index>(), 0..=100u8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// At no instant is reserved + settled above the limit: for every stretch that ends with a charge, what was begun in it, counted as it is
        /// known now, is at most the burst and the stretch's refill. Held against a plain list of all calls.
        #[test]
        fn no_stretch_of_time_has_more_than_burst_and_refill(
            per_minute in 1..500u64, burst in 1..200u64, steps in prop::collection::vec(step(), 1..120)
        ) {
            let rate = Rate { per_minute, burst };
            let (mut bucket, mut calls, mut now) = (Bucket::default(), Vec::<Call>::new(), 1_000);
            for (pass, amount, which, used) in steps {
                now += pass;
                if used % 2 == 0 && !calls.is_empty() {
                    let call = which.get(&calls);
                    let at = calls.iter().position(|other| std::ptr::eq(other, call)).unwrap();
                    let call = &mut calls[at];
                    if !call.done {
                        (call.done, call.counts) = (true, call.reserved * u64::from(used) / 100);
                        bucket.correct(rate, call.begun, call.reserved, call.counts, now);
                    }
                } else if bucket.fit(rate, amount, now) == Fit::Now {
                    bucket.charge(rate, amount, now);
                    calls.push(Call { begun: now, counts: amount, reserved: amount, done: false });
                    let mut sum = 0;
                    for call in calls.iter().rev() {
                        sum += call.counts * 60_000;
                        prop_assert!(sum <= burst * 60_000 + per_minute * (now - call.begun), "{sum} since {}", call.begun);
                    }
                }
            }
        }

        /// After exactly the time that it says a charge fits, and not a millisecond earlier.
        #[test]
        fn the_wait_is_the_true_one(per_minute in 1..500u64, burst in 1..200u64, charges in prop::collection::vec((0..5_000u64, 1..100u64), 0..20), amount in 1..200u64) {
            let rate = Rate { per_minute, burst };
            let (mut bucket, mut now) = (Bucket::default(), 0);
            for (pass, amount) in charges {
                now += pass;
                bucket.charge(rate, amount, now);
            }
            match bucket.fit(rate, amount, now) {
                Fit::Never => prop_assert!(amount > burst),
                Fit::Now => prop_assert!(bucket.level(rate, now) >= amount),
                Fit::After(wait) => {
                    prop_assert!(wait > 0);
                    prop_assert_eq!(bucket.fit(rate, amount, now + wait), Fit::Now);
                    prop_assert_ne!(bucket.fit(rate, amount, now + wait - 1), Fit::Now);
                }
            }
        }
    }

    /// Calls that take `seconds` and use a part of what they reserve, as many as fit, for half an hour: the part of the limit that is used.
    fn use_of_limit(seconds: u64, reserved: u64, used: u64) -> f64 {
        let rate = Rate::minute(90_000);
        let (mut bucket, mut now, mut total) = (Bucket::default(), 0, 0);
        let mut flying = VecDeque::<Millis>::new();
        let warm = 10 * MINUTE;
        while now < 40 * MINUTE {
            while flying.front().is_some_and(|begun| begun + seconds * 1000 <= now) {
                bucket.correct(rate, flying.pop_front().unwrap(), reserved, used, now);
            }
            while bucket.fit(rate, reserved, now) == Fit::Now {
                bucket.charge(rate, reserved, now);
                flying.push_back(now);
                total += if now >= warm { used } else { 0 };
            }
            now += 200;
        }
        total as f64 / (90_000.0 * 30.0)
    }

    #[test]
    fn a_busy_limit_is_used_to_the_full() {
        // Exact estimates: however long answers take. Twice too much, for as long as the refund is worth something.
        for (seconds, reserved, used) in [(5, 1_500, 1_500), (240, 1_500, 1_500), (20, 6_000, 3_000), (50, 6_000, 3_000)] {
            let part = use_of_limit(seconds, reserved, used);
            assert!((0.95..=1.0 + 1e-6).contains(&part), "{seconds} s, {used} of {reserved}: {part:.3}");
        }
    }
}
