//! A pass over a domain: its loops, the accumulators of its reductions, and what threads do with their parts.
//!
//! Along a row, the innermost loop takes a block of the domain's last loop; along a vector of rows, it takes the rows. A sum
//! that adds often to one accumulator adds in two levels, as the compiler's own code does: the error then grows with
//! the root of a chunk instead of the root of all (Higham 2002, section 4.2).

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::meaning::{Axis, Expr};

use super::super::Unsupported;
use super::super::graph::{Fold, Id, Level, Op};
use super::super::index::coefficient;
use super::super::lanes::{Lanes, block};
use super::super::loops::{extents, iterations};
use super::super::plan::{RegionPlan, Step};
use super::super::space::Threads;
use super::Team;
use super::body::{BodyCopy, Emitter, numbers};
use super::index::{self, plain};
use super::region::loop_header;
use super::stage::{DEPTH, Staged};
use super::value::{self, c_type};
use super::writer::Writer;

/// Elements of the shortest row whose successor is worth fetching ahead: the processor itself sees shorter ones coming.
const LONG_ROW: i64 = 512;
/// Additions to one accumulator before it is added to the next level.
const CHUNK: i64 = 128;
/// Additions to one accumulator that are left in one level.
const ONE_LEVEL: i64 = 512;

/// Declares the arrays in which the threads of a region leave their parts of each reduction.
pub fn partials(out: &mut Writer, plan: &RegionPlan, region: usize, team: Team) -> Result<(), Unsupported> {
    if plan.threads != Threads::Within {
        return Ok(());
    }
    for fold in plan.steps.iter().flat_map(|step| &step.folds) {
        // At least a cache line apart, so that threads do not wait for each other's stores.
        let width = if let Lanes::Rows { lanes, .. } = plan.lanes { lanes.max(16) } else { 16 };
        out.line(format!(
            "alignas(64) {} part{region}_{}[{}][{width}];",
            c_type(plan.graph.dtype(*fold))?,
            numbers(plan)[fold],
            team.size()
        ));
    }
    Ok(())
}

/// How the last loop of a pass runs.
struct Run {
    last: Axis,
    /// First element of an iteration: the loop variable itself, or the start of a block.
    start: String,
    /// Elements per iteration.
    step: i64,
    /// End of the whole iterations.
    whole: String,
    /// True where some elements may be left after them.
    has_rest: bool,
    /// Lanes of an accumulator.
    lanes: i64,
    /// Length of a chunk of two-level sums, in elements.
    chunk: Option<i64>,
    /// One iteration does all: its values are the accumulators.
    is_single: bool,
    /// What goes through tiles.
    staged: Staged,
}

