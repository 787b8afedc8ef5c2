//! Rows in several parts, for targets whose rows are too few to fill the device: one launch reduces every part in a program of its
//! own, a second one combines the parts and does what is left.
//!
//! What a part leaves in scratch memory is what a lane of the loop has: sums, extremes, a maximum with its sum of exponentials, a
//! mean with squared deviations and a count. So parts are combined as lanes are ([`super::running`], [`super::online`]), always in
//! the same order. Where the row is passed over again, every program of the second launch combines for itself and then passes over
//! one part.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::launch::Scratch;
use kernelopt_shared::meaning::{Expr, Meaning};

use super::super::Unsupported;
use super::super::graph::{Fold, Id, Level};
use super::super::index::canonical;
use super::super::plan::Step;
use super::block::{Dimension, Extent};
use super::body::Emitter;
use super::function::{neutral, reduce};
use super::index::{Direction, words};
use super::kernel::with_emitter;
use super::pass::{Accumulator, lowest};
use super::running::Span;
use super::space::{Schedule, Shape};

/// Name of the function that reduces parts.
pub const PARTIAL: &str = "partial";
/// Name of the function that combines them.
pub const COMBINE: &str = "combine";
/// Most parts of a row: a program combines them at once.
const MAX_PARTS: i64 = 1024;
/// Elements of a thread where nothing but parts is to be combined.
const PER_THREAD: i64 = 4;

/// Two kernels and the memory between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The module of both.
    pub source: String,
    /// In the order of their launches.
    pub stages: [Stage; 2],
    /// Results of parts.
    pub scratch: Vec<Scratch>,
}

/// One kernel and how it is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its function.
    pub entry: &'static str,
    /// What it takes, by name: arguments of the target, and scratch.
    pub arguments: Vec<String>,
    /// Values of its constexpr parameters.
    pub constants: BTreeMap<String, i64>,
    /// Programs along x; there is no other axis.
    pub programs: Expr,
    /// Warps of a program.
    pub warps: u32,
}

/// The kernels of a meaning whose rows are split as the schedule says; `scratch` names the arguments that need not be written.
///
/// # Errors
/// Where the meaning cannot be written so: more than one pass reduces, or sizes are not known.
pub fn split(meaning: &Meaning, scratch: &BTreeSet<String>, schedule: &Schedule) -> Result<Split, Unsupported> {
    let Some(splits) = schedule.splits.filter(|_| schedule.shape == Shape::Loop && schedule.resident.is_none()) else {
        return Err(Unsupported::new("parts of rows without a loop, or with programs that stay"));
    };
    with_emitter(meaning, scratch, schedule, |emitter| {
        let parts = Parts::of(emitter, i64::from(splits))?;
        emitter.split(meaning, &parts)
    })
}

/// How rows are cut.
#[derive(Clone, Copy, Debug)]
struct Parts {
    rows: i64,
    /// Elements of a row.
    elements: i64,
    /// Elements of a part; the last may have fewer.
    length: i64,
    /// Parts of a row.
    count: i64,
    /// Some part ends within a block.
    is_masked: bool,
}

impl Parts {
    fn of(emitter: &Emitter<'_>, splits: i64) -> Result<Self, Unsupported> {
        let known = |dimension: &Option<Dimension>| match dimension {
            None => Ok((1, 1)),
            Some(Dimension { count: Expr::Int(count), block, .. }) => Ok((*count, *block)),
            Some(_) => Err(Unsupported::new("parts of rows whose number or length is not known")),
        };
        let ((rows, _), (elements, block)) = (known(&emitter.block.x)?, known(&emitter.block.r)?);
        let blocks = (elements - 1).div_euclid(block) + 1;
        let length = ((blocks - 1).div_euclid(splits.max(1)) + 1) * block;
        let count = (elements - 1).div_euclid(length) + 1;
        if emitter.block.y.is_some() || !(2..=MAX_PARTS).contains(&count) {
            return Err(Unsupported::new(format!("{count} parts of a row")));
        }
        Ok(Self { rows, elements, length, count, is_masked: elements % block != 0 })
    }

