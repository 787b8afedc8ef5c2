//! One input set with everything that is expected of it.

use kernelopt_shared::meaning::Role;
use kernelopt_shared::meaning::storage::{Layout, reads_entry_value};
use kernelopt_shared::target::{Distribution, Target};
use kernelopt_shared::verdict::Check;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::expected::{Expected, Pointer, float_of, int_of};
use super::regime::{Regime, draw};
use super::values::{float_at, push_float, push_int};
use crate::cpu::arena::Arena;
use crate::truth::{Rounding, Truth, TruthError, Values};

/// Byte that fills what a kernel must write: NaN in every floating-point type, -1 in every integer.
const POISON: u8 = 0xff;
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
        let row = target.meaning.longest_reduction() as usize;
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
        let reduction = target.meaning.longest_reduction() as usize;
        for output in &mut self.outputs {
            output.learn(&after[output.place.storage][output.place.range()], reduction);
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
