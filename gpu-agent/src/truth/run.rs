//! Running a plan: rows, blocks, and how they are divided between workers.

use std::collections::BTreeSet;
use std::ops::Range;

use kernelopt_shared::meaning::Meaning;
use kernelopt_shared::meaning::storage::Layout;

use super::apply;
use super::memory::{Read, Regions, Target, View};
use super::program::{At, LanePattern, NodePlan, Program, Slot, Step};
use super::reduce::{Accumulate, Block, accumulator};
use super::registers::{Arg, Registers};
use super::types::Kind;
use super::{Rounding, TruthError};

/// Most threads of one node.
const MAX_WORKERS: usize = 2;
/// Fewest steps times lanes that are worth a second thread.
const LARGE_NODE: i64 = 1 << 20;

/// An index that was read from memory and is out of range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    what: Place,
    index: i64,
    size: i64,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Variable(usize),
    Region(usize),
}

impl Fault {
    pub(super) fn into_error(self, meaning: &Meaning, layout: &Layout, plan: &NodePlan) -> TruthError {
        let (what, size) = match self.what {
            Place::Variable(variable) => (plan.variables[variable].clone(), self.size),
            Place::Region(region) => (layout.regions[region].root.clone(), layout.regions[region].elements as i64),
        };
        TruthError::OutOfRange { kernel: meaning.kernel.clone(), node: plan.name.clone(), what, index: self.index, size }
    }
}

