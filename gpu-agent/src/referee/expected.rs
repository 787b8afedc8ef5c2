//! What one output of one input set must hold, and how far a value is from it.

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::storage::ArgumentPlace;

use super::tolerance::Tolerance;
use super::values::{float_at, int_at};
use crate::truth::Values;

/// What stands for an infinite distance in evidence: JSON has no infinity.
const WORST: f64 = f64::MAX;
/// Times the tolerance that a candidate may be from the baseline in a timed launch. Both have an error, and the tolerance was measured on
/// other inputs. How exact a candidate is, its verification has shown; here it is whether the work was done.
const TWIN_SLACK: f64 = 4.0;

/// Where an argument lies in memory.
#[derive(Clone, Copy)]
pub(super) struct Pointer {
    pub(super) storage: usize,
    pub(super) offset_bytes: usize,
    pub(super) dtype: Dtype,
    pub(super) elements: usize,
}

impl Pointer {
    pub(super) fn of(place: &ArgumentPlace) -> Option<Self> {
        match *place {
            ArgumentPlace::Pointer { storage, offset_bytes, dtype, elements } => Some(Self { storage, offset_bytes, dtype, elements }),
            ArgumentPlace::Int(_) | ArgumentPlace::Number(_) => None,
        }
    }

    pub(super) fn range(self) -> std::ops::Range<usize> {
        self.offset_bytes..self.offset_bytes + self.elements * self.dtype.size_bytes()
    }
}

/// What one output must hold.
pub(super) struct Expected {
    /// Name of the argument.
    pub(super) argument: String,
    /// Where it lies.
    pub(super) place: Pointer,
    /// False for an output that the graph never reads: it may hold anything.
    pub(super) judged: bool,
    /// The meaning in double precision.
    pub(super) truth: Values,
    /// The same with narrow stores rounded as they are re-read; only where an output is narrower than float32.
    pub(super) rounded: Option<Values>,
    /// Elements that the meaning writes.
    pub(super) written: Vec<bool>,
    /// What the baseline left, and how far that is from the truth.
    pub(super) baseline: Option<(Vec<u8>, Tolerance)>,
}

/// What a comparison found.
pub(super) struct Found {
    pub(super) worst: f64,
    pub(super) max_error: f64,
    pub(super) first_wrong: Option<String>,
}

impl Expected {
    /// Learns from what the baseline left how exact it is.
    pub(super) fn learn(&mut self, bytes: &[u8], reduction: usize) {
        let dtype = self.place.dtype;
        let finite = |i: usize, truth: f64| {
            let baseline = float_at(bytes, dtype, i);
            (truth.is_finite() && baseline.is_finite()).then_some((truth, baseline))
        };
        let tolerance = match &self.truth {
            Values::Float(truth) => {
                let nearest = |i: usize, truth: f64| {
                    let other = self.rounded.as_ref().map_or(truth, |r| float_of(r, i));
                    let (_, baseline) = finite(i, truth)?;
                    let near = if (baseline - other).abs() < (baseline - truth).abs() { other } else { truth };
                    Some((near, baseline))
                };
                let written = truth.iter().enumerate().filter(|(i, _)| self.written[*i]);
                Tolerance::measure(written.filter_map(|(i, t)| nearest(i, *t)), dtype, reduction)
            }
            _ => Tolerance::measure(std::iter::empty(), dtype, reduction),
        };
        self.baseline = Some((bytes.to_vec(), tolerance));
    }

    pub(super) fn compare(&self, bytes: &[u8]) -> Found {
        let Some((baseline, tolerance)) = &self.baseline else {
            return Found { worst: WORST, max_error: WORST, first_wrong: Some("the baseline was never run".into()) };
        };
        match &self.truth {
            Values::Float(truth) => self.compare_floats(truth, bytes, baseline, tolerance),
            _ => self.compare_integers(bytes, baseline),
        }
    }

    fn compare_floats(&self, truth: &[f64], bytes: &[u8], baseline: &[u8], tolerance: &Tolerance) -> Found {
        let dtype = self.place.dtype;
        let mut found = Found { worst: 0.0, max_error: 0.0, first_wrong: None };
        for (i, truth) in truth.iter().enumerate().filter(|(i, _)| self.written[*i]) {
            let value = float_at(bytes, dtype, i);
            let reference = float_at(baseline, dtype, i);
            let mut ratio = ratio_to_tolerance(value, *truth, reference, tolerance);
            if let (true, Some(rounded)) = (ratio > 1.0, &self.rounded) {
                ratio = ratio.min(ratio_to_tolerance(value, float_of(rounded, i), reference, tolerance));
            }
            if value.is_finite() && truth.is_finite() {
                found.max_error = found.max_error.max((value - truth).abs());
            }
            if ratio > 1.0 && found.first_wrong.is_none() {
                let allowed = tolerance.at(*truth);
                found.first_wrong =
                    Some(format!("element {i} is {value:e}, the truth is {truth:e} (baseline {reference:e}, {allowed:.2e} allowed)"));
            }
            found.worst = found.worst.max(ratio.min(WORST));
        }
        found
    }

