//! Reductions: one state per lane, each taking one value at a time, joined at the end where all lanes are one reduction.

use kernelopt_shared::meaning::ReductionKind;

use super::functions::{maximum, minimum};
use super::program::{ReductionPlan, Slot};
use super::registers::{Lane, Registers};
use super::types::Kind;

/// What a block holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// Lanes in use.
    pub(super) lanes: usize,
    /// Number of the block's first element in the reduction.
    pub(super) first: i64,
}

/// A way to combine values, three operands at most.
trait Reduce {
    /// Domain of the operands.
    type Item: Lane;
    /// Domain of the results.
    type Result: Lane;
    /// What is remembered.
    type State: Copy;

    /// The state before any value.
    const EMPTY: Self::State;

    /// Takes one value, which is element `number` of the reduction. Kinds of one operand read the first item only.
    fn take(state: Self::State, items: [Self::Item; 3], number: i64) -> Self::State;

    /// Joins the states of all lanes.
    fn join(states: &[Self::State]) -> Self::State;

    /// The results; kinds of fewer than three repeat one.
    fn results(state: Self::State) -> [Self::Result; 3];
}

/// Sum of doubles with the rounding error of every addition summed beside it (Knuth's TwoSum; Ogita, Rump, Oishi 2005).
struct Sum;

impl Reduce for Sum {
    type Item = f64;
    type Result = f64;
    type State = (f64, f64);
    const EMPTY: (f64, f64) = (0.0, 0.0);

    fn take((sum, error): (f64, f64), [x, ..]: [f64; 3], _: i64) -> (f64, f64) {
        let total = sum + x;
        let x_part = total - sum;
        (total, error + ((sum - (total - x_part)) + (x - x_part)))
    }

    fn join(states: &[(f64, f64)]) -> (f64, f64) {
        states.iter().fold(Self::EMPTY, |all, (sum, error)| {
            let (total, lost) = Self::take(all, [*sum; 3], 0);
            (total, lost + error)
        })
    }

    fn results((sum, error): (f64, f64)) -> [f64; 3] {
        // Past an infinity the error is not a number, and the sum says it all.
        [if sum.is_finite() { sum + error } else { sum }; 3]
    }
}

/// Declares reductions whose state is a single value of the domain and whose join is the same operation.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident: $type:ty, $empty:expr, $combine:expr;)*) => {$(
        $(#[$doc])*
        struct $name;

        impl Reduce for $name {
            type Item = $type;
            type Result = $type;
            type State = $type;
            const EMPTY: $type = $empty;

            fn take(state: $type, [x, ..]: [$type; 3], _: i64) -> $type {
                $combine(state, x)
            }

            fn join(states: &[$type]) -> $type {
                states.iter().copied().fold(Self::EMPTY, $combine)
            }

            fn results(state: $type) -> [$type; 3] {
                [state; 3]
            }
        }
    )*};
}

plain! {
    /// Wrapping sum.
    IntSum: i64, 0, i64::wrapping_add;
    /// Product.
    Prod: f64, 1.0, |a: f64, b: f64| a * b;
    /// Wrapping product.
    IntProd: i64, 1, i64::wrapping_mul;
    /// Maximum; NaN wins.
    Max: f64, f64::NEG_INFINITY, maximum;
    /// Minimum; NaN wins.
    Min: f64, f64::INFINITY, minimum;
    /// Maximum.
    IntMax: i64, i64::MIN, i64::max;
    /// Minimum.
    IntMin: i64, i64::MAX, i64::min;
    /// Logical or.
    Any: bool, false, |a: bool, b: bool| a | b;
    /// Logical and.
    All: bool, true, |a: bool, b: bool| a & b;
}

/// Position of the greatest value, or of the least; the first among equals; NaN before all.
struct ArgExtreme<const GREATEST: bool>;

/// A value and its position; `None` before the first.
type Found<T> = Option<(T, i64)>;

fn better<const GREATEST: bool>((best, at): (f64, i64), (x, number): (f64, i64)) -> bool {
    if best.is_nan() || x.is_nan() {
        return x.is_nan() && (!best.is_nan() || number < at);
    }
    let ahead = if GREATEST { x > best } else { x < best };
    ahead || (x == best && number < at)
}

impl<const GREATEST: bool> Reduce for ArgExtreme<GREATEST> {
    type Item = f64;
    type Result = i64;
    type State = Found<f64>;
    const EMPTY: Found<f64> = None;

    fn take(state: Found<f64>, [x, ..]: [f64; 3], number: i64) -> Found<f64> {
        match state {
            Some(best) if !better::<GREATEST>(best, (x, number)) => state,
            _ => Some((x, number)),
        }
    }

    fn join(states: &[Found<f64>]) -> Found<f64> {
        states.iter().flatten().fold(None, |best, (x, number)| Self::take(best, [*x; 3], *number))
    }

