//! How one tensor's values are drawn: a [`Draw`] worked out for one element type (`draw.cu` has the same record).
//!
//! The regimes are those of [`crate::referee::Regime`]; element `i` is a pure function of the seed and `i`. What differs from the CPU
//! referee's draws, besides the generator:
//! - powers are drawn as exponent bits and a significand, since no two machines agree on `pow`;
//! - *large* starts at 2^7 and ends below 2^99, for float16 below 2^15, so that it does not consist of infinities;
//! - *denormal* numbers are subnormal in the type itself (in float32 for float64, whose truth has no wider range).

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::target::Distribution;

use super::element::{self, NAN};
use super::random::{below, high_product, joined, normal, philox, unit};
use crate::cuda::device::Draw;
use crate::referee::Regime;

/// Everything about a draw but the quantiles themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Recipe {
    seed: u64,
    /// Longest reduction in elements, at least one.
    row: u64,
    /// One element in this many is special.
    rarity: u64,
    /// Of 2^32 elements so many are zero.
    zero_below: u64,
    /// Least integer.
    low: i64,
    /// Integers from there on; zero stands for all 2^64.
    choices: u64,
    /// Where every captured value was this.
    constant: f64,
    /// Greatest special number.
    greatest: f64,
    /// Least subnormal number.
    spacing: f64,
    quantiles: u32,
    source: u32,
    regime: u32,
    /// Powers of two from 2^7 on that large numbers lie between.
    binades: u32,
    /// Bits of the significand of a subnormal number.
    subnormal_bits: u32,
    code: u32,
}

/// What float values are drawn from.
const QUANTILES: u32 = 0;
const CONSTANT: u32 = 1;
const NORMAL: u32 = 2;
/// Least exponent of a large number.
const LARGE_EXPONENT: u64 = 7;
/// 2^32 as a double.
const TWO_32: f64 = 4_294_967_296.0;

impl Recipe {
    /// Works out `draw` for elements of `dtype`.
    pub fn new(dtype: Dtype, draw: &Draw<'_>) -> Self {
        let Distribution { quantiles, zero_share, .. } = draw.captured;
        let row = draw.row.max(1);
        let (low, high) = integers(quantiles);
        let (source, constant) = source(quantiles);
        let (subnormal_bits, spacing) = subnormals(dtype);
        // So far below the end of the range that a sum over a row, in any order and unscaled, stays finite.
        let end = if dtype == Dtype::Float16 { 65504.0 } else { f64::from(f32::MAX) };
        Self {
            seed: draw.seed,
            row,
            rarity: row.saturating_mul(2).max(16),
            zero_below: (zero_share.clamp(0.0, 1.0) * TWO_32) as u64,
            low,
            choices: (high.max(low) as u64).wrapping_sub(low as u64).wrapping_add(1),
            constant,
            greatest: end / (row as f64 * 4.0),
            spacing,
            quantiles: u32::try_from(quantiles.len()).unwrap_or(u32::MAX),
            source,
            regime: Regime::ALL.iter().position(|r| *r == draw.regime).unwrap_or_default() as u32,
            binades: if dtype == Dtype::Float16 { 8 } else { 92 },
            subnormal_bits,
            code: element::code(dtype),
        }
    }

    /// Bits of the element at `position`; `quantiles` and `dtype` are those that the recipe was made for.
    pub fn element(&self, dtype: Dtype, quantiles: &[f64], position: u64) -> u64 {
        if dtype.is_float() {
            return element::stored(dtype, self.float(quantiles, position));
        }
        let [a, b, ..] = philox(self.seed, position, 0);
        let bits = joined(a, b);
        let step = if self.choices == 0 { bits } else { high_product(bits, self.choices) };
        element::cut(dtype, (self.low as u64).wrapping_add(step) as i64)
    }

    fn float(&self, quantiles: &[f64], position: u64) -> f64 {
        match Regime::ALL.get(self.regime as usize) {
            Some(Regime::ScaledUp) => self.captured(quantiles, position) * 64.0,
            Some(Regime::ScaledDown) => self.captured(quantiles, position) * (1.0 / 1024.0),
            Some(Regime::Negative) => -self.captured(quantiles, position).abs(),
            Some(Regime::Flat) => {
                let [a, b, ..] = philox(self.seed, position, 1);
                self.captured(quantiles, position - position % self.row) + 1e-4 * normal(joined(a, b))
            }
            Some(Regime::Large) => self.large(position),
            Some(Regime::Denormal) => self.denormal(position),
            Some(Regime::Special) => self.special(quantiles, position),
            Some(Regime::Captured) | None => self.captured(quantiles, position),
        }
    }

    /// Inverse-transform sampling from captured quantiles (Devroye 1986, chapter 2). A parameter that was constant is made random.
    fn captured(&self, quantiles: &[f64], position: u64) -> f64 {
        let [a, b, c, _] = philox(self.seed, position, 0);
        let bits = joined(b, c);
        match self.source {
            NORMAL => normal(bits),
            CONSTANT => self.constant * (0.5 + unit(bits)),
            _ if u64::from(a) < self.zero_below => 0.0,
            _ => {
                let at = unit(bits) * f64::from(self.quantiles - 1);
                let below = (at as u32).min(self.quantiles - 2);
                let part = at - f64::from(below);
                let [low, high] = [below, below + 1].map(|i| quantiles[i as usize]);
                low * (1.0 - part) + high * part
            }
        }
    }

    fn large(&self, position: u64) -> f64 {
        let [a, b, c, d] = philox(self.seed, position, 0);
        let exponent = 1023 + LARGE_EXPONENT + u64::from(below(b, self.binades));
        f64::from_bits(u64::from(a & 1) << 63 | exponent << 52 | joined(c, d) >> 12)
    }

