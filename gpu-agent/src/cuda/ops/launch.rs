//! Ops as launches: grid, arguments, and where results are read from. Whatever can start a kernel of [`super::SOURCE`] is a [`Machine`].

use std::ffi::c_void;
use std::ptr::from_ref;

use super::random::poison_key;
use super::recipe::Recipe;
use super::reference::{Lanes, finish_digest};
use super::{Op, element};
use crate::cuda::device::{Allowance, Compared, Comparison, DeviceError, Done, Draw, EXPONENTS, Elements, Span};
use crate::referee::Errors;

/// Threads of every op's blocks.
pub const THREADS: u32 = 256;
/// Most blocks of an op: one wave of the largest devices there are. Fixed, since sums of squares depend on it.
pub const BLOCKS: u32 = 1024;
/// The shape of a launch of [`Op::Errors`].
pub const ERROR_LANES: Lanes = Lanes { blocks: BLOCKS, threads: THREADS };
/// Most quantiles of a captured distribution.
pub const MAX_QUANTILES: usize = 8192;
/// Bytes for results, and behind them for a table of doubles.
const RESULT_BYTES: u64 = (2 * EXPONENTS as u64 + BLOCKS as u64) * 8;
/// Bytes of device memory that ops need besides their operands.
pub const SCRATCH_BYTES: u64 = RESULT_BYTES + MAX_QUANTILES as u64 * 8;

/// One argument of an op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// An address or count.
    U64(u64),
    /// A code or a number of passes.
    U32(u32),
    /// How to draw.
    Recipe(Recipe),
    /// What to compare.
    Compared(Operands),
    /// What is allowed.
    Bounds(Bounds),
}

impl Argument {
    /// Where the value lies, as `cuLaunchKernel` takes it; good while the argument is.
    pub const fn address(&self) -> *mut c_void {
        match self {
            Self::U64(value) => from_ref(value).cast_mut().cast(),
            Self::U32(value) => from_ref(value).cast_mut().cast(),
            Self::Recipe(value) => from_ref(value).cast_mut().cast(),
            Self::Compared(value) => from_ref(value).cast_mut().cast(),
            Self::Bounds(value) => from_ref(value).cast_mut().cast(),
        }
    }
}

/// Operands of a comparison as `compare.cu` has them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Operands {
    values: u64,
    baseline: u64,
    truth: u64,
    rounded: u64,
    count: u64,
    values_key: u64,
    truth_key: u64,
}

/// [`Allowance`] without its table.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Bounds {
    relative: f64,
    least: f64,
    at_zero: f64,
    greatest: f64,
}

/// Something that runs ops, in order.
pub trait Machine {
    /// Memory of [`SCRATCH_BYTES`] bytes, aligned to eight.
    fn scratch(&self) -> Span;
    /// Starts an op of `blocks` blocks of [`THREADS`] threads; what reads its results waits for it.
    fn start(&mut self, op: Op, blocks: u32, arguments: &[Argument]) -> Done<()>;
    /// Waits for what was started.
    fn wait(&mut self) -> Done<()>;
    /// Host to device, in order with the ops.
    fn put(&mut self, to: Span, bytes: &[u8]) -> Done<()>;
    /// Device to host, after the ops.
    fn get(&mut self, from: Span, bytes: &mut [u8]) -> Done<()>;
}

/// See [`crate::cuda::device::Device::draw`].
pub fn draw(machine: &mut impl Machine, to: Elements, draw: &Draw<'_>) -> Done<()> {
    let table = table(machine, &draw.captured.quantiles)?;
    let recipe = Recipe::new(to.dtype, draw);
    let arguments = [Argument::U64(to.span.address), Argument::U64(to.count()), Argument::Recipe(recipe), Argument::U64(table)];
    run(machine, Op::Draw, to.count(), &arguments)
}

/// See [`crate::cuda::device::Device::poison`].
pub fn poison(machine: &mut impl Machine, to: Span, seed: u64) -> Done<()> {
    let arguments = [to.address, to.bytes, poison_key(seed)].map(Argument::U64);
    run(machine, Op::Poison, to.bytes.div_ceil(16), &arguments)
}