    fn results(state: Found<f64>) -> [i64; 3] {
        [state.map_or(0, |(_, at)| at); 3]
    }
}

/// The same for integers.
struct IntArgExtreme<const GREATEST: bool>;

impl<const GREATEST: bool> Reduce for IntArgExtreme<GREATEST> {
    type Item = i64;
    type Result = i64;
    type State = Found<i64>;
    const EMPTY: Found<i64> = None;

    fn take(state: Found<i64>, [x, ..]: [i64; 3], number: i64) -> Found<i64> {
        let better = |(best, at): (i64, i64)| (if GREATEST { x > best } else { x < best }) || (x == best && number < at);
        match state {
            Some(best) if !better(best) => state,
            _ => Some((x, number)),
        }
    }

    fn join(states: &[Found<i64>]) -> Found<i64> {
        states.iter().flatten().fold(None, |best, (x, number)| Self::take(best, [*x; 3], *number))
    }

    fn results(state: Found<i64>) -> [i64; 3] {
        [state.map_or(0, |(_, at)| at); 3]
    }
}

/// Mean, sum of squared deviations from it, and weight.
#[derive(Clone, Copy)]
struct Moments {
    mean: f64,
    m2: f64,
    weight: f64,
    /// Plain sum of `weight * mean`: says what the mean is where values are infinite, which the update loses.
    sum: f64,
}

impl Moments {
    const EMPTY: Self = Self { mean: 0.0, m2: 0.0, weight: 0.0, sum: 0.0 };

    /// Moments of all, from the mean of means: more exact than joining two at a time.
    fn join(parts: &[Self]) -> Self {
        let sum = |value: &dyn Fn(&Self) -> f64| {
            let total = parts.iter().filter(|part| part.weight != 0.0).fold(Sum::EMPTY, |sum, part| Sum::take(sum, [value(part); 3], 0));
            Sum::results(total)[0]
        };
        let weight = sum(&|part| part.weight);
        if weight == 0.0 {
            return Self::EMPTY;
        }
        let mean = sum(&|part| part.weight * part.mean) / weight;
        let m2 = sum(&|part| part.m2 + part.weight * (part.mean - mean) * (part.mean - mean));
        Self { mean, m2, weight, sum: parts.iter().map(|part| part.sum).sum() }
    }

    /// Joins two (Chan, Golub, LeVeque 1983).
    fn with(self, other: Self) -> Self {
        let weight = self.weight + other.weight;
        let share = if weight == 0.0 { 0.0 } else { other.weight / weight };
        let delta = other.mean - self.mean;
        let m2 = self.m2 + other.m2 + delta * delta * self.weight * share;
        Self { mean: self.mean + delta * share, m2, weight, sum: self.sum + other.sum }
    }

    /// The mean of values of which one is infinite is infinite, although Welford's update leaves no number there: compilers
    /// that take two passes find it, and the truth is what is true.
    fn results(self) -> [f64; 3] {
        [if self.mean.is_finite() { self.mean } else { self.sum }, self.m2, self.weight]
    }
}

/// Moments of plain values (Welford 1962).
struct WelfordReduce;

impl Reduce for WelfordReduce {
    type Item = f64;
    type Result = f64;
    type State = Moments;
    const EMPTY: Moments = Moments::EMPTY;

    fn take(state: Moments, [x, ..]: [f64; 3], _: i64) -> Moments {
        let weight = state.weight + 1.0;
        let delta = x - state.mean;
        let mean = state.mean + delta / weight;
        Moments { mean, m2: state.m2 + delta * (x - mean), weight, sum: state.sum + x }
    }

    fn join(states: &[Moments]) -> Moments {
        Moments::join(states)
    }

    fn results(state: Moments) -> [f64; 3] {
        state.results()
    }
}

/// Moments of parts whose moments are known.
struct WelfordCombine;

impl Reduce for WelfordCombine {
    type Item = f64;
    type Result = f64;
    type State = Moments;
    const EMPTY: Moments = Moments::EMPTY;

    fn take(state: Moments, [mean, m2, weight]: [f64; 3], _: i64) -> Moments {
        state.with(Moments { mean, m2, weight, sum: weight * mean })
    }

    fn join(states: &[Moments]) -> Moments {
        Moments::join(states)
    }

    fn results(state: Moments) -> [f64; 3] {
        state.results()
    }
}

/// Maximum and the sum of `exp(x - maximum)`. Where the maximum is infinite or NaN that sum is NaN, as its terms are.
struct OnlineSoftmax;

impl Reduce for OnlineSoftmax {
    type Item = f64;
    type Result = f64;
    type State = (f64, f64);
    const EMPTY: (f64, f64) = (f64::NEG_INFINITY, 0.0);

