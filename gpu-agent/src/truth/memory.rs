//! Logical memory: the regions of a kernel, in the domain in which they are computed.

use std::ops::Range;

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::storage::{BufferPlace, Layout, Region};

use super::Values;
use super::program::Program;
use super::registers::{Arg, Lane};
use super::types::{Kind, round_to, wrap};

/// Values of one region.
#[derive(Debug)]
enum Cells<'a> {
    /// An input that nothing writes: read where it lies.
    Input(&'a [u8]),
    /// Values of the truth's own.
    Own(Values),
}

/// All regions of a kernel.
#[derive(Debug)]
pub(super) struct Regions<'a> {
    cells: Vec<Cells<'a>>,
    /// For each region behind an argument that is stored to: which elements were.
    written: Vec<Vec<bool>>,
    dtypes: Vec<Dtype>,
}

/// What one worker sees of a region.
#[derive(Debug)]
pub(super) enum View<'v> {
    /// An input.
    Input(Dtype, &'v [u8]),
    /// Values that nobody writes now.
    Floats(&'v [f64]),
    Ints(&'v [i64]),
    Bools(&'v [bool]),
    /// Values that this worker alone may write, from element `start` on.
    Window {
        cells: Cut<'v>,
        written: &'v mut [bool],
        start: i64,
        dtype: Dtype,
    },
}

/// Part of a region.
#[derive(Debug)]
pub(super) enum Cut<'v> {
    Floats(&'v mut [f64]),
    Ints(&'v mut [i64]),
    Bools(&'v mut [bool]),
}

/// Which element each lane goes to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// `first + by · lane`.
    Strided { first: i64, by: i64 },
    /// `base + table[lane]`.
    Table { base: i64, table: &'a [i64] },
    /// As listed, where the mask holds.
    Listed { index: Arg<'a, i64>, mask: Option<Arg<'a, bool>> },
}

impl<'a> Regions<'a> {
    /// The state at entry: `inputs` holds the bytes of each storage.
    pub(super) fn new(layout: &Layout, program: &Program, inputs: &[&'a [u8]]) -> Self {
        let mut regions = Self { cells: Vec::new(), written: Vec::new(), dtypes: layout.regions.iter().map(|r| r.dtype).collect() };
        for (number, region) in layout.regions.iter().enumerate() {
            let stored = program.stored[number];
            let bytes = region.home.filter(|_| region.holds_entry).map(|home| {
                let size = region.elements * region.dtype.size_bytes();
                &inputs[home.storage][home.offset_bytes..home.offset_bytes + size]
            });
            regions.cells.push(match bytes {
                Some(bytes) if !stored => Cells::Input(bytes),
                Some(bytes) if program.reads_entry[number] => Cells::Own(convert(region, bytes)),
                _ => Cells::Own(poison(region)),
            });
            regions.written.push(if stored && region.home.is_some() { vec![false; region.elements] } else { Vec::new() });
        }
        regions
    }

    /// One set of views for each worker: those regions that `windows` names are cut there, worker by worker, the windows of
    /// one region rising and apart. Everything else is shared.
    pub(super) fn divide(&mut self, windows: &[Vec<Option<Range<usize>>>]) -> Vec<Vec<View<'_>>> {
        let mut workers: Vec<Vec<View<'_>>> = windows.iter().map(|_| Vec::new()).collect();
        for (region, (cells, written)) in self.cells.iter_mut().zip(&mut self.written).enumerate() {
            let ranges: Option<Vec<Range<usize>>> = windows.iter().map(|worker| worker[region].clone()).collect();
            let dtype = self.dtypes[region];
            match (cells, ranges) {
                (Cells::Own(values), Some(ranges)) => {
                    let cuts = match values {
                        Values::Float(values) => cut(values, &ranges).into_iter().map(Cut::Floats).collect(),
                        Values::Int(values) => cut(values, &ranges).into_iter().map(Cut::Ints).collect(),
                        Values::Bool(values) => cut(values, &ranges).into_iter().map(Cut::Bools).collect::<Vec<_>>(),
                    };
                    let marks = if written.is_empty() { ranges.iter().map(|_| [].as_mut_slice()).collect() } else { cut(written, &ranges) };
                    for (((worker, cells), written), range) in workers.iter_mut().zip(cuts).zip(marks).zip(&ranges) {
                        worker.push(View::Window { cells, written, start: range.start as i64, dtype });
                    }
                }
                (Cells::Own(values), None) => {
                    for worker in &mut workers {
                        worker.push(match &*values {
                            Values::Float(values) => View::Floats(values),
                            Values::Int(values) => View::Ints(values),
                            Values::Bool(values) => View::Bools(values),
                        });
                    }
                }
                (Cells::Input(bytes), _) => workers.iter_mut().for_each(|worker| worker.push(View::Input(dtype, bytes))),
            }
        }
        workers
    }

    /// Number of regions.
    pub(super) const fn count(&self) -> usize {
        self.cells.len()
    }

    /// Elements of a region.
    pub(super) fn elements(&self, region: usize) -> usize {
        match &self.cells[region] {
            Cells::Input(bytes) => bytes.len() / self.dtypes[region].size_bytes(),
            Cells::Own(values) => values.len(),
        }
    }

    /// Values of `place` at exit, and which of them were written. The last to ask for a region gets it without a copy.
    pub(super) fn take(&mut self, place: BufferPlace, last: bool) -> (Values, Vec<bool>) {
        let range = place.offset..place.offset + place.elements;
        let (cells, written) = (&mut self.cells[place.region], &mut self.written[place.region]);
        let values = match cells {
            Cells::Own(values) => match values {
                Values::Float(values) => Values::Float(part(values, range.clone(), last)),
                Values::Int(values) => Values::Int(part(values, range.clone(), last)),
                Values::Bool(values) => Values::Bool(part(values, range.clone(), last)),
            },
            // An output that nothing writes.
            Cells::Input(_) => Values::Bool(vec![false; place.elements]),
        };
        let written = if written.is_empty() { vec![false; place.elements] } else { part(written, range, last) };
        (values, written)
    }
}

fn part<T: Copy>(values: &mut Vec<T>, range: Range<usize>, last: bool) -> Vec<T> {
    if last && range == (0..values.len()) { std::mem::take(values) } else { values[range].to_vec() }
}

/// Cuts `values` at rising ranges that lie apart.
fn cut<'v, T>(mut values: &'v mut [T], ranges: &[Range<usize>]) -> Vec<&'v mut [T]> {
    let mut cuts = Vec::with_capacity(ranges.len());
    let mut at = 0;
    for range in ranges {
        let (before, after) = values.split_at_mut(range.end - at);
        cuts.push(&mut before[range.start - at..]);
        (values, at) = (after, range.end);
    }
    cuts
}

/// Values that nothing has stored yet: NaN shows if they are read.
fn poison(region: &Region) -> Values {
    match Kind::of(region.dtype) {
        Kind::Float => Values::Float(vec![f64::NAN; region.elements]),
        Kind::Int => Values::Int(vec![0; region.elements]),
        Kind::Bool => Values::Bool(vec![false; region.elements]),
    }
}

fn convert(region: &Region, bytes: &[u8]) -> Values {
    fn all<T: Lane>(region: &Region, view: &View<'_>) -> Vec<T>
    where
        for<'v> View<'v>: Read<T>,
    {
        let mut values = vec![T::default(); region.elements];
        // The view has exactly these elements, so nothing is out of range.
        let _ = view.read(&mut values, Target::Strided { first: 0, by: 1 });
        values
    }
    let view = View::Input(region.dtype, bytes);
    match Kind::of(region.dtype) {
        Kind::Float => Values::Float(all(region, &view)),
        Kind::Int => Values::Int(all(region, &view)),
        Kind::Bool => Values::Bool(all(region, &view)),
    }
}

/// Reading a region in its domain. The error is an index that is outside.
pub(super) trait Read<T> {
    fn read(&self, out: &mut [T], target: Target<'_>) -> Result<(), i64>;
}

impl Read<f64> for View<'_> {
    fn read(&self, out: &mut [f64], target: Target<'_>) -> Result<(), i64> {
        match self {
            View::Floats(values) => gather(out, values, target, 0, |x| x),
            View::Window { cells: Cut::Floats(values), start, .. } => gather(out, values, target, *start, |x| x),
            View::Input(Dtype::Float64, bytes) => gather(out, bytes.as_chunks().0, target, 0, f64::from_ne_bytes),
            View::Input(Dtype::Float32, bytes) => gather(out, bytes.as_chunks().0, target, 0, |x| f32::from_ne_bytes(x).into()),
            View::Input(Dtype::Float16, bytes) => gather(out, bytes.as_chunks().0, target, 0, |x| half::f16::from_ne_bytes(x).to_f64()),
            View::Input(Dtype::Bfloat16, bytes) => {
                gather(out, bytes.as_chunks().0, target, 0, |x| half::bf16::from_ne_bytes(x).to_f32().into())
            }
            _ => Ok(()),
        }
    }
}

impl Read<i64> for View<'_> {
    fn read(&self, out: &mut [i64], target: Target<'_>) -> Result<(), i64> {
        match self {
            View::Ints(values) => gather(out, values, target, 0, |x| x),
            View::Window { cells: Cut::Ints(values), start, .. } => gather(out, values, target, *start, |x| x),
            View::Input(Dtype::Int64, bytes) => gather(out, bytes.as_chunks().0, target, 0, i64::from_ne_bytes),
            View::Input(Dtype::Int32, bytes) => gather(out, bytes.as_chunks().0, target, 0, |x| i32::from_ne_bytes(x).into()),
            View::Input(Dtype::Int16, bytes) => gather(out, bytes.as_chunks().0, target, 0, |x| i16::from_ne_bytes(x).into()),
            View::Input(Dtype::Int8, bytes) => gather(out, bytes.as_chunks().0, target, 0, |x| i8::from_ne_bytes(x).into()),
            View::Input(Dtype::Uint8, bytes) => gather(out, bytes.as_chunks().0, target, 0, |x| u8::from_ne_bytes(x).into()),
            _ => Ok(()),
        }
    }
}

impl Read<bool> for View<'_> {
    fn read(&self, out: &mut [bool], target: Target<'_>) -> Result<(), i64> {
        match self {
            View::Bools(values) => gather(out, values, target, 0, |x| x),
            View::Window { cells: Cut::Bools(values), start, .. } => gather(out, values, target, *start, |x| x),
            View::Input(Dtype::Bool, bytes) => gather(out, bytes, target, 0, |x| x != 0),
            _ => Ok(()),
        }
    }
}

/// `out[lane] = convert(cells[target(lane) - start])`.
fn gather<C: Copy, T: Default>(out: &mut [T], cells: &[C], target: Target<'_>, start: i64, convert: impl Fn(C) -> T) -> Result<(), i64> {
    let at = |index: i64| cells.get(index.wrapping_sub(start) as usize).copied().ok_or(index);
    match target {
        Target::Strided { first, by: 1 } => {
            let from = first.wrapping_sub(start) as usize;
            let cells = from.checked_add(out.len()).and_then(|end| cells.get(from..end)).ok_or(first)?;
            out.iter_mut().zip(cells).for_each(|(out, cell)| *out = convert(*cell));
        }
        Target::Strided { first, by } => {
            for (lane, out) in out.iter_mut().enumerate() {
                *out = convert(at(first.wrapping_add(by.wrapping_mul(lane as i64)))?);
            }
        }
        Target::Table { base, table } => {
            for (out, offset) in out.iter_mut().zip(table) {
                *out = convert(at(base.wrapping_add(*offset))?);
            }
        }
        Target::Listed { index, mask: None } => {
            for (lane, out) in out.iter_mut().enumerate() {
                *out = convert(at(index.lane(lane))?);
            }
        }
        Target::Listed { index, mask: Some(mask) } => {
            for (lane, out) in out.iter_mut().enumerate() {
                *out = if mask.lane(lane) { convert(at(index.lane(lane))?) } else { T::default() };
            }
        }
    }
    Ok(())
}

impl View<'_> {
    /// Stores floats, rounded to the region's type if `rounded`. The error is an index that is outside.
    pub(super) fn store_floats(
        &mut self,
        target: Target<'_>,
        lanes: usize,
        values: Arg<'_, f64>,
        add: bool,
        rounded: bool,
    ) -> Result<(), i64> {
        let Self::Window { cells: Cut::Floats(cells), written, start, dtype } = self else { return Ok(()) };
        let (dtype, to) = (*dtype, (&mut **cells, &mut **written, *start));
        match (add, rounded) {
            (false, false) => scatter(to, target, lanes, values, |_, x| x),
            (false, true) => scatter(to, target, lanes, values, |_, x| round_to(x, dtype)),
            (true, false) => scatter(to, target, lanes, values, |old, x| old + x),
            (true, true) => scatter(to, target, lanes, values, |old, x| round_to(old + round_to(x, dtype), dtype)),
        }
    }

    /// Stores integers, wrapped to the width of the region's type.
    pub(super) fn store_ints(&mut self, target: Target<'_>, lanes: usize, values: Arg<'_, i64>, add: bool) -> Result<(), i64> {
        let Self::Window { cells: Cut::Ints(cells), written, start, dtype } = self else { return Ok(()) };
        let (dtype, to) = (*dtype, (&mut **cells, &mut **written, *start));
        if add {
            scatter(to, target, lanes, values, |old, x: i64| wrap(x.wrapping_add(old), dtype))
        } else {
            scatter(to, target, lanes, values, |_, x| wrap(x, dtype))
        }
    }

    /// Stores booleans; adding is a logical or.
    pub(super) fn store_bools(&mut self, target: Target<'_>, lanes: usize, values: Arg<'_, bool>, add: bool) -> Result<(), i64> {
        let Self::Window { cells: Cut::Bools(cells), written, start, .. } = self else { return Ok(()) };
        scatter((cells, written, *start), target, lanes, values, |old, x| x | (add & old))
    }
}

/// `cells[target(lane) - start] = combine(cells[…], values[lane])`, lanes in order; what is stored is marked, if marks are kept.
fn scatter<T: Copy>(
    (cells, written, start): (&mut [T], &mut [bool], i64),
    target: Target<'_>,
    lanes: usize,
    values: Arg<'_, T>,
    combine: impl Fn(T, T) -> T,
) -> Result<(), i64> {
    if let (Target::Strided { first, by: 1 }, Arg::Wide(values)) = (target, values) {
        let from = first.wrapping_sub(start) as usize;
        let range = from..from.checked_add(lanes).ok_or(first)?;
        let cells = cells.get_mut(range.clone()).ok_or(first)?;
        cells.iter_mut().zip(values).for_each(|(cell, value)| *cell = combine(*cell, *value));
        written.get_mut(range).into_iter().for_each(|marks| marks.fill(true));
        return Ok(());
    }
    for lane in 0..lanes {
        let index = match target {
            Target::Strided { first, by } => first.wrapping_add(by.wrapping_mul(lane as i64)),
            Target::Table { base, table } => base.wrapping_add(table[lane]),
            Target::Listed { index, .. } => index.lane(lane),
        };
        let at = index.wrapping_sub(start) as usize;
        let cell = cells.get_mut(at).ok_or(index)?;
        *cell = combine(*cell, values.lane(lane));
        written.get_mut(at).into_iter().for_each(|mark| *mark = true);
    }
    Ok(())
}
