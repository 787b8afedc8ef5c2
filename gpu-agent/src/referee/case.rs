//! One input set with everything that is expected of it.

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::Role;
use kernelopt_shared::meaning::storage::{ArgumentPlace, Layout, reads_entry_value};
use kernelopt_shared::target::{Distribution, Target};
use kernelopt_shared::verdict::Check;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::regime::{Regime, draw};
use super::tolerance::Tolerance;
use super::values::{float_at, int_at, push_float, push_int};
use crate::cpu::arena::Arena;
use crate::truth::{Rounding, Truth, TruthError, Values};

/// Byte that fills what a kernel must write: NaN in every floating-point type, -1 in every integer.
const POISON: u8 = 0xff;
/// What stands for an infinite distance in evidence: JSON has no infinity.
const WORST: f64 = f64::MAX;
/// Times the tolerance that a candidate may be from the baseline, which has an error of its own.
const TWIN_SLACK: f64 = 1.25;

/// An input set: memory before a launch, and the truth after it.
pub struct Case {
    /// How the inputs were drawn.
    pub regime: Regime,
    /// Bytes of each storage before a launch: inputs, and poison elsewhere.
    prepared: Vec<Vec<u8>>,
    /// Where the inputs lie in it.
    inputs: Vec<Pointer>,
    outputs: Vec<Expected>,
}

/// What one output must hold.
struct Expected {
    argument: String,
    place: Pointer,
    /// False for an output that the graph never reads: it may hold anything.
    judged: bool,
    /// The meaning in double precision.
    truth: Values,
    /// The same with narrow stores rounded as they are re-read; only where an output is narrower than float32.
    rounded: Option<Values>,
    /// Elements that the meaning writes.
    written: Vec<bool>,
    /// What the baseline left, and how far that is from the truth.
    baseline: Option<(Vec<u8>, Tolerance)>,
}

#[derive(Clone, Copy)]
struct Pointer {
    storage: usize,
    offset_bytes: usize,
    dtype: Dtype,
    elements: usize,
}

impl Pointer {
    fn of(place: &ArgumentPlace) -> Option<Self> {
        match *place {
            ArgumentPlace::Pointer { storage, offset_bytes, dtype, elements } => Some(Self { storage, offset_bytes, dtype, elements }),
            ArgumentPlace::Int(_) => None,
        }
    }

    fn range(self) -> std::ops::Range<usize> {
        self.offset_bytes..self.offset_bytes + self.elements * self.dtype.size_bytes()
    }
}

/// Why an output is not what it must be.
pub struct Mismatch {
    /// In a sentence.
    pub reason: String,
}