/// Runs one node, on several threads where they cannot meet.
pub(super) fn node(plan: &NodePlan, program: &Program, regions: &mut Regions<'_>, rounding: Rounding) -> Result<(), Fault> {
    if plan.loops[..plan.outer].iter().any(|l| l.extent == 0) {
        return Ok(());
    }
    let parts = parts(plan);
    let divided = windows(plan, program.stored.len(), &parts);
    let (parts, windows) = match divided {
        Some(windows) => (parts, windows),
        None => (vec![whole(plan)], vec![everything(plan, regions)]),
    };
    let mut views = regions.divide(&windows);
    if let ([part], [views]) = (parts.as_slice(), views.as_mut_slice()) {
        return Worker::new(plan, program, views, rounding).run(part.clone());
    }
    std::thread::scope(|scope| {
        let start = |(part, mut views): (Range<i64>, Vec<View<'_>>)| Worker::new(plan, program, &mut views, rounding).run(part);
        let workers: Vec<_> = parts.into_iter().zip(views).map(|work| scope.spawn(move || start(work))).collect();
        let results: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        // The first part's fault is reported whichever thread found one first.
        results.into_iter().try_for_each(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// All iterations of the first loop.
fn whole(plan: &NodePlan) -> Range<i64> {
    0..plan.loops.first().map_or(1, |first| first.extent)
}

/// The iterations of the first loop, divided if the node is large enough.
fn parts(plan: &NodePlan) -> Vec<Range<i64>> {
    let whole = whole(plan);
    let Some(first) = plan.loops.first().filter(|_| plan.divisible) else { return vec![whole] };
    let lanes = plan.loops.iter().fold(plan.lanes_inside as i64, |n, l| n.saturating_mul(l.extent));
    let work = lanes.saturating_mul(plan.block.len() as i64);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS) as i64;
    let blocks = (first.extent + first.step - 1) / first.step;
    if work < LARGE_NODE || workers < 2 || blocks < workers {
        return vec![whole];
    }
    let edge = |part: i64| (blocks * part / workers * first.step).min(first.extent);
    (0..workers).map(|part| edge(part)..edge(part + 1)).collect()
}

/// For each part and region the elements that it touches, if the node stores there; `None` where parts could meet.
fn windows(plan: &NodePlan, regions: usize, parts: &[Range<i64>]) -> Option<Vec<Vec<Option<Range<usize>>>>> {
    if parts.len() < 2 {
        return None;
    }
    let steps = || plan.row.iter().chain(&plan.block).chain(&plan.finish);
    let stored: BTreeSet<usize> = steps().filter_map(Step::stored_region).collect();
    let mut windows: Vec<Vec<Option<Range<usize>>>> = vec![vec![None; regions]; parts.len()];
    for step in steps() {
        let (Step::Store { region, at, .. } | Step::Load { region, at, .. }) = step else { continue };
        if stored.contains(region) {
            let At::Affine(affine) = at else { return None };
            for (part, windows) in parts.iter().zip(&mut windows) {
                let reached = reach(plan, *affine, part);
                let window = &mut windows[*region];
                *window = Some(window.as_ref().map_or(reached.clone(), |w| w.start.min(reached.start)..w.end.max(reached.end)));
            }
        }
    }
    let rising = |pair: &[Vec<Option<Range<usize>>>]| {
        let ends = pair[0].iter().zip(&pair[1]);
        ends.filter_map(|(a, b)| a.as_ref().zip(b.as_ref())).all(|(a, b)| a.end <= b.start)
    };
    windows.windows(2).all(rising).then_some(windows)
}

/// From the least to past the greatest element of an affine index while the first loop runs over `part`. Compiling proved
/// that both are inside the region.
fn reach(plan: &NodePlan, affine: usize, part: &Range<i64>) -> Range<usize> {
    let affine = &plan.affines[affine];
    let mut low = affine.constant;
    let mut high = affine.constant;
    for (position, (factor, l)) in affine.coefficients.iter().zip(&plan.loops).enumerate() {
        let values = if position == 0 { part.clone() } else { 0..l.extent };
        let ends = [factor * values.start, factor * (values.end - 1).max(values.start)];
        low += ends[0].min(ends[1]);
        high += ends[0].max(ends[1]);
    }
    // The lane loop was counted whole above, so of the lanes only the loops inside it are left.
    let inside = plan.lanes_inside;
    let offsets: Vec<i64> = match &affine.lanes {
        LanePattern::Strided(by) => vec![0, by * (inside as i64 - 1)],
        LanePattern::Table(table) => table[..inside.min(table.len())].to_vec(),
    };
    low += offsets.iter().min().copied().unwrap_or(0);
    high += offsets.iter().max().copied().unwrap_or(0);
    low.max(0) as usize..high.max(0) as usize + 1
}

/// One worker's windows: all of each region that the node stores to.
fn everything(plan: &NodePlan, regions: &Regions<'_>) -> Vec<Option<Range<usize>>> {
    let mut windows = vec![None; regions.count()];
    for region in plan.block.iter().chain(&plan.finish).filter_map(Step::stored_region) {
        windows[region] = Some(0..regions.elements(region));
    }
    windows
}

/// One thread's share of a node.
struct Worker<'w, 'v> {
    plan: &'w NodePlan,
    program: &'w Program,
    views: &'w mut Vec<View<'v>>,
    rounding: Rounding,
    registers: Registers,
    accumulators: Vec<Box<dyn Accumulate + 'w>>,
    /// Value of each loop.
    position: Vec<i64>,
    /// Value of each affine index at lane zero.
    bases: Vec<i64>,
}

impl<'w, 'v> Worker<'w, 'v> {
    fn new(plan: &'w NodePlan, program: &'w Program, views: &'w mut Vec<View<'v>>, rounding: Rounding) -> Self {
        let width = plan.lane_loop.map_or(1, |lane_loop| plan.loops[lane_loop].step as usize * plan.lanes_inside);
        Self {
            plan,
            program,
            views,
            rounding,
            registers: Registers::new(plan, width),
            accumulators: plan.reductions.iter().map(|reduction| accumulator(reduction, width)).collect(),
            position: vec![0; plan.loops.len()],
            bases: vec![0; plan.affines.len()],
        }
    }

    /// Runs the iterations `part` of the first loop and everything inside.
    fn run(mut self, part: Range<i64>) -> Result<(), Fault> {
        let plan = self.plan;
        let range = |position: usize| if position == 0 { part.clone() } else { 0..plan.loops[position].extent };
        let (outer, inner) = (0..plan.outer, plan.outer..plan.loops.len());
        self.start(outer.clone(), &range);
        loop {
            self.row(inner.clone(), &range)?;
            if !self.advance(outer.clone(), &range) {
                return Ok(());
            }
        }
    }

    fn row(&mut self, inner: Range<usize>, range: &impl Fn(usize) -> Range<i64>) -> Result<(), Fault> {
        let plan = self.plan;
        self.start(inner.clone(), range);
        self.rebase();
        let lanes = if plan.lane_loop.is_some_and(|lane_loop| lane_loop < plan.outer) { self.lanes() } else { 1 };
        self.steps(&plan.row, Block { lanes, first: 0 })?;
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.reset());
        if inner.clone().all(|position| !range(position).is_empty()) {
            let per_lane = plan.lane_loop.is_some_and(|lane_loop| lane_loop < plan.outer);
            let mut first = 0;
            loop {
                self.rebase();
                let block = Block { lanes: self.lanes(), first };
                self.steps(&plan.block, block)?;
                first += if per_lane { 1 } else { block.lanes as i64 };
                if !self.advance(inner.clone(), range) {
                    break;
                }
            }
        }
        for accumulator in &mut self.accumulators {
            accumulator.finish(&mut self.registers, lanes);
        }
        self.start(inner, range);
        self.rebase();
        self.steps(&plan.finish, Block { lanes, first: 0 })
    }

    fn start(&mut self, loops: Range<usize>, range: &impl Fn(usize) -> Range<i64>) {
        for position in loops {
            self.position[position] = range(position).start;
        }
    }

    /// Steps to the next iteration of `loops`, the last one fastest; false after the last.
    fn advance(&mut self, loops: Range<usize>, range: &impl Fn(usize) -> Range<i64>) -> bool {
        for position in loops.rev() {
            self.position[position] += self.plan.loops[position].step;
            if self.position[position] < range(position).end {
                return true;
            }
            self.position[position] = range(position).start;
        }
        false
    }

    /// Lanes of the block at this position.
    fn lanes(&self) -> usize {
        self.plan.lane_loop.map_or(1, |lane_loop| {
            let l = self.plan.loops[lane_loop];
            l.step.min(l.extent - self.position[lane_loop]).max(0) as usize * self.plan.lanes_inside
        })
    }

    fn rebase(&mut self) {
        for (base, affine) in self.bases.iter_mut().zip(&self.plan.affines) {
            let loops = affine.coefficients.iter().zip(&self.position);
            *base = loops.fold(affine.constant, |base, (factor, at)| base.wrapping_add(factor.wrapping_mul(*at)));
        }
    }

    fn steps(&mut self, steps: &[Step], block: Block) -> Result<(), Fault> {
        steps.iter().try_for_each(|step| self.step(step, block))
    }

    fn step(&mut self, step: &Step, block: Block) -> Result<(), Fault> {
        let lanes = block.lanes;
        match step {
            Step::Load { to, region, at, mask } => return self.load(*to, *region, *at, *mask, lanes),
            Step::Store { region, at, value, add, wide } => return self.store(*region, *at, *value, *add, if *wide { lanes } else { 1 }),
            Step::Index { to, affine } => {
                let (base, pattern) = (self.bases[*affine], &self.plan.affines[*affine].lanes);
                self.registers.write(*to, lanes, |_, out: &mut [i64]| match pattern {
                    LanePattern::Strided(by) => {
                        out.iter_mut().enumerate().for_each(|(lane, out)| *out = base.wrapping_add(by.wrapping_mul(lane as i64)))
                    }
                    LanePattern::Table(table) => out.iter_mut().zip(table).for_each(|(out, offset)| *out = base.wrapping_add(*offset)),
                });
            }
            Step::Apply { function, to, args } => apply::apply(&mut self.registers, *function, *to, args, lanes),
            Step::Shift { function, to, args, dtype } => apply::shift(&mut self.registers, *function, *to, *args, *dtype, lanes),
            Step::Convert { to, from } => apply::convert(&mut self.registers, *to, *from, lanes),
            Step::Wrap { to, from, dtype } => apply::wrap_to(&mut self.registers, *to, *from, *dtype, lanes),
            Step::Bitcast { to, from, source, target } => apply::bitcast(&mut self.registers, *to, *from, (*source, *target), lanes),
            Step::Indirect { .. } => return self.indirect(step, lanes),
            Step::Accumulate { reduction, values } => self.accumulators[*reduction].accumulate(&self.registers, values, block),
        }
        Ok(())
    }

    fn load(&mut self, to: Slot, region: usize, at: At, mask: Option<Slot>, lanes: usize) -> Result<(), Fault> {
        let (view, plan, bases) = (&self.views[region], self.plan, &self.bases);
        let way = (plan, bases.as_slice(), at, mask);
        let result = match to.kind {
            Kind::Float => self.registers.write(to, lanes, |r, out: &mut [f64]| view.read(out, target(way, r, lanes))),
            Kind::Int => self.registers.write(to, lanes, |r, out: &mut [i64]| view.read(out, target(way, r, lanes))),
            Kind::Bool => self.registers.write(to, lanes, |r, out: &mut [bool]| view.read(out, target(way, r, lanes))),
        };
        result.map_err(|index| Fault { what: Place::Region(region), index, size: 0 })
    }

    fn store(&mut self, region: usize, at: At, value: Slot, add: bool, lanes: usize) -> Result<(), Fault> {
        let rounded = self.rounding == Rounding::ArgumentStores && self.program.rounded[region];
        let registers = &self.registers;
        let target = target((self.plan, &self.bases, at, None), registers, lanes);
        let view = &mut self.views[region];
        let result = match value.kind {
            Kind::Float => view.store_floats(target, lanes, registers.arg(value, lanes), add, rounded),
            Kind::Int => view.store_ints(target, lanes, registers.arg(value, lanes), add),
            Kind::Bool => view.store_bools(target, lanes, registers.arg(value, lanes), add),
        };
        result.map_err(|index| Fault { what: Place::Region(region), index, size: 0 })
    }

    fn indirect(&mut self, step: &Step, lanes: usize) -> Result<(), Fault> {
        let Step::Indirect { to, from, size, variable, wrap_negative, check, mask } = step else { return Ok(()) };
        self.registers.write(*to, lanes, |r, out: &mut [i64]| {
            let (from, size) = (r.arg::<i64>(*from, lanes), r.arg::<i64>(*size, lanes));
            let mask = mask.map_or(Arg::Single(true), |mask| r.arg::<bool>(mask, lanes));
            for (lane, out) in out.iter_mut().enumerate() {
                let (index, size) = (from.lane(lane), size.lane(lane));
                let wrapped = if *wrap_negative && index < 0 { index.wrapping_add(size) } else { index };
                if *check && mask.lane(lane) && !(0..size).contains(&wrapped) {
                    return Err(Fault { what: Place::Variable(*variable), index, size });
                }
                *out = wrapped;
            }
            Ok(())
        })
    }
}

/// Where each lane of a load or store goes.
fn target<'a>((plan, bases, at, mask): (&'a NodePlan, &[i64], At, Option<Slot>), registers: &'a Registers, lanes: usize) -> Target<'a> {
    match at {
        At::Affine(affine) => match &plan.affines[affine].lanes {
            LanePattern::Strided(by) => Target::Strided { first: bases[affine], by: *by },
            LanePattern::Table(table) => Target::Table { base: bases[affine], table },
        },
        At::Slot(slot) => Target::Listed { index: registers.arg(slot, lanes), mask: mask.map(|mask| registers.arg(mask, lanes)) },
    }
}
