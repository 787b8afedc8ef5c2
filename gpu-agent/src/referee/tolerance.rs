//! How far from the truth an output may be: measured from the baseline's own error, not chosen.
//!
//! The baseline's distance to float64 on the same inputs is kept by binary exponent of the true value. A candidate may be
//! [`Tolerance::factor`] times as far as the baseline is near that magnitude, and beyond that a few roundings of the value
//! itself. The factor and the roundings grow with the square root of the longest reduction, since another order of
//! summation is as right as the baseline's (Higham, *Accuracy and Stability of Numerical Algorithms*, 4.2 and 2.8).

use kernelopt_shared::dtype::Dtype;

use crate::cuda::device::Allowance;

/// Exponents of doubles, zero and subnormals in the first bin.
const BINS: usize = 2048;
/// Bins to either side that speak for a magnitude too.
const NEIGHBOURS: usize = 2;
/// A magnitude that fewer elements than this have is judged by the error of all elements as well: three times its root mean
/// square, since the few may have been lucky.
const FEW: u64 = 64;
/// Times the baseline's error that is allowed without any reduction.
const BASE_FACTOR: f64 = 4.0;
/// Roundings of the value that are allowed without any reduction.
const BASE_ROUNDINGS: f64 = 8.0;

/// Errors of the baseline, sorted by the biased exponent of the true value.
#[derive(Clone, Debug, PartialEq)]
pub struct Errors {
    /// Greatest absolute error, by exponent.
    pub greatest: Vec<f64>,
    /// Elements, by exponent.
    pub count: Vec<u64>,
    /// Sum of the squared errors of all elements.
    pub squares: f64,
}

impl Default for Errors {
    fn default() -> Self {
        Self { greatest: vec![0.0; BINS], count: vec![0; BINS], squares: 0.0 }
    }
}

impl Errors {
    /// Adds an element.
    pub fn add(&mut self, truth: f64, baseline: f64) {
        let error = (baseline - truth).abs();
        let bin = exponent_bin(truth);
        self.greatest[bin] = self.greatest[bin].max(error);
        self.count[bin] += 1;
        self.squares += error * error;
    }

    /// The greatest error over the power of two above the greatest truth; zero where nothing was seen.
    pub fn relative(&self) -> f64 {
        let error = self.greatest.iter().copied().fold(0.0, f64::max);
        let scale = self.count.iter().rposition(|count| *count > 0).map_or(1.0, |bin| 2f64.powi(bin as i32 - 1022));
        error / scale.max(f64::MIN_POSITIVE)
    }
}

/// The error that one output may have on one input set.
#[derive(Clone, Debug)]
pub struct Tolerance {
    /// Times the baseline's error.
    factor: f64,
    /// Times the magnitude of the true value.
    relative: f64,
    /// At any magnitude: a few spacings of the type's least numbers.
    least: f64,
    /// Where the truth is zero: the least normal number. Double precision cannot tell zero from a subnormal where both come
    /// from values near one that cancel, and the sharper candidate is not wrong.
    at_zero: f64,
    /// Greatest finite number of the type.
    greatest: f64,
    /// Greatest baseline error by exponent of the true value, neighbours joined.
    error_by_exponent: Vec<f64>,
}

impl Tolerance {
    /// Measures the baseline: `pairs` are `(truth, baseline)` where both are finite. `reduction` is the longest reduction in
    /// elements, one for none.
    pub fn measure(pairs: impl Iterator<Item = (f64, f64)>, dtype: Dtype, reduction: usize) -> Self {
        let mut errors = Errors::default();
        pairs.for_each(|(truth, baseline)| errors.add(truth, baseline));
        Self::from_errors(&errors, dtype, reduction)
    }

    /// The same from errors that were collected elsewhere.
    pub fn from_errors(errors: &Errors, dtype: Dtype, reduction: usize) -> Self {
        let Errors { greatest, count, squares } = errors;
        let total: u64 = count.iter().sum();
        let pooled = if total == 0 { 0.0 } else { 3.0 * (squares / total as f64).sqrt() };
        let root = (reduction.max(1) as f64).sqrt();
        let error_by_exponent = (0..BINS).map(|bin| joined(greatest, count, bin, pooled)).collect();
        let u = dtype.unit_roundoff();
        let roundings = BASE_ROUNDINGS + if reduction > 1 { root } else { 0.0 };
        Self {
            factor: BASE_FACTOR + if reduction > 1 { root / 8.0 } else { 0.0 },
            // Accumulation happens in float32 where the type is narrower, so only the last rounding is of the type itself.
            relative: 1.01 * u + roundings * u.min(Dtype::Float32.unit_roundoff()),
            least: 8.0 * least_spacing(dtype),
            at_zero: least_normal(dtype),
            greatest: greatest_finite(dtype),
            error_by_exponent,
        }
    }

