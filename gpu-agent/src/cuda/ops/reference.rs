//! The ops in plain Rust: what the CUDA ones must do, bit for bit, and what the simulated device runs.

use kernelopt_shared::dtype::Dtype;

use super::element::{bits, number, put};
use super::random::{mix, poison_key, stream_word};
use super::recipe::Recipe;
use crate::cuda::device::{Allowance, Comparison, Draw, EXPONENTS};
use crate::referee::Errors;

/// What stands for a wrong class in a comparison.
pub const IMPOSSIBLE: f64 = 1e9;

/// Draws values (`draw.cu`).
pub fn draw(to: &mut [u8], dtype: Dtype, draw: &Draw<'_>) {
    let recipe = Recipe::new(dtype, draw);
    for (position, element) in to.chunks_exact_mut(dtype.size_bytes()).enumerate() {
        put(element, dtype, 0, recipe.element(dtype, &draw.captured.quantiles, position as u64));
    }
}

/// Fills with the pattern of `seed` (`poison.cu`).
pub fn poison(to: &mut [u8], seed: u64) {
    let key = poison_key(seed);
    for (k, word) in to.chunks_mut(8).enumerate() {
        let pattern = stream_word(key, k as u64).to_le_bytes();
        word.copy_from_slice(&pattern[..word.len()]);
    }
}

/// Offset of the first byte that is not the pattern's.
pub fn first_unpoisoned(from: &[u8], seed: u64) -> Option<u64> {
    let key = poison_key(seed);
    let apart = |(k, word): (usize, &[u8])| {
        let pattern = stream_word(key, k as u64).to_le_bytes();
        let within = word.iter().zip(pattern).position(|(byte, expected)| *byte != expected)?;
        Some((8 * k + within) as u64)
    };
    from.chunks(8).enumerate().find_map(apart)
}