    fn take((max, sum): (f64, f64), [x, ..]: [f64; 3], _: i64) -> (f64, f64) {
        if x == max {
            (max, sum + 1.0)
        } else if x > max {
            (x, sum * (max - x).exp() + 1.0)
        } else {
            (maximum(max, x), sum + (x - max).exp())
        }
    }

    fn join(states: &[(f64, f64)]) -> (f64, f64) {
        let max = states.iter().fold(f64::NEG_INFINITY, |max, (m, _)| maximum(max, *m));
        let scaled = states.iter().fold(Sum::EMPTY, |sum, (m, s)| Sum::take(sum, [s * (m - max).exp(); 3], 0));
        (max, Sum::results(scaled)[0])
    }

    fn results((max, sum): (f64, f64)) -> [f64; 3] {
        [max, if max.is_finite() || sum == 0.0 { sum } else { f64::NAN }, sum]
    }
}

/// A reduction under way.
pub(super) trait Accumulate {
    /// Forgets everything.
    fn reset(&mut self);
    /// Takes the values of a block, one for each lane.
    fn accumulate(&mut self, registers: &Registers, values: &[Slot], block: Block);
    /// Writes the results for the first `lanes` lanes, or for all of them together.
    fn finish(&mut self, registers: &mut Registers, lanes: usize);
}

struct Lanes<'a, R: Reduce> {
    plan: &'a ReductionPlan,
    states: Vec<R::State>,
    /// Lanes that took a value since the last reset.
    used: usize,
}

impl<R: Reduce> Accumulate for Lanes<'_, R> {
    fn reset(&mut self) {
        self.states[..self.used].fill(R::EMPTY);
        self.used = 0;
    }

    fn accumulate(&mut self, registers: &Registers, values: &[Slot], block: Block) {
        let step = i64::from(!self.plan.per_lane);
        let states = &mut self.states[..block.lanes];
        self.used = self.used.max(block.lanes);
        let arg = |position: usize| values.get(position).or(values.first()).map(|slot| registers.arg::<R::Item>(*slot, block.lanes));
        match (arg(0), arg(1), arg(2)) {
            (Some(super::registers::Arg::Wide(items)), _, _) if values.len() == 1 => {
                for (lane, (state, item)) in states.iter_mut().zip(items).enumerate() {
                    *state = R::take(*state, [*item; 3], block.first + step * lane as i64);
                }
            }
            (Some(a), Some(b), Some(c)) => {
                for (lane, state) in states.iter_mut().enumerate() {
                    *state = R::take(*state, [a.lane(lane), b.lane(lane), c.lane(lane)], block.first + step * lane as i64);
                }
            }
            _ => {}
        }
    }

    fn finish(&mut self, registers: &mut Registers, lanes: usize) {
        let all;
        let states = if self.plan.per_lane {
            &self.states[..lanes]
        } else {
            all = [R::join(&self.states[..self.used])];
            &all
        };
        for (position, slot) in self.plan.results.iter().enumerate() {
            registers.write(*slot, states.len(), |_, out: &mut [R::Result]| {
                out.iter_mut().zip(states).for_each(|(out, state)| *out = R::results(*state)[position]);
            });
        }
    }
}

/// A reduction by `plan` over up to `width` lanes.
pub(super) fn accumulator(plan: &ReductionPlan, width: usize) -> Box<dyn Accumulate + '_> {
    fn make<R: Reduce + 'static>(plan: &ReductionPlan, width: usize) -> Box<dyn Accumulate + '_> {
        Box::new(Lanes::<R> { plan, states: vec![R::EMPTY; width], used: 0 })
    }
    use ReductionKind as R;
    let make = match (plan.kind, plan.domain) {
        (R::Sum, Kind::Float) => make::<Sum>,
        (R::Sum, Kind::Int) => make::<IntSum>,
        (R::Prod, Kind::Float) => make::<Prod>,
        (R::Prod, Kind::Int) => make::<IntProd>,
        (R::Max, Kind::Float) => make::<Max>,
        (R::Max, Kind::Int) => make::<IntMax>,
        (R::Min, Kind::Float) => make::<Min>,
        (R::Min, Kind::Int) => make::<IntMin>,
        (R::Prod | R::Min, Kind::Bool) => make::<All>,
        (R::Sum | R::Max, Kind::Bool) | (R::Any, _) => make::<Any>,
        (R::Argmax, Kind::Float) => make::<ArgExtreme<true>>,
        (R::Argmin, Kind::Float) => make::<ArgExtreme<false>>,
        (R::Argmax, _) => make::<IntArgExtreme<true>>,
        (R::Argmin, _) => make::<IntArgExtreme<false>>,
        (R::WelfordReduce, _) => make::<WelfordReduce>,
        (R::WelfordCombine, _) => make::<WelfordCombine>,
        (R::OnlineSoftmaxReduce, _) => make::<OnlineSoftmax>,
    };
    make(plan, width)
}