impl Case {
    /// Draws inputs in `regime` and computes their truth.
    ///
    /// # Errors
    /// The meaning cannot be run on these inputs.
    pub fn draw(target: &Target, layout: &Layout, truth: &Truth, regime: Regime, seed: u64) -> Result<Self, TruthError> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let row = longest_reduction(target);
        let mut prepared: Vec<Vec<u8>> = layout.storages.iter().map(|s| vec![POISON; s.bytes]).collect();
        let mut inputs = Vec::new();
        let unknown = Distribution::default();
        let read_at_entry = reads_entry_value(&target.meaning, layout);
        for (position, argument) in target.meaning.arguments.iter().enumerate() {
            let Some(place) = Pointer::of(&layout.arguments[position]) else { continue };
            if argument.role == Role::Out || !read_at_entry[position] {
                continue;
            }
            let captured = target.distributions.get(&argument.name).unwrap_or(&unknown);
            let bytes = draw(regime, place.dtype, place.elements, captured, row, &mut rng);
            prepared[place.storage][place.range()].copy_from_slice(&bytes);
            inputs.push(place);
        }
        let storages: Vec<&[u8]> = prepared.iter().map(Vec::as_slice).collect();
        let exact = truth.run(&storages, Rounding::None)?;
        let rounded = if truth.rounds() { Some(truth.run(&storages, Rounding::ArgumentStores)?) } else { None };
        let mut rounded = rounded.into_iter().flatten();
        let outputs = exact
            .into_iter()
            .filter_map(|output| {
                let argument = &target.meaning.arguments[output.argument];
                Some(Expected {
                    argument: argument.name.clone(),
                    place: Pointer::of(&layout.arguments[output.argument])?,
                    judged: !target.scratch.contains(&argument.name),
                    truth: output.values,
                    rounded: rounded.next().map(|o| o.values),
                    written: output.written,
                    baseline: None,
                })
            })
            .collect();
        Ok(Self { regime, prepared, inputs, outputs })
    }

    /// Fills `slot` with the inputs and poison of this case.
    pub fn load(&self, arena: &mut Arena, slot: u32) {
        for (storage, bytes) in self.prepared.iter().enumerate() {
            arena.bytes_mut(slot, storage).copy_from_slice(bytes);
        }
    }

    /// The same with every input turned by `turn` of its length, a fraction in `[0, 1)`: values as captured, in an order that
    /// no launch has seen before.
    pub fn load_turned(&self, arena: &mut Arena, slot: u32, turn: f64) {
        self.load(arena, slot);
        for (i, input) in self.inputs.iter().enumerate() {
            let shares = self.inputs.iter().enumerate().any(|(j, other)| i != j && other.storage == input.storage);
            if !shares {
                let by = (turn * input.elements as f64) as usize * input.dtype.size_bytes();
                let source = &self.prepared[input.storage][input.range()];
                let target = &mut arena.bytes_mut(slot, input.storage)[input.range()];
                let (head, tail) = source.split_at(by.min(source.len()));
                target[..tail.len()].copy_from_slice(tail);
                target[tail.len()..].copy_from_slice(head);
            }
        }
    }

    /// Learns from what the baseline left in memory how exact it is.
    pub fn learn(&mut self, target: &Target, after: &[&[u8]]) {
        let reduction = longest_reduction(target);
        for output in &mut self.outputs {
            let bytes = after[output.place.storage][output.place.range()].to_vec();
            let dtype = output.place.dtype;
            let finite = |i: usize, truth: f64| {
                let baseline = float_at(&bytes, dtype, i);
                (truth.is_finite() && baseline.is_finite()).then_some((truth, baseline))
            };
            let tolerance = match &output.truth {
                Values::Float(truth) => {
                    let nearest = |i: usize, truth: f64| {
                        let other = output.rounded.as_ref().map_or(truth, |r| float_of(r, i));
                        let (_, baseline) = finite(i, truth)?;
                        let near = if (baseline - other).abs() < (baseline - truth).abs() { other } else { truth };
                        Some((near, baseline))
                    };
                    let written = truth.iter().enumerate().filter(|(i, _)| output.written[*i]);
                    Tolerance::measure(written.filter_map(|(i, t)| nearest(i, *t)), dtype, reduction)
                }
                _ => Tolerance::measure(std::iter::empty(), dtype, reduction),
            };
            output.baseline = Some((bytes, tolerance));
        }
    }

    /// Compares memory after a launch with what it must be: outputs, inputs, and everything in between.
    ///
    /// # Errors
    /// The first output or input that is not right, in words. Checks made so far are in `checks` either way.
    pub fn check(&self, after: &[&[u8]], checks: &mut Vec<Check>) -> Result<(), Mismatch> {
        for output in self.outputs.iter().filter(|o| o.judged) {
            let bytes = &after[output.place.storage][output.place.range()];
            let found = output.compare(bytes);
            let untouched = &self.prepared[output.place.storage][output.place.range()];
            let gap = output.first_gap_touched(bytes, untouched);
            checks.push(Check {
                regime: self.regime.name().into(),
                output: output.argument.clone(),
                worst: found.worst,
                max_error: found.max_error,
            });
            if let Some(element) = gap {
                return Err(self.mismatch(&output.argument, format!("element {element}, which must not be written, was")));
            }
            if let Some(what) = found.first_wrong {
                return Err(self.mismatch(&output.argument, what));
            }
        }
        match self.first_input_changed(after) {
            Some(storage) => Err(self.mismatch(&format!("storage {storage}"), "changed where it must only be read".into())),
            None => Ok(()),
        }
    }

    fn mismatch(&self, what: &str, detail: String) -> Mismatch {
        Mismatch { reason: format!("{what} on {} inputs: {detail}", self.regime.name()) }
    }

    /// First storage with a changed byte that belongs to no output.
    fn first_input_changed(&self, after: &[&[u8]]) -> Option<usize> {
        (0..self.prepared.len()).find(|&storage| {
            let mut ranges: Vec<_> = self.outputs.iter().filter(|o| o.place.storage == storage).map(|o| o.place.range()).collect();
            ranges.sort_by_key(|r| r.start);
            let mut from = 0;
            let end = self.prepared[storage].len();
            ranges.push(end..end);
            ranges.iter().any(|range| {
                let between = from..range.start.max(from);
                from = from.max(range.end);
                after[storage][between.clone()] != self.prepared[storage][between]
            })
        })
    }

    /// Memory that a launch would leave if every judged output were made by `fill`: for null controls.
    pub fn pretend(&self, mut fill: impl FnMut(&mut [u8])) -> Vec<Vec<u8>> {
        let mut after = self.prepared.clone();
        for output in self.outputs.iter().filter(|o| o.judged) {
            fill(&mut after[output.place.storage][output.place.range()]);
        }
        after
    }

    /// Memory as a perfect implementation of `other` would leave it: its truth on these inputs, rounded once. For tests of
    /// the referee itself.
    ///
    /// # Errors
    /// `other` cannot be run on these inputs.
    pub fn as_by(&self, other: &Truth) -> Result<Vec<Vec<u8>>, TruthError> {
        let storages: Vec<&[u8]> = self.prepared.iter().map(Vec::as_slice).collect();
        let outputs = other.run(&storages, Rounding::None)?;
        let mut after = self.prepared.clone();
        for output in outputs {
            let Some(place) = other.layout().arguments.get(output.argument).and_then(Pointer::of) else { continue };
            let bytes = &mut after[place.storage][place.range()];
            let size = place.dtype.size_bytes();
            for i in (0..place.elements).filter(|i| output.written[*i]) {
                let mut element = Vec::with_capacity(size);
                if place.dtype.is_float() {
                    push_float(&mut element, place.dtype, float_of(&output.values, i));
                } else {
                    push_int(&mut element, place.dtype, int_of(&output.values, i));
                }
                bytes[i * size..(i + 1) * size].copy_from_slice(&element);
            }
        }
        Ok(after)
    }

    /// Compares what a candidate left with what the baseline left, after a launch of each on the same inputs of this case,
    /// turned or not.
    ///
    /// # Errors
    /// The first output that is not near enough.
    pub fn check_twin(&self, candidate: &[&[u8]], baseline: &[&[u8]]) -> Result<(), Mismatch> {
        for output in self.outputs.iter().filter(|o| o.judged) {
            let place = output.place;
            let (found, expected) = (&candidate[place.storage][place.range()], &baseline[place.storage][place.range()]);
            if found != expected
                && let Some(what) = output.first_apart(found, expected)
            {
                return Err(self.mismatch(&output.argument, format!("in a timed launch, {what}")));
            }
        }
        Ok(())
    }

    /// Greatest error of the baseline over the greatest magnitude of the truth, over all judged floating-point outputs.
    pub fn baseline_error(&self) -> f64 {
        let of = |output: &Expected| {
            let (Values::Float(truth), Some((bytes, _))) = (&output.truth, &output.baseline) else { return 0.0 };
            let pairs = truth.iter().enumerate().filter(|(i, t)| output.written[*i] && t.is_finite());
            let (error, scale) = pairs.fold((0.0f64, 0.0f64), |(error, scale), (i, truth)| {
                let off = (float_at(bytes, output.place.dtype, i) - truth).abs();
                (if off.is_nan() { f64::INFINITY } else { error.max(off) }, scale.max(truth.abs()))
            });
            if error == 0.0 { 0.0 } else { error / scale.max(f64::MIN_POSITIVE) }
        };
        self.outputs.iter().filter(|o| o.judged).map(of).fold(0.0, f64::max)
    }

    /// Memory as each input of fitting size would leave it if it were copied to the outputs, with a name.
    pub fn input_copies(&self) -> Vec<(&'static str, Vec<Vec<u8>>)> {
        let copy = |input: &Pointer| {
            let source = &self.prepared[input.storage][input.range()];
            (
                "a copy of an input",
                self.pretend(|bytes| {
                    let len = source.len().min(bytes.len());
                    bytes[..len].copy_from_slice(&source[..len]);
                }),
            )
        };
        self.inputs.iter().map(copy).collect()
    }

    /// What the baseline left in each judged output, in order.
    pub fn baseline_outputs(&self) -> impl Iterator<Item = &[u8]> {
        self.outputs.iter().filter(|o| o.judged).filter_map(|o| Some(o.baseline.as_ref()?.0.as_slice()))
    }
}

/// Elements of the longest reduction in the kernel; one where there is none.
fn longest_reduction(target: &Target) -> usize {
    let meaning = &target.meaning;
    let length = |node: &kernelopt_shared::meaning::Node| {
        node.reduce.iter().map(|axis| meaning.size(&axis.extent).unwrap_or(1)).product::<i64>().max(1) as usize
    };
    meaning.nodes.iter().map(length).max().unwrap_or(1)
}

struct Found {
    worst: f64,
    max_error: f64,
    first_wrong: Option<String>,
}

impl Expected {
    fn compare(&self, bytes: &[u8]) -> Found {
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

    fn first_apart(&self, found: &[u8], expected: &[u8]) -> Option<String> {
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

    fn first_gap_touched(&self, bytes: &[u8], untouched: &[u8]) -> Option<usize> {
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

fn float_of(values: &Values, i: usize) -> f64 {
    match values {
        Values::Float(values) => values[i],
        Values::Int(values) => values[i] as f64,
        Values::Bool(values) => f64::from(u8::from(values[i])),
    }
}

fn int_of(values: &Values, i: usize) -> i64 {
    match values {
        Values::Float(values) => values[i] as i64,
        Values::Int(values) => values[i],
        Values::Bool(values) => values[i].into(),
    }
}