impl Emitter<'_> {
    /// Writes the pass that is step `at`.
    pub fn pass(&mut self, at: usize, domain: usize) -> Result<(), Unsupported> {
        let step = &self.plan.steps[at];
        let axes = self.graph.domains[domain].clone();
        let Some((last, outer)) = axes.split_last() else { return Err(Unsupported::new("a domain without loops")) };
        let run = self.run(step, domain, last, outer);
        for fold in &step.folds {
            let (kind, dtype) = (self.fold_of(*fold).0, self.graph.dtype(*fold));
            let name = self.accumulator(*fold, &run, false);
            if matches!(self.plan.lanes, Lanes::Inner(_)) {
                self.out.line(format!("alignas(64) {} {name}[{}];", c_type(dtype)?, run.lanes));
            }
            if !run.is_single {
                self.out.line(format!("fill<{}>({name}, {});", run.lanes, value::neutral(kind, dtype)?));
            }
        }
        let within = self.plan.threads == Threads::Within;
        if within {
            self.out.line("#pragma omp for schedule(static) nowait");
        }
        outer.iter().for_each(|axis| self.out.open(loop_header(&axis.var, "0", &plain(&axis.extent), 1)));
        self.run_loops(at, domain, &run)?;
        if run.has_rest {
            self.rest(step, &run, within && outer.is_empty())?;
        }
        outer.iter().for_each(|_| self.out.close());
        self.finish_folds(step, &run)
    }

    /// The elements after the last whole iteration; where threads share the loop, the last of them takes these.
    fn rest(&mut self, step: &Step, run: &Run, is_shared: bool) -> Result<(), Unsupported> {
        self.out.open(if is_shared { "if (thread == team - 1) {" } else { "{" });
        let extent = plain(&run.last.extent);
        if matches!(self.plan.lanes, Lanes::Inner(_)) {
            self.out.line(format!("const int64_t {} = {};", run.start, run.whole));
            self.along_row(step, run, &format!("{extent} - {}", run.start), false)?;
        } else {
            self.out.open(loop_header(&run.last.var, &run.whole, &extent, 1));
            self.along_rows(step, run, 1, false)?;
            self.out.close();
        }
        self.out.close();
        Ok(())
    }

    fn run(&self, step: &Step, domain: usize, last: &Axis, outer: &[Axis]) -> Run {
        let extent = plain(&last.extent);
        let additions = |step: i64| match iterations(&extents(&self.graph.domains[domain])) {
            Expr::Int(elements) => elements / step,
            _ => i64::MAX,
        };
        let has_sums = step.folds.iter().any(|fold| self.is_float_sum(*fold));
        let chunk = |step: i64| (has_sums && additions(step) > ONE_LEVEL).then_some(CHUNK * step);
        match self.plan.lanes {
            Lanes::Inner(want) => {
                let lanes = block(&last.extent, want);
                let (whole, has_rest) = match last.extent {
                    Expr::Int(extent) => ((extent / lanes * lanes).to_string(), extent % lanes != 0),
                    _ => (format!("{extent} / {lanes} * {lanes}"), true),
                };
                let is_single = outer.is_empty() && self.plan.threads != Threads::Within && last.extent == Expr::Int(lanes);
                Run {
                    last: last.clone(),
                    start: format!("{}_", last.var),
                    step: lanes,
                    whole,
                    has_rest,
                    lanes,
                    chunk: chunk(lanes),
                    is_single,
                    staged: Staged::default(),
                }
            }
            Lanes::Rows { lanes, .. } => {
                let staged = self.staged(step, &last.var);
                if let (false, Expr::Int(elements @ DEPTH..)) = (staged.is_empty(), &last.extent) {
                    return Run {
                        last: last.clone(),
                        start: format!("{}_", last.var),
                        step: DEPTH,
                        whole: (elements / DEPTH * DEPTH).to_string(),
                        has_rest: elements % DEPTH != 0,
                        lanes,
                        chunk: chunk(1),
                        is_single: false,
                        staged,
                    };
                }
                let divides = |unroll: &usize| *unroll > 1 && matches!(last.extent, Expr::Int(extent) if extent % *unroll as i64 == 0);
                let unroll = [self.plan.unroll, self.plan.unroll / 2].into_iter().find(divides).unwrap_or(1) as i64;
                Run {
                    last: last.clone(),
                    start: last.var.clone(),
                    step: unroll,
                    whole: extent,
                    has_rest: false,
                    lanes,
                    chunk: chunk(unroll),
                    is_single: false,
                    staged: Staged::default(),
                }
            }
        }
    }

    fn is_float_sum(&self, fold: Id) -> bool {
        self.fold_of(fold).0 == Fold::Sum && self.graph.dtype(fold).is_float()
    }

    /// The array that a reduction accumulates in: its own, or that of the chunk being summed.
    fn accumulator(&self, fold: Id, run: &Run, in_chunk: bool) -> String {
        let number = self.numbers[&fold];
        match self.plan.lanes {
            _ if in_chunk && run.chunk.is_some() && self.is_float_sum(fold) => format!("c{number}"),
            Lanes::Inner(_) => format!("a{number}"),
            Lanes::Rows { .. } => format!("v{number}"),
        }
    }

    fn run_loops(&mut self, at: usize, domain: usize, run: &Run) -> Result<(), Unsupported> {
        let step = &self.plan.steps[at];
        let sums: Vec<Id> = step.folds.iter().copied().filter(|fold| self.is_float_sum(*fold)).collect();
        match run.chunk {
            None => self.out.open(loop_header(&run.start, "0", &run.whole, run.step)),
            Some(chunk) => {
                let from = format!("{}c", run.last.var);
                self.out.open(loop_header(&from, "0", &run.whole, chunk));
                for sum in &sums {
                    let number = self.numbers[sum];
                    self.out.line(format!("alignas(64) {} c{number}[{}];", c_type(self.graph.dtype(*sum))?, run.lanes));
                    self.out.line(format!("fill<{}>(c{number}, 0);", run.lanes));
                }
                self.out.open(loop_header(&run.start, &from, &format!("std::min<int64_t>({}, {from} + {chunk})", run.whole), run.step));
            }
        }
        match self.plan.lanes {
            Lanes::Inner(_) => {
                if self.plan.prefetch && !self.plan.steps[at + 1..].iter().any(|later| later.domain == Some(domain)) {
                    self.prefetch(domain, run);
                }
                self.along_row(step, run, &run.lanes.to_string(), true)?;
            }
            Lanes::Rows { .. } if !run.staged.is_empty() => {
                let copies = [BodyCopy::default()];
                self.along_staged_rows(step, &run.staged, &run.start, &run.last.var, |this| this.accumulate(step, run, &copies, true))?;
            }
            Lanes::Rows { .. } => self.along_rows(step, run, run.step as usize, true)?,
        }
        self.out.close();
        if run.chunk.is_some() {
            for sum in &sums {
                let (total, part) = (self.accumulator(*sum, run, false), self.accumulator(*sum, run, true));
                self.out.line(format!("add_lanes<{}>({total}, {part});", run.lanes));
            }
            self.out.close();
        }
        Ok(())
    }

    /// A block of a row.
    fn along_row(&mut self, step: &Step, run: &Run, count: &str, in_chunk: bool) -> Result<(), Unsupported> {
        self.local.clear();
        self.open_lanes(step, count, &run.start, &run.last.var);
        let copies = [BodyCopy::default()];
        self.compute(&step.values, &copies[0])?;
        self.accumulate(step, run, &copies, in_chunk);
        self.keep(step, &copies[0]);
        self.write(&step.stores, &copies[0])?;
        self.out.close();
        Ok(())
    }

    /// An element, or a few, of each of a vector of rows.
    fn along_rows(&mut self, step: &Step, run: &Run, copies: usize, in_chunk: bool) -> Result<(), Unsupported> {
        let Some(tile) = self.tile() else { return Err(Unsupported::new("no vector of rows")) };
        self.open_lanes(step, "lanes", &tile.start, &tile.variable);
        let copies: Vec<BodyCopy> = (0..copies).map(|k| BodyCopy::of(k, &run.last.var)).collect();
        for copy in &copies {
            self.local.clear();
            self.compute(&step.values, copy)?;
            self.keep(step, copy);
        }
        self.accumulate(step, run, &copies, in_chunk);
        for copy in &copies {
            self.write(&step.stores, copy)?;
        }
        self.out.close();
        Ok(())
    }

    fn accumulate(&mut self, step: &Step, run: &Run, copies: &[BodyCopy], in_chunk: bool) {
        for fold in &step.folds {
            let ((kind, arg), dtype) = (self.fold_of(*fold), self.graph.dtype(*fold));
            let texts = copies.iter().map(|copy| self.operand(arg, copy));
            let combined = texts.reduce(|a, b| format!("({})", value::fold(kind, dtype, &a, &b))).unwrap_or_default();
            let acc = format!("{}[l]", self.accumulator(*fold, run, in_chunk));
            let folded = if run.is_single { combined } else { value::fold(kind, dtype, &acc, &combined) };
            self.out.line(format!("{acc} = {folded};"));
        }
    }

    /// Accumulators become the row's values; threads combine their parts.
    fn finish_folds(&mut self, step: &Step, run: &Run) -> Result<(), Unsupported> {
        let within = self.plan.threads == Threads::Within;
        let along_row = matches!(self.plan.lanes, Lanes::Inner(_));
        for fold in &step.folds {
            let (number, c_type) = (self.numbers[fold], c_type(self.graph.dtype(*fold))?);
            let part = format!("part{}_{number}[thread]", self.region);
            let name = match self.fold_of(*fold).0 {
                Fold::Sum => "sum",
                Fold::Prod => "prod",
                Fold::Max => "max",
                Fold::Min => "min",
                Fold::Any | Fold::SumExp | Fold::Running(_) => "any",
            };
            let text = format!("fold_{name}<{}>({})", run.lanes, self.accumulator(*fold, run, false));
            match (along_row, within) {
                (true, false) => self.out.line(format!("const {c_type} v{number} = {text};")),
                (true, true) => self.out.line(format!("{part}[0] = {text};")),
                (false, true) => self.out.line(format!("for (int64_t l = 0; l < lanes; ++l) {part}[l] = v{number}[l];")),
                (false, false) => {}
            }
        }
        if !within || step.folds.is_empty() {
            return Ok(());
        }
        // Every thread combines the parts of all in one order, so that all hold the same value.
        self.out.line("#pragma omp barrier");
        for fold in &step.folds {
            let (kind, number, dtype) = (self.fold_of(*fold).0, self.numbers[fold], self.graph.dtype(*fold));
            let part = format!("part{}_{number}", self.region);
            if along_row {
                self.out.line(format!("{} v{number} = {part}[0][0];", c_type(dtype)?));
                let combined = value::fold(kind, dtype, &format!("v{number}"), &format!("{part}[t][0]"));
                self.out.line(format!("for (int t = 1; t < team; ++t) v{number} = {combined};"));
            } else {
                self.out.line(format!("for (int64_t l = 0; l < lanes; ++l) v{number}[l] = {part}[0][l];"));
                let combined = value::fold(kind, dtype, &format!("v{number}[l]"), &format!("{part}[t][l]"));
                self.out.line(format!("for (int t = 1; t < team; ++t) for (int64_t l = 0; l < lanes; ++l) v{number}[l] = {combined};"));
            }
        }
        Ok(())
    }

    /// Fetches what the next row will read along `domain`.
    fn prefetch(&mut self, domain: usize, run: &Run) {
        let Some(row) = self.graph.rows.last() else { return };
        if matches!(run.last.extent, Expr::Int(extent) if extent < LONG_ROW) {
            return;
        }
        let mut fetched = BTreeSet::new();
        for id in self.plan.steps.iter().flat_map(|step| &step.values) {
            let Op::Load { buffer, index, guarded: false } = &self.graph.value(*id).op else { continue };
            let moves = coefficient(index, &row.var).is_some_and(|stride| stride != Expr::Int(0));
            let streams = coefficient(index, &run.last.var) == Some(Expr::Int(1));
            if self.graph.level(*id) != Level::Inner(domain) || !moves || !streams {
                continue;
            }
            let next =
                BTreeMap::from([(row.var.as_str(), format!("({} + 1)", row.var)), (run.last.var.as_str(), format!("({} + l)", run.start))]);
            let subscript = index::subscript(index, &|var| next.get(var).cloned().unwrap_or_else(|| var.to_owned()));
            let pointer = self.storage.read_through(buffer).map_or(buffer.as_str(), |argument| argument.name.as_str());
            fetched.insert(format!("for (int64_t l = 0; l < {}; l += 16) __builtin_prefetch(&{pointer}[{subscript}]);", run.lanes));
        }
        fetched.iter().for_each(|line| self.out.line(line));
    }
}