    fn denormal(&self, position: u64) -> f64 {
        let [a, b, c, _] = philox(self.seed, position, 0);
        let top = 1u32 << below(b, self.subnormal_bits);
        let size = f64::from(top | (c & (top - 1))) * self.spacing;
        if a & 1 == 1 { -size } else { size }
    }

    fn special(&self, quantiles: &[f64], position: u64) -> f64 {
        let [a, b, c, _] = philox(self.seed, position, 1);
        if high_product(joined(a, b), self.rarity) != 0 {
            return self.captured(quantiles, position);
        }
        let greatest = self.greatest;
        let choices = [NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, greatest, -greatest, 1.2e-38, -1e-40, 100.0, -100.0];
        choices[below(c, choices.len() as u32) as usize]
    }
}

fn source(quantiles: &[f64]) -> (u32, f64) {
    match (quantiles.first(), quantiles.last()) {
        (None, _) | (_, None) => (NORMAL, 0.0),
        // Weights of one and biases of zero would hide faults.
        (Some(low), Some(high)) if low == high => (if *low == 0.0 { NORMAL } else { CONSTANT }, *low),
        // A lone NaN is no distribution.
        _ if quantiles.len() < 2 => (NORMAL, 0.0),
        _ => (QUANTILES, 0.0),
    }
}

fn integers(quantiles: &[f64]) -> (i64, i64) {
    (quantiles.first().copied().unwrap_or(0.0) as i64, quantiles.last().copied().unwrap_or(1.0) as i64)
}

/// Bits of the significand and least number among the subnormal ones.
fn subnormals(dtype: Dtype) -> (u32, f64) {
    match dtype {
        Dtype::Float16 => (10, 2f64.powi(-24)),
        Dtype::Bfloat16 => (7, 2f64.powi(-133)),
        _ => (23, 2f64.powi(-149)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(dtype: Dtype, regime: Regime, quantiles: &[f64], count: u64) -> Vec<f64> {
        let captured = Distribution { quantiles: quantiles.to_vec(), ..Default::default() };
        let recipe = Recipe::new(dtype, &Draw { regime, captured: &captured, row: 64, seed: 7 });
        (0..count).map(|i| element::number(dtype, recipe.element(dtype, quantiles, i))).collect()
    }

    const ASYMMETRIC: [f64; 3] = [-1.0, 0.0, 3.0];

    #[test]
    fn captured_values_keep_range_and_median() {
        let mut drawn = values(Dtype::Float32, Regime::Captured, &ASYMMETRIC, 4096);
        drawn.sort_by(f64::total_cmp);
        assert!(drawn[0] >= -1.0 && drawn[4095] <= 3.0 && drawn[2048].abs() < 0.1);
    }

    #[test]
    fn constant_parameters_are_made_random() {
        let ones = values(Dtype::Float32, Regime::Captured, &[1.0, 1.0], 100);
        assert!(ones.iter().all(|v| (0.5..=1.5).contains(v)) && ones[0] != ones[1]);
        assert!(values(Dtype::Float32, Regime::Captured, &[0.0, 0.0], 100).iter().any(|v| *v < 0.0));
    }

    #[test]
    fn zeros_have_their_share() {
        let captured = Distribution { quantiles: ASYMMETRIC.to_vec(), zero_share: 0.25, nan_share: 0.0 };
        let recipe = Recipe::new(Dtype::Float32, &Draw { regime: Regime::Captured, captured: &captured, row: 1, seed: 3 });
        let zeros = (0..10_000).filter(|i| recipe.element(Dtype::Float32, &ASYMMETRIC, *i) == 0).count();
        assert!((2300..2700).contains(&zeros), "{zeros}");
    }

    #[test]
    fn regimes_are_what_they_say_in_every_type() {
        for (dtype, least_normal) in
            [(Dtype::Float32, 2f64.powi(-126)), (Dtype::Bfloat16, 2f64.powi(-126)), (Dtype::Float16, 2f64.powi(-14))]
        {
            let denormal = values(dtype, Regime::Denormal, &ASYMMETRIC, 4096);
            assert!(denormal.iter().all(|v| *v != 0.0 && v.abs() < least_normal), "{dtype}");
            assert!(values(dtype, Regime::Large, &ASYMMETRIC, 4096).iter().all(|v| v.abs() >= 128.0 && v.is_finite()), "{dtype}");
            assert!(values(dtype, Regime::Negative, &ASYMMETRIC, 4096).iter().all(|v| *v <= 0.0), "{dtype}");
            let special = values(dtype, Regime::Special, &ASYMMETRIC, 4096);
            assert!(special.iter().any(|v| v.is_nan()) && special.iter().any(|v| v.is_infinite()), "{dtype}");
            let clean = special.chunks(64).filter(|row| row.iter().all(|v| v.is_finite())).count();
            assert!((16..64).contains(&clean), "{dtype}: {clean} of 64");
        }
        let flat = values(Dtype::Float32, Regime::Flat, &ASYMMETRIC, 4096);
        assert!(flat.chunks(64).all(|row| row.iter().all(|v| (v - row[0]).abs() < 1e-3)));
        assert!(flat[0] != flat[64]);
    }

    #[test]
    fn integers_stay_in_the_captured_range() {
        let drawn = values(Dtype::Int64, Regime::Large, &[3.0, 9.0], 500);
        assert!(drawn.iter().all(|v| (3.0..=9.0).contains(v)) && drawn.contains(&3.0) && drawn.contains(&9.0));
        assert!(values(Dtype::Int64, Regime::Captured, &[f64::MIN, f64::MAX], 100).iter().any(|v| v.abs() > 1e17));
    }
}