    /// Error allowed at an element whose true value is `truth`.
    pub fn at(&self, truth: f64) -> f64 {
        let least = if truth == 0.0 { self.at_zero } else { self.least };
        self.factor * self.error_by_exponent[exponent_bin(truth)] + self.relative * truth.abs() + least
    }

    /// The same as tables, for a device that compares by itself.
    pub fn allowance(&self) -> Allowance {
        Allowance {
            by_exponent: self.error_by_exponent.iter().map(|error| self.factor * error).collect(),
            relative: self.relative,
            least: self.least,
            at_zero: self.at_zero,
            greatest: self.greatest,
        }
    }

    /// True where a value of this size and one beyond the type's range are within tolerance of each other.
    pub fn reaches_infinity(&self, value: f64) -> bool {
        value.abs() + self.at(value) >= self.greatest
    }
}

fn joined(greatest: &[f64], count: &[u64], bin: usize, pooled: f64) -> f64 {
    let near = bin.saturating_sub(NEIGHBOURS)..(bin + NEIGHBOURS + 1).min(BINS);
    let error = near.clone().map(|b| greatest[b]).fold(0.0, f64::max);
    let seen: u64 = near.map(|b| count[b]).sum();
    if seen < FEW { error.max(pooled) } else { error }
}

fn exponent_bin(value: f64) -> usize {
    ((value.to_bits() >> 52) & 0x7ff) as usize
}

/// Least normal number of a type.
fn least_normal(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float64 => f64::MIN_POSITIVE,
        Dtype::Float16 => 2f64.powi(-14),
        _ => f64::from(f32::MIN_POSITIVE),
    }
}

/// Greatest finite number of a type.
fn greatest_finite(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float64 => f64::MAX,
        Dtype::Float16 => 65504.0,
        Dtype::Bfloat16 => 3.389_531_389_251_535_5e38,
        _ => f64::from(f32::MAX),
    }
}

/// Spacing of the least numbers of a type.
fn least_spacing(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float64 => 4.94e-324,
        Dtype::Float16 => 2f64.powi(-24),
        Dtype::Bfloat16 => 2f64.powi(-133),
        _ => 2f64.powi(-149),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_baseline_leaves_a_few_roundings() {
        let exact = (1..1000).map(|i| (f64::from(i), f64::from(i)));
        let tolerance = Tolerance::measure(exact, Dtype::Float32, 1);
        assert!(tolerance.at(1.0) < 1e-6 && tolerance.at(1.0) > 1e-7, "{}", tolerance.at(1.0));
    }

    #[test]
    fn an_inexact_baseline_widens_only_the_magnitudes_where_it_is() {
        let pairs = (0..2000).map(|i| if i % 2 == 0 { (1000.0, 1000.5) } else { (1.0, 1.0) });
        let tolerance = Tolerance::measure(pairs, Dtype::Float32, 1);
        assert!(tolerance.at(1000.0) >= 2.0 && tolerance.at(1.0) < 1e-6);
    }

    #[test]
    fn few_elements_borrow_from_all() {
        let pairs = (0..2000).map(|i| (1000.0 + f64::from(i) / 1e3, 1000.001 + f64::from(i) / 1e3)).chain([(1e-3, 1e-3)]);
        let tolerance = Tolerance::measure(pairs, Dtype::Float32, 1);
        assert!(tolerance.at(1e-3) > 1e-3);
    }

    #[test]
    fn long_sums_may_be_summed_in_another_order() {
        let none = Tolerance::measure(std::iter::empty(), Dtype::Float32, 1);
        let long = Tolerance::measure(std::iter::empty(), Dtype::Float32, 32_000);
        assert!(long.at(1.0) > 10.0 * none.at(1.0) && long.at(1.0) < 2e-5, "{}", long.at(1.0));
    }

    #[test]
    fn only_the_end_of_the_range_reaches_infinity() {
        let tolerance = Tolerance::measure(std::iter::empty(), Dtype::Float32, 1);
        assert!(tolerance.reaches_infinity(f64::from(f32::MAX)) && !tolerance.reaches_infinity(3.3e38));
    }

    #[test]
    fn subnormal_results_must_be_right_to_a_few_spacings() {
        let tolerance = Tolerance::measure(std::iter::empty(), Dtype::Float32, 1);
        assert!(tolerance.at(1e-40) < 1e-43);
    }
}