    /// Elements of the block in which all parts of a row are.
    fn block(self) -> i64 {
        u64::try_from(self.count).ok().and_then(u64::checked_next_power_of_two).map_or(self.count, |power| power as i64)
    }
}

impl Emitter<'_> {
    fn split(&mut self, meaning: &Meaning, parts: &Parts) -> Result<Split, Unsupported> {
        let at = self.folding_step()?;
        let of_parts = Expr::Int(parts.count);
        let (left, first) = self.function(PARTIAL, (of_parts.clone(), true), meaning, |emitter| emitter.reduce_parts(at, parts))?;
        let (accumulators, scratch) = left;
        let passes_again = self.steps[at + 1..].iter().any(|step| step.domain.is_some());
        let columns = if passes_again { of_parts } else { Expr::Int(1) };
        let combined = |emitter: &mut Self| emitter.combine_parts(at, parts, &accumulators, passes_again);
        let ((), second) = self.function(COMBINE, (columns, passes_again), meaning, combined)?;
        let lanes = parts.block() * self.block.x.as_ref().map_or(1, |x| x.block);
        let least = u32::try_from(lanes / (32 * PER_THREAD)).unwrap_or(u32::MAX).clamp(1, self.schedule.warps);
        let second = if passes_again { second } else { Stage { warps: least, ..second } };
        Ok(Split { source: self.source(), stages: [first, second], scratch })
    }

    /// The one step whose pass reduces.
    fn folding_step(&self) -> Result<usize, Unsupported> {
        let refuse = |why: &str| Err(Unsupported::new(why));
        let mut folding = self.steps.iter().enumerate().filter(|(_, step)| !step.folds.is_empty());
        let (Some((at, _)), None) = (folding.next(), folding.next()) else { return refuse("several passes that reduce") };
        if self.steps[..at].iter().any(|step| step.domain.is_some()) {
            return refuse("a pass before the one that reduces");
        }
        let mut stores = self.steps.iter().flat_map(|step| &step.stores);
        if stores.any(|s| s.atomic || s.is_scatter() || s.target.level == Level::Row && self.is_read(&s.target.buffer)) {
            return refuse("a store that other programs would see");
        }
        Ok(at)
    }

    /// Writes one function that goes along so many blocks of columns, or not along them at all; its parameters are the arguments
    /// that its text names.
    fn function<T>(
        &mut self,
        entry: &'static str,
        (columns, along): (Expr, bool),
        meaning: &Meaning,
        body: impl FnOnce(&mut Self) -> Result<T, Unsupported>,
    ) -> Result<(T, Stage), Unsupported> {
        (self.names, self.numbers, self.masked) = Default::default();
        self.out.line("");
        self.out.line("@triton.jit");
        let head = self.out.mark();
        self.out.open("");
        let start = self.out.mark();
        self.indices(columns.clone(), along);
        let mark = self.out.mark();
        let done = body(self)?;
        let definitions = self.spelling.definitions(Direction::X, &self.out.since(mark));
        self.out.insert(mark, definitions);
        let text = self.out.since(start);
        self.out.close();
        let is_named = |name: &str| text.iter().any(|line| words(line).any(|word| word == name));
        let targets = meaning.arguments.iter().map(|argument| argument.name.clone());
        let arguments: Vec<String> = targets.chain((0..self.scratch_buffers()).map(buffer)).filter(|name| is_named(name)).collect();
        let constants = self.block.constants().into_iter().filter(|(name, _)| is_named(name));
        let constants: BTreeMap<String, i64> = constants.map(|(name, size)| (name.to_owned(), size)).collect();
        let blocks = self.block.constants().into_iter().filter(|(name, _)| constants.contains_key(*name));
        let parameters = arguments.iter().cloned().chain(blocks.map(|(name, _)| format!("{name}: tl.constexpr")));
        self.out.replace(head, format!("def {entry}({}):", parameters.collect::<Vec<_>>().join(", ")));
        let rows = self.block.x.as_ref().map_or(Expr::Int(1), Dimension::blocks);
        let programs = canonical(&Expr::mul(vec![rows, columns]), &self.graph.ranges);
        Ok((done, Stage { entry, arguments, constants, programs, warps: self.schedule.warps }))
    }

    /// More than any step needs.
    fn scratch_buffers(&self) -> usize {
        3 * self.steps.iter().map(|step| step.folds.len()).sum::<usize>()
    }

    /// From where to where the program's part goes.
    fn part_of_row(&mut self, parts: &Parts) -> Span {
        let Parts { elements, length, .. } = parts;
        self.out.line(format!("start = part * {length}"));
        let end = if elements % length == 0 { format!("start + {length}") } else { format!("tl.minimum(start + {length}, {elements})") };
        self.out.line(format!("end = {end}"));
        Span {
            length: elements.to_string(),
            whole: (!parts.is_masked).then(|| "end".to_owned()),
            has_rest: false,
            condition: None,
            range: Some(("start".into(), "end".into())),
        }
    }

    /// The first launch: what is reduced of every part goes to scratch.
    fn reduce_parts(&mut self, at: usize, parts: &Parts) -> Result<(Vec<Accumulator>, Vec<Scratch>), Unsupported> {
        let steps = self.steps;
        let needed = self.needed(&steps[at]);
        for (number, step) in steps[..at].iter().enumerate() {
            self.at = number;
            self.compute(&Step { values: step.values.iter().copied().filter(|id| needed.contains(id)).collect(), ..Step::default() })?;
        }
        self.at = at;
        self.out.line("# One pass over a part of the row.");
        let span = self.part_of_row(parts);
        let accumulators = self.declare(&steps[at], &span)?;
        self.pass(&steps[at], &accumulators, &span)?;
        let mut scratch = Vec::new();
        let mask = self.mask(Extent { x: true, r: false }, None)?.map_or_else(String::new, |mask| format!(", {mask}"));
        for accumulator in &accumulators {
            for (value, dtype) in self.partials(accumulator, &span)? {
                let name = buffer(scratch.len());
                self.out.line(format!("tl.store({name} + ({}), {value}{mask})", self.place("part", parts)));
                scratch.push(Scratch { name, dtype, elements: Expr::Int(parts.rows * parts.count), zeroed: false });
            }
        }
        Ok((accumulators, scratch))
    }

    /// Everything that the reductions of a step are made of.
    fn needed(&self, step: &Step) -> BTreeSet<Id> {
        let stored = step.stores.iter().flat_map(|store| store.target.args.iter().chain([&store.value]).copied());
        let mut open: Vec<Id> = step.folds.iter().copied().chain(stored).collect();
        let mut found = BTreeSet::new();
        while let Some(id) = open.pop() {
            if found.insert(id) {
                open.extend(&self.graph.value(id).args);
            }
        }
        found
    }

    /// Where a part of the program's rows lies: neighbouring threads have neighbours.
    fn place(&self, part: &str, parts: &Parts) -> String {
        match (parts.rows, self.block.has_rows()) {
            (1, _) => part.to_owned(),
            (rows, true) => format!("{part} * {rows} + xindex"),
            (_, false) => format!("xindex * {} + {part}", parts.count),
        }
    }

    /// Values of a part, and their types.
    fn partials(&mut self, accumulator: &Accumulator, span: &Span) -> Result<Vec<(String, Dtype)>, Unsupported> {
        let (axis, row) = self.block.reduction();
        Ok(match accumulator {
            Accumulator::Plain { id, name } => {
                let ((kind, _), dtype) = (self.fold(*id)?, self.graph.dtype(*id));
                let cast = if kind == Fold::Any { ".to(tl.int1)" } else { "" };
                vec![(self.named("partial", &format!("{}{row}{cast}", reduce(kind, name, axis))), dtype)]
            }
            Accumulator::Exponentials { of, max, sum, .. } => {
                let dtype = self.graph.dtype(*of);
                let is_one = self.schedule.softmax == super::space::Softmax::Block;
                let (peak, total) = self.exponentials(*of, max, sum, is_one);
                vec![(peak, dtype), (total, dtype)]
            }
            Accumulator::Statistics(running) if running.is_conditional() => {
                return Err(Unsupported::new("statistics of some elements of a part"));
            }
            Accumulator::Statistics(running) => {
                let dtype = self.graph.dtype(running.of());
                let (count, weights, total) = if span.whole.is_some() {
                    (format!("{} * RBLOCK", running.blocks), &running.blocks, None)
                } else {
                    let total = self.named("total", &format!("tl.sum({}, {axis}){row}", running.counts));
                    (total.clone(), &running.counts, Some(total))
                };
                let (mean, squares) = self.merged(&running.mean, &running.squares, weights, total.as_deref());
                vec![(mean, dtype), (squares, dtype), (count, dtype)]
            }
        })
    }

    /// The second launch: all parts of a row as one, then what is left.
    fn combine_parts(&mut self, at: usize, parts: &Parts, partial: &[Accumulator], passes_again: bool) -> Result<(), Unsupported> {
        let steps = self.steps;
        let mut span = None;
        for (number, step) in steps.iter().enumerate() {
            self.at = number;
            if number == at {
                self.load_parts(parts, partial)?;
            } else if step.domain.is_some() {
                self.out.line("# One more pass over a part of the row.");
                if span.is_none() {
                    span = Some(self.part_of_row(parts));
                }
                if let Some(span) = &span {
                    self.pass(step, &[], span)?;
                }
            } else {
                self.compute(step)?;
                let is_repeated = passes_again && !step.stores.is_empty();
                if is_repeated {
                    self.out.open("if part == 0:");
                }
                self.write(&step.stores)?;
                if is_repeated {
                    self.out.close();
                }
            }
        }
        Ok(())
    }

    fn load_parts(&mut self, parts: &Parts, partial: &[Accumulator]) -> Result<(), Unsupported> {
        let (lanes, block) = (if self.block.is_square() { "[None, :]" } else { "" }, parts.block());
        self.out.line("# What the parts of the row have left.");
        self.out.line(format!("pindex = tl.arange(0, {block}){lanes}"));
        let mut mask = Vec::new();
        if block != parts.count {
            self.out.line(format!("pmask = pindex < {}", parts.count));
            mask.push("pmask".to_owned());
        }
        mask.extend(self.mask(Extent { x: true, r: false }, None)?);
        let (mask, mut number) = (mask.join(" & "), 0);
        let mut load = |emitter: &mut Self, stem: &'static str, other: &str| {
            let bound = if mask.is_empty() { String::new() } else { format!(", {mask}, other={other}") };
            let text = format!("tl.load({} + ({}){bound})", buffer(number), emitter.place("pindex", parts));
            number += 1;
            emitter.named(stem, &text)
        };
        for accumulator in partial {
            match accumulator {
                Accumulator::Plain { id, .. } => {
                    let ((kind, _), dtype) = (self.fold(*id)?, self.graph.dtype(*id));
                    let mut name = load(self, "partial", &neutral(kind, dtype));
                    if dtype == Dtype::Bool {
                        name = self.named("partial", &format!("{name}.to(tl.int1)"));
                    }
                    self.result(*id, kind, &name);
                }
                Accumulator::Exponentials { of, max_id, sum_id, .. } => {
                    let max = load(self, "max", &lowest(self.graph.dtype(*of)));
                    let sum = load(self, "sum", "0.0");
                    let (peak, total) = self.exponentials(*of, &max, &sum, false);
                    self.result_of_exponentials(*max_id, *sum_id, &peak, &total);
                }
                Accumulator::Statistics(running) => {
                    let [mean, squares, counts] = ["mean", "squares", "counts"].map(|stem| load(self, stem, "0.0"));
                    let (axis, row) = self.block.reduction();
                    let total = self.named("total", &format!("tl.sum({counts}, {axis}){row}"));
                    let (average, sum) = self.merged(&mean, &squares, &counts, Some(&total));
                    self.result_of_statistics(running, &average, &sum, &total);
                }
            }
        }
        Ok(())
    }
}

/// Name of a scratch buffer.
fn buffer(number: usize) -> String {
    format!("parts{number}")
}