/// See [`crate::cuda::device::Device::first_unpoisoned`].
pub fn first_unpoisoned(machine: &mut impl Machine, span: Span, seed: u64) -> Done<Option<u64>> {
    let result = results::<1>(machine)?;
    let arguments = [span.address, span.bytes, poison_key(seed), result].map(Argument::U64);
    run(machine, Op::FirstUnpoisoned, span.bytes.div_ceil(16), &arguments)?;
    fetch(machine).map(|[found]| position(found))
}

/// See [`crate::cuda::device::Device::digest`].
pub fn digest(machine: &mut impl Machine, span: Span) -> Done<u64> {
    let result = results::<1>(machine)?;
    let arguments = [span.address, span.bytes, result].map(Argument::U64);
    run(machine, Op::Digest, span.bytes.div_ceil(16), &arguments)?;
    fetch(machine).map(|[sum]| finish_digest(sum, span.bytes))
}

/// See [`crate::cuda::device::Device::widen`].
pub fn widen(machine: &mut impl Machine, from: Elements, to: Span) -> Done<()> {
    same(from.count() * 8, to.bytes)?;
    let code = Argument::U32(element::code(from.dtype));
    let arguments = [Argument::U64(from.span.address), code, Argument::U64(from.count()), Argument::U64(to.address)];
    run(machine, Op::Widen, from.count(), &arguments)
}

/// See [`crate::cuda::device::Device::first_difference`].
pub fn first_difference(machine: &mut impl Machine, a: Elements, b: Elements) -> Done<Option<u64>> {
    same(a.span.bytes, b.span.bytes)?;
    let result = results::<1>(machine)?;
    let arguments = [a.span.address, b.span.address, a.span.bytes, result].map(Argument::U64);
    run(machine, Op::FirstDifference, a.span.bytes.div_ceil(16), &arguments)?;
    let size = a.dtype.size_bytes() as u64;
    fetch(machine).map(|[found]| position(found).map(|offset| offset / size))
}

/// See [`crate::cuda::device::Device::errors`].
pub fn errors(machine: &mut impl Machine, values: Elements, truth: Span, rounded: Option<Span>, truth_poison: u64) -> Done<Errors> {
    same(values.count() * 8, truth.bytes)?;
    rounded.map_or(Ok(()), |rounded| same(truth.bytes, rounded.bytes))?;
    let result = machine.scratch().address;
    clear(machine, RESULT_BYTES as usize)?;
    let (counts, squares) = (result + 8 * EXPONENTS as u64, result + 16 * EXPONENTS as u64);
    let arguments = [
        Argument::U64(values.span.address),
        Argument::U32(element::code(values.dtype)),
        Argument::U64(values.count()),
        Argument::U64(truth.address),
        Argument::U64(rounded.map_or(0, |span| span.address)),
        Argument::U64(poison_key(truth_poison)),
        Argument::U64(result),
        Argument::U64(counts),
        Argument::U64(squares),
    ];
    run(machine, Op::Errors, values.count(), &arguments)?;
    let mut bytes = vec![0; RESULT_BYTES as usize];
    let span = machine.scratch();
    machine.get(Span { bytes: RESULT_BYTES, ..span }, &mut bytes)?;
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let greatest = words.by_ref().take(EXPONENTS).map(f64::from_bits).collect();
    let count = words.by_ref().take(EXPONENTS).collect();
    Ok(Errors { greatest, count, squares: words.map(f64::from_bits).fold(0.0, |sum, block| sum + block) })
}

/// See [`crate::cuda::device::Device::compare`].
pub fn compare(machine: &mut impl Machine, what: &Compared, allowance: &Allowance) -> Done<Comparison> {
    let (values, count) = (what.values, what.values.count());
    same(values.span.bytes, what.baseline.span.bytes)?;
    same(count * 8, what.truth.bytes)?;
    what.rounded.map_or(Ok(()), |rounded| same(what.truth.bytes, rounded.bytes))?;
    same(allowance.by_exponent.len() as u64, EXPONENTS as u64)?;
    let table = table(machine, &allowance.by_exponent)?;
    let result = results::<4>(machine)?;
    let operands = Operands {
        values: values.span.address,
        baseline: what.baseline.span.address,
        truth: what.truth.address,
        rounded: what.rounded.map_or(0, |span| span.address),
        count,
        values_key: poison_key(what.values_poison),
        truth_key: poison_key(what.truth_poison),
    };
    let Allowance { relative, least, at_zero, greatest, .. } = *allowance;
    let arguments = [
        Argument::Compared(operands),
        Argument::U32(element::code(values.dtype)),
        Argument::Bounds(Bounds { relative, least, at_zero, greatest }),
        Argument::U64(table),
        Argument::U64(result),
    ];
    run(machine, Op::Compare, count, &arguments)?;
    let [worst, max_error, wrong, first] = fetch(machine)?;
    Ok(Comparison { worst: f64::from_bits(worst), max_error: f64::from_bits(max_error), wrong, first_wrong: position(first) })
}