/// Hash of a span (`digest.cu`).
pub fn digest(from: &[u8]) -> u64 {
    let term = |(k, bytes): (usize, &[u8])| {
        let mut word = [0u8; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        mix(u64::from_le_bytes(word) ^ stream_word(0, k as u64))
    };
    finish_digest(from.chunks(8).enumerate().map(term).fold(0, u64::wrapping_add), from.len() as u64)
}

/// The hash, from the sum of all words' terms: spans that differ in trailing zeros only differ here.
pub(super) const fn finish_digest(sum: u64, bytes: u64) -> u64 {
    mix(sum.wrapping_add(bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Converts to doubles, in native order (`widen.cu`).
pub fn widen(from: &[u8], dtype: Dtype, to: &mut [u8]) {
    for (i, wide) in to.chunks_exact_mut(8).enumerate() {
        wide.copy_from_slice(&number(dtype, bits(from, dtype, i as u64)).to_le_bytes());
    }
}

/// Offset of the first byte at which two spans of one length differ.
pub fn first_difference(a: &[u8], b: &[u8]) -> Option<u64> {
    a.iter().zip(b).position(|(a, b)| a != b).map(|offset| offset as u64)
}

/// The shape of a launch in which order of addition matters: sums of squares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Blocks.
    pub blocks: u32,
    /// Threads of each, a power of two.
    pub threads: u32,
}

/// Truths of one output, as doubles in memory.
#[derive(Clone, Copy, Debug)]
pub struct Truths<'a> {
    /// Unrounded.
    pub exact: &'a [u8],
    /// With re-read stores rounded, where there is one.
    pub rounded: Option<&'a [u8]>,
    /// Seed of the poison where the kernel does not write.
    pub poison: u64,
}

impl Truths<'_> {
    /// The truths of element `i`; `None` where the kernel does not write.
    fn at(&self, i: u64) -> Option<(f64, Option<f64>)> {
        let exact = bits(self.exact, Dtype::Float64, i);
        let rounded = self.rounded.map(|rounded| f64::from_bits(bits(rounded, Dtype::Float64, i)));
        (exact != stream_word(poison_key(self.poison), i)).then_some((f64::from_bits(exact), rounded))
    }
}

/// The baseline's errors (`errors.cu`), squares added in the order of a launch of that shape.
pub fn errors(values: &[u8], dtype: Dtype, truths: &Truths<'_>, lanes: Lanes) -> Errors {
    let all = lanes.blocks as usize * lanes.threads as usize;
    let mut bins = Errors { greatest: vec![0.0; EXPONENTS], count: vec![0; EXPONENTS], squares: 0.0 };
    let mut squares = vec![0.0f64; all];
    for i in 0..(values.len() / dtype.size_bytes()) as u64 {
        let value = number(dtype, bits(values, dtype, i));
        let Some((exact, rounded)) = truths.at(i).filter(|(exact, _)| exact.is_finite() && value.is_finite()) else { continue };
        let near = rounded.filter(|rounded| (value - rounded).abs() < (value - exact).abs()).unwrap_or(exact);
        let error = (value - near).abs();
        let bin = exponent_of(near);
        bins.greatest[bin] = bins.greatest[bin].max(error);
        bins.count[bin] += 1;
        squares[(i % all as u64) as usize] += error * error;
    }
    bins.squares = squares.chunks_mut(lanes.threads as usize).map(halved).fold(0.0, |sum, block| sum + block);
    bins
}

/// Sum of a block's lanes, halves added until one is left.
fn halved(lanes: &mut [f64]) -> f64 {
    let mut half = lanes.len() / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}

fn exponent_of(value: f64) -> usize {
    (value.to_bits() >> 52) as usize & 0x7ff
}

/// Compares a candidate with the truth (`compare.cu`).
pub fn compare(values: &[u8], values_poison: u64, baseline: &[u8], dtype: Dtype, truths: &Truths<'_>, allowance: &Allowance) -> Comparison {
    let mut found = Comparison::default();
    for i in 0..(values.len() / dtype.size_bytes()) as u64 {
        let value = bits(values, dtype, i);
        let ratio = match truths.at(i) {
            Some((exact, rounded)) => {
                let number = number(dtype, value);
                if number.is_finite() && exact.is_finite() {
                    found.max_error = found.max_error.max((number - exact).abs());
                }
                ratio(dtype, value, bits(baseline, dtype, i), exact, rounded, allowance)
            }
            None if still_poison(dtype, value, values_poison, i) => 0.0,
            None => IMPOSSIBLE,
        };
        found.worst = found.worst.max(ratio);
        if ratio > 1.0 {
            found.wrong += 1;
            found.first_wrong.get_or_insert(i);
        }
    }
    found
}

fn still_poison(dtype: Dtype, value: u64, seed: u64, i: u64) -> bool {
    let size = dtype.size_bytes() as u64;
    let word = stream_word(poison_key(seed), i * size / 8) >> (8 * (i * size % 8));
    value == word & (u64::MAX >> (64 - 8 * size))
}

/// Distance to the nearer truth over what is allowed, from the bits of a candidate's and the baseline's element.
fn ratio(dtype: Dtype, value: u64, baseline: u64, exact: f64, rounded: Option<f64>, allowance: &Allowance) -> f64 {
    let found = number(dtype, value);
    if !dtype.is_float() {
        let equal = value == baseline || found == exact || rounded == Some(found);
        return if equal { 0.0 } else { IMPOSSIBLE };
    }
    let reference = number(dtype, baseline);
    let to = |truth: f64| {
        let to_truth = distance(found, truth, allowance);
        if same_class(truth, reference) { to_truth } else { to_truth.min(distance(found, reference, allowance)) }
    };
    match rounded {
        Some(rounded) if to(exact) > 1.0 => to(exact).min(to(rounded)),
        _ => to(exact),
    }
}

fn distance(value: f64, expected: f64, allowance: &Allowance) -> f64 {
    if !same_class(value, expected) {
        // At the end of a type's range a few roundings decide between the greatest number and infinity.
        let overflows = |finite: f64, infinite: f64| {
            infinite.is_infinite()
                && finite.is_finite()
                && finite.is_sign_negative() == infinite.is_sign_negative()
                && finite.abs() + allowed(finite, allowance) >= allowance.greatest
        };
        return if overflows(expected, value) || overflows(value, expected) { 0.0 } else { IMPOSSIBLE };
    }
    if !value.is_finite() || value == expected {
        return 0.0;
    }
    // Beside an edge, of a relu say, one is zero and the other is not: either magnitude speaks for the error.
    let (a, b) = (allowed(expected, allowance), allowed(value, allowance));
    let ratio = (value - expected).abs() / if a > b { a } else { b };
    if ratio <= IMPOSSIBLE { ratio } else { IMPOSSIBLE }
}

fn allowed(truth: f64, allowance: &Allowance) -> f64 {
    let least = if truth == 0.0 { allowance.at_zero } else { allowance.least };
    allowance.by_exponent[exponent_of(truth)] + allowance.relative * truth.abs() + least
}

fn same_class(a: f64, b: f64) -> bool {
    (a.is_finite() && b.is_finite()) || (a.is_nan() && b.is_nan()) || a == b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn f64s(values: &[f64]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn allowance() -> Allowance {
        Allowance { by_exponent: vec![0.0; EXPONENTS], relative: 1e-6, least: 1e-44, at_zero: 1e-38, greatest: f64::from(f32::MAX) }
    }

    fn compared(values: &[f32], baseline: &[f32], exact: &[f64]) -> Comparison {
        let exact = f64s(exact);
        let truths = Truths { exact: &exact, rounded: None, poison: 1 };
        compare(&f32s(values), 2, &f32s(baseline), Dtype::Float32, &truths, &allowance())
    }

    #[test]
    fn poison_is_told_from_what_is_written() {
        let mut bytes = vec![0; 37];
        poison(&mut bytes, 5);
        assert_eq!(first_unpoisoned(&bytes, 5), None);
        assert_eq!(first_unpoisoned(&bytes, 6), Some(0));
        bytes[36] ^= 1;
        assert_eq!(first_unpoisoned(&bytes, 5), Some(36));
    }

    #[test]
    fn position_and_length_count_in_a_digest() {
        assert_ne!(digest(&[0; 8]), digest(&[0; 9]));
        assert_ne!(digest(&[1, 0, 0, 0, 0, 0, 0, 0, 2]), digest(&[2, 0, 0, 0, 0, 0, 0, 0, 1]));
        assert_eq!(digest(&[7; 100]), digest(&[7; 100]));
    }

    #[test]
    fn classes_must_agree() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let truth = [f64::INFINITY, f64::NAN, 1.0, f64::NEG_INFINITY];
        let right = [inf, nan, 1.0, -inf];
        assert_eq!(compared(&right, &right, &truth).wrong, 0);
        let found = compared(&[-inf, 1.0, nan, -inf], &right, &truth);
        assert_eq!((found.wrong, found.first_wrong, found.worst), (3, Some(0), IMPOSSIBLE));
        // Where the baseline overflows and the truth does not, either will do.
        assert_eq!(compared(&[inf], &[inf], &[1e30]).wrong, 0);
        assert_eq!(compared(&[1e30], &[inf], &[1e30]).wrong, 0);
        // At the end of the range the greatest number and infinity are one.
        assert_eq!(compared(&[f32::INFINITY], &[f32::MAX], &[f64::from(f32::MAX)]).wrong, 0);
        assert_eq!(compared(&[f32::NEG_INFINITY], &[f32::MAX], &[f64::from(f32::MAX)]).wrong, 1);
    }

    #[test]
    fn a_distance_is_measured_in_what_is_allowed() {
        let found = compared(&[1.0, 2.0], &[1.0, 2.0], &[1.0, 2.0 + 1e-6]);
        assert!(found.wrong == 0 && (0.49..0.51).contains(&found.worst), "{found:?}");
        assert!((found.max_error - 1e-6).abs() < 1e-12);
        assert_eq!(compared(&[1.0, 2.1], &[1.0, 2.0], &[1.0, 2.0]).first_wrong, Some(1));
    }

    #[test]
    fn what_is_not_written_must_stay_poison() {
        let (mut exact, mut values) = (vec![0; 32], vec![0; 16]);
        poison(&mut exact, 1);
        poison(&mut values, 2);
        let truths = Truths { exact: &exact, rounded: None, poison: 1 };
        assert_eq!(compare(&values, 2, &values, Dtype::Float32, &truths, &allowance()).wrong, 0);
        values[8] ^= 1;
        assert_eq!(compare(&values, 2, &values, Dtype::Float32, &truths, &allowance()).first_wrong, Some(2));
        assert_eq!(errors(&values, Dtype::Float32, &truths, Lanes { blocks: 1, threads: 4 }).count.iter().sum::<u64>(), 0);
    }

    #[test]
    fn integers_are_equal_to_the_truth_or_the_baseline() {
        let exact = f64s(&[1.0, 2.0, 3.0]);
        let truths = Truths { exact: &exact, rounded: None, poison: 1 };
        assert_eq!(compare(&[1, 5, 4], 2, &[1, 5, 3], Dtype::Uint8, &truths, &allowance()).first_wrong, Some(2));
    }

    #[test]
    fn the_nearer_truth_counts() {
        let (exact, rounded) = (f64s(&[1.0, 1.0]), f64s(&[2.0, 2.0]));
        let truths = Truths { exact: &exact, rounded: Some(&rounded), poison: 1 };
        let values = f32s(&[2.0, 1.25]);
        let bins = errors(&values, Dtype::Float32, &truths, Lanes { blocks: 1, threads: 2 });
        assert_eq!((bins.squares, bins.greatest[1023], bins.greatest[1024]), (0.0625, 0.25, 0.0));
        assert_eq!(compare(&values, 2, &values, Dtype::Float32, &truths, &allowance()).first_wrong, Some(1));
    }
}