    /// Integers and booleans are equal to the truth; where the baseline itself breaks a near-tie otherwise, to the baseline.
    fn compare_integers(&self, bytes: &[u8], baseline: &[u8]) -> Found {
        let dtype = self.place.dtype;
        let wrong = (0..self.place.elements).filter(|i| self.written[*i]).find(|&i| {
            let value = int_at(bytes, dtype, i);
            value != int_of(&self.truth, i) && value != int_at(baseline, dtype, i)
        });
        let worst = if wrong.is_some() { WORST } else { 0.0 };
        let first_wrong = wrong.map(|i| format!("element {i} is {}, the truth is {}", int_at(bytes, dtype, i), int_of(&self.truth, i)));
        Found { worst, max_error: worst, first_wrong }
    }

    pub(super) fn first_apart(&self, found: &[u8], expected: &[u8]) -> Option<String> {
        let (dtype, tolerance) = (self.place.dtype, &self.baseline.as_ref()?.1);
        (0..self.place.elements).find_map(|i| {
            if !dtype.is_float() {
                let (value, wanted) = (int_at(found, dtype, i), int_at(expected, dtype, i));
                return (value != wanted).then(|| format!("element {i} is {value}, the baseline's is {wanted}"));
            }
            let (value, wanted) = (float_at(found, dtype, i), float_at(expected, dtype, i));
            // Both are off the truth, the baseline by a share of what the tolerance allows.
            (distance(value, wanted, tolerance) > TWIN_SLACK).then(|| format!("element {i} is {value:e}, the baseline's is {wanted:e}"))
        })
    }

    pub(super) fn first_gap_touched(&self, bytes: &[u8], untouched: &[u8]) -> Option<usize> {
        let size = self.place.dtype.size_bytes();
        let gaps = self.written.iter().enumerate().filter(|(_, written)| !**written);
        gaps.map(|(i, _)| i).find(|i| bytes[i * size..(i + 1) * size] != untouched[i * size..(i + 1) * size])
    }
}

/// Distance to the truth over what is allowed there; infinite where NaN or an infinity stands wrongly.
///
/// Where the baseline is of another class than the truth (an intermediate overflowed in its type, say), it is as good a
/// witness as the truth, and a candidate may follow either.
fn ratio_to_tolerance(value: f64, truth: f64, baseline: f64, tolerance: &Tolerance) -> f64 {
    let to_truth = distance(value, truth, tolerance);
    if same_class(truth, baseline) { to_truth } else { to_truth.min(distance(value, baseline, tolerance)) }
}

fn distance(value: f64, expected: f64, tolerance: &Tolerance) -> f64 {
    if !same_class(value, expected) {
        // At the end of the type's range a few roundings decide between the greatest number and infinity.
        let overflows = |finite: f64, infinite: f64| {
            infinite.is_infinite() && finite.is_finite() && finite.signum() == infinite.signum() && tolerance.reaches_infinity(finite)
        };
        if overflows(expected, value) || overflows(value, expected) { 0.0 } else { WORST }
    } else if value.is_finite() {
        // Beside an edge, of a relu say, one is zero and the other is not: either magnitude speaks for the error.
        (value - expected).abs() / tolerance.at(expected).max(tolerance.at(value))
    } else {
        0.0
    }
}

fn same_class(a: f64, b: f64) -> bool {
    (a.is_finite() && b.is_finite()) || (a.is_nan() && b.is_nan()) || a == b
}

pub(super) fn float_of(values: &Values, i: usize) -> f64 {
    match values {
        Values::Float(values) => values[i],
        Values::Int(values) => values[i] as f64,
        Values::Bool(values) => f64::from(u8::from(values[i])),
    }
}

pub(super) fn int_of(values: &Values, i: usize) -> i64 {
    match values {
        Values::Float(values) => values[i] as i64,
        Values::Int(values) => values[i],
        Values::Bool(values) => values[i].into(),
    }
}