/// Starts overwriting `to`, a multiple of sixteen bytes, and does not wait.
pub fn flush(machine: &mut impl Machine, to: Span, seed: u64) -> Done<()> {
    machine.start(Op::Flush, blocks(to.bytes / 16), &[to.address, to.bytes, seed].map(Argument::U64))
}

/// Starts reading `from`, a multiple of sixteen bytes, `passes` times, or copying it to `to`, and does not wait.
pub fn sweep(machine: &mut impl Machine, from: Span, to: Option<Span>, passes: u32) -> Done<()> {
    let [source, bytes] = [from.address, from.bytes].map(Argument::U64);
    let blocks = blocks(from.bytes / 16);
    let passes = Argument::U32(passes);
    match to {
        None => machine.start(Op::SweepRead, blocks, &[source, bytes, passes, Argument::U64(machine.scratch().address)]),
        Some(to) => {
            same(from.bytes, to.bytes)?;
            machine.start(Op::SweepCopy, blocks, &[source, Argument::U64(to.address), bytes, passes])
        }
    }
}

/// Blocks for that many positions.
fn blocks(positions: u64) -> u32 {
    u32::try_from(positions.div_ceil(THREADS.into())).map_or(BLOCKS, |blocks| blocks.clamp(1, BLOCKS))
}

fn run(machine: &mut impl Machine, op: Op, positions: u64, arguments: &[Argument]) -> Done<()> {
    machine.start(op, blocks(positions), arguments)?;
    machine.wait()
}

/// Checks that two operands of one operation are of one length.
pub(in crate::cuda) fn same(a: u64, b: u64) -> Done<()> {
    if a == b { Ok(()) } else { Err(DeviceError::Device(format!("operands of {a} and {b} bytes for one operation"))) }
}

/// Checks that a table of doubles has room in the scratch memory.
pub(in crate::cuda) fn has_room(values: &[f64]) -> Done<()> {
    let count = values.len();
    if count <= MAX_QUANTILES { Ok(()) } else { Err(DeviceError::Device(format!("a table of {count} numbers; at most {MAX_QUANTILES}"))) }
}

/// Puts a table of doubles where ops read it.
fn table(machine: &mut impl Machine, values: &[f64]) -> Done<u64> {
    has_room(values)?;
    let address = machine.scratch().address + RESULT_BYTES;
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    if !bytes.is_empty() {
        machine.put(Span { address, bytes: bytes.len() as u64 }, &bytes)?;
    }
    Ok(address)
}

/// Zeroes the first `N` result words and says where they are.
fn results<const N: usize>(machine: &mut impl Machine) -> Done<u64> {
    clear(machine, 8 * N)?;
    Ok(machine.scratch().address)
}

fn clear(machine: &mut impl Machine, bytes: usize) -> Done<()> {
    let to = Span { bytes: bytes as u64, ..machine.scratch() };
    machine.put(to, &vec![0; bytes])
}

fn fetch<const N: usize>(machine: &mut impl Machine) -> Done<[u64; N]> {
    let mut bytes = vec![0; 8 * N];
    let from = Span { bytes: 8 * N as u64, ..machine.scratch() };
    machine.get(from, &mut bytes)?;
    let mut words = [0; N];
    words.iter_mut().zip(bytes.as_chunks::<8>().0).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    Ok(words)
}

/// A position that an op found, from its complement; zero says that there was none.
fn position(complement: u64) -> Option<u64> {
    (complement != 0).then_some(!complement)
}
