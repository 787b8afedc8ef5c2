//! The steps of a row: at once, or each in a loop over blocks of the row.

use kernelopt_shared::dtype::Dtype;

use super::super::Unsupported;
use super::super::graph::{Fold, Id, Op};
use super::super::plan::Step;
use super::body::{Emitter, HOLDS};
use super::function::{self, Text, extreme, type_name};
use super::index::Direction;
use super::running::{Running, Span};
use super::space::{self, Softmax};

/// A reduction under way in a loop.
pub enum Accumulator {
    /// One value per lane.
    Plain {
        /// The reduction.
        id: Id,
        /// Its name.
        name: String,
    },
    /// Maximum and sum of exponentials.
    Exponentials {
        /// What is reduced.
        of: Id,
        /// The maximum's own reduction, where somebody asks for it.
        max_id: Option<Id>,
        /// The sum's reduction.
        sum_id: Id,
        /// Name of the maximum so far.
        max: String,
        /// Name of the sums so far.
        sum: String,
    },
    /// Mean and squared deviations.
    Statistics(Running),
}

impl Emitter<'_> {
    /// All steps in one block: every value is computed once and stays.
    pub fn at_once(&mut self) -> Result<(), Unsupported> {
        let steps = self.steps;
        if self.schedule.early_loads {
            for step in steps {
                let loads: Vec<Id> = step.values.iter().copied().filter(|id| self.is_plain_load(*id)).collect();
                loads.into_iter().try_for_each(|id| self.value(id, step))?;
            }
        }
        for (at, step) in steps.iter().enumerate() {
            self.at = at;
            self.compute(step)?;
            for fold in &step.folds {
                let (kind, arg) = self.fold(*fold)?;
                if matches!(kind, Fold::SumExp | Fold::Running(_)) {
                    return Err(Unsupported::new("a reduction of its own kind outside of a loop"));
                }
                let value = self.bounded(kind, arg, true)?;
                self.result(*fold, kind, &value.alone);
            }
            self.write(&step.stores)?;
        }
        Ok(())
    }

    /// Each step that passes over the row in a loop of its own.
    pub fn in_loops(&mut self) -> Result<(), Unsupported> {
        let steps = self.steps;
        let passes = steps.iter().filter(|step| step.domain.is_some()).count();
        let mut pass = 0;
        for (at, step) in steps.iter().enumerate() {
            self.at = at;
            if step.domain.is_none() {
                self.compute(step)?;
                self.write(&step.stores)?;
                continue;
            }
            pass += 1;
            self.out.line(if passes > 1 { format!("# Pass {pass} of {passes} over the row.") } else { "# One pass over the row.".into() });
            let span = self.span(step)?;
            let accumulators = self.declare(step, &span)?;
            self.pass(step, &accumulators, &span)?;
            accumulators.iter().try_for_each(|accumulator| self.finish(accumulator, &span))?;
        }
        Ok(())
    }

    pub fn pass(&mut self, step: &Step, accumulators: &[Accumulator], span: &Span) -> Result<(), Unsupported> {
        let (end, is_masked) = (span.whole.as_ref().unwrap_or(&span.length), span.whole.is_none());
        let (start, end) = span.range.as_ref().map_or(("0", end.as_str()), |(start, end)| (start.as_str(), end.as_str()));
        if end != "0" {
            let mut options = String::new();
            if self.schedule.stages > 1 {
                options.push_str(&format!(", num_stages={}", self.schedule.stages));
            }
            if self.schedule.unroll > 1 {
                options.push_str(&format!(", loop_unroll_factor={}", self.schedule.unroll));
            }
            self.out.open(format!("for offset in tl.range({start}, {end}, RBLOCK{options}):"));
            self.part(step, accumulators, span, "offset + rbase", is_masked)?;
            self.out.close();
        }
        if span.has_rest {
            self.out.line("# The rest of the row.");
            let start = if end == "0" { "rbase".to_owned() } else { format!("{end} + rbase") };
            self.part(step, accumulators, span, &start, true)?;
        }
        Ok(())
    }

    /// One block of the row.
    fn part(&mut self, step: &Step, accumulators: &[Accumulator], span: &Span, index: &str, is_masked: bool) -> Result<(), Unsupported> {
        let (outer, masked) = (self.names.clone(), self.masked);
        self.out.line(format!("rindex = {index}"));
        if is_masked {
            self.out.line(format!("rmask = rindex < {}", span.length));
        }
        self.masked.r = is_masked;
        if let Some(condition) = span.condition {
            self.names.insert(condition, Text::atom(if is_masked { "rmask" } else { HOLDS }.to_owned()));
        }
        let mark = self.out.mark();
        self.compute(step)?;
        accumulators.iter().try_for_each(|accumulator| self.accumulate(accumulator, span))?;
        self.write(&step.stores)?;
        let definitions = self.spelling.definitions(Direction::R, &self.out.since(mark));
        self.out.insert(mark, definitions);
        (self.names, self.masked) = (outer, masked);
        Ok(())
    }

    pub fn declare(&mut self, step: &Step, span: &Span) -> Result<Vec<Accumulator>, Unsupported> {
        let mut accumulators = Vec::new();
        let folds: Vec<(Id, Fold, Id)> =
            step.folds.iter().map(|id| self.fold(*id).map(|(kind, arg)| (*id, kind, arg))).collect::<Result<_, _>>()?;
        let sums: Vec<Id> = folds.iter().filter(|(_, kind, _)| *kind == Fold::SumExp).map(|(.., arg)| *arg).collect();
        for (id, kind, arg) in &folds {
            let dtype = self.graph.dtype(*id);
            match kind {
                Fold::Max if sums.contains(arg) => {}
                Fold::Running(moment) => {
                    let args = &self.graph.value(*id).args;
                    let same = accumulators.iter_mut().find_map(|accumulator| match accumulator {
                        Accumulator::Statistics(running) if running.is_of(args) => Some(running),
                        _ => None,
                    });
                    match same {
                        Some(running) => running.add(*moment, *id),
                        None => {
                            let mut running = self.declare_running(*arg, args.get(1).copied(), span);
                            running.add(*moment, *id);
                            accumulators.push(Accumulator::Statistics(running));
                        }
                    }
                }
                Fold::SumExp => {
                    let max_id = folds.iter().find(|(_, kind, of)| *kind == Fold::Max && of == arg).map(|(id, ..)| *id);
                    let (max, sum) = (self.fresh("max"), self.fresh("sum"));
                    self.out.line(format!("{max} = tl.full({}, {}, {})", self.running_shape(), lowest(dtype), type_name(dtype)));
                    self.out.line(format!("{sum} = tl.full({}, 0.0, {})", self.block.shape(), type_name(dtype)));
                    accumulators.push(Accumulator::Exponentials { of: *arg, max_id, sum_id: *id, max, sum });
                }
                _ => {
                    let name = self.fresh("acc");
                    let start = function::neutral(*kind, dtype);
                    self.out.line(format!("{name} = tl.full({}, {start}, {})", self.block.shape(), type_name(dtype)));
                    accumulators.push(Accumulator::Plain { id: *id, name });
                }
            }
        }
        Ok(accumulators)
    }

    /// Shape of the maximum so far.
    fn running_shape(&self) -> &'static str {
        match (self.schedule.softmax, self.block.is_square()) {
            (Softmax::Block, true) => "[XBLOCK, 1]",
            (Softmax::Block, false) => "[]",
            _ => self.block.shape(),
        }
    }

    fn accumulate(&mut self, accumulator: &Accumulator, span: &Span) -> Result<(), Unsupported> {
        match accumulator {
            Accumulator::Plain { id, name } => {
                let (kind, arg) = self.fold(*id)?;
                let value = self.bounded(kind, arg, false)?;
                self.out.line(match kind {
                    Fold::Sum => format!("{name} += {}", value.alone),
                    _ => format!("{name} = {}", function::fold(kind, self.graph.dtype(*id), name, &value.inner())),
                });
            }
            Accumulator::Exponentials { of, max, sum, .. } => {
                let bounded = self.bounded(Fold::Max, *of, false)?;
                let x = if self.masked.r { self.named("tmp", &bounded.alone) } else { bounded.inner() };
                let dtype = self.graph.dtype(*of);
                let exp = self.exp(dtype);
                if self.schedule.softmax == Softmax::Block {
                    let (axis, row) = self.block.reduction();
                    let next = self.fresh("next");
                    let block = format!("{}{row}", function::reduce(Fold::Max, &x, axis));
                    self.out.line(format!("{next} = {}", extreme("maximum", dtype, max, &block)));
                    self.out.line(format!("{sum} = {sum} * {exp}({max} - {next}) + {exp}({x} - {next})"));
                    self.out.line(format!("{max} = {next}"));
                } else {
                    // One exponential serves both cases: the smaller of the two shrinks by it.
                    let (delta, scale) = (self.fresh("delta"), self.fresh("scale"));
                    self.out.line(format!("{delta} = {x} - {max}"));
                    self.out.line(format!("{scale} = {exp}(-tl_math.abs({delta}))"));
                    self.out.line(format!("{sum} = tl.where({delta} > 0.0, {sum} * {scale} + 1.0, {sum} + {scale})"));
                    self.out.line(format!("{max} = {}", extreme("maximum", dtype, max, &x)));
                }
            }
            Accumulator::Statistics(running) => self.accumulate_running(running, span)?,
        }
        Ok(())
    }

    fn finish(&mut self, accumulator: &Accumulator, span: &Span) -> Result<(), Unsupported> {
        match accumulator {
            Accumulator::Plain { id, name } => {
                let (kind, _) = self.fold(*id)?;
                self.result(*id, kind, name);
            }
            Accumulator::Exponentials { of, max_id, sum_id, max, sum } => {
                let (peak, total) = self.exponentials(*of, max, sum, self.schedule.softmax == Softmax::Block);
                self.result_of_exponentials(*max_id, *sum_id, &peak, &total);
            }
            Accumulator::Statistics(running) => self.finish_running(running, span),
        }
        Ok(())
    }

    /// Maxima and sums of lanes as those of the row; `is_one` where there is one maximum for all lanes.
    pub fn exponentials(&mut self, of: Id, max: &str, sum: &str, is_one: bool) -> (String, String) {
        let ((axis, row), exp) = (self.block.reduction(), self.exp(self.graph.dtype(of)));
        let total = self.fresh("sum");
        if is_one {
            self.out.line(format!("{total} = tl.sum({sum}, {axis}){row}"));
            return (max.to_owned(), total);
        }
        let peak = self.named("max", &format!("{}{row}", function::reduce(Fold::Max, max, axis)));
        self.out.line(format!("{total} = tl.sum({sum} * {exp}({max} - {peak}), {axis}){row}"));
        (peak, total)
    }

    /// Maximum and sum of exponentials of a row. Where nothing was added, it is -inf throughout.
    pub fn result_of_exponentials(&mut self, max_id: Option<Id>, sum_id: Id, peak: &str, total: &str) {
        let (is_empty, row_max, row_sum) = (self.fresh("empty"), self.fresh("max"), self.fresh("sum"));
        self.out.line(format!("{is_empty} = {total} == 0.0"));
        if let Some(max_id) = max_id {
            self.out.line(format!("{row_max} = tl.where({is_empty}, float('-inf'), {peak})"));
            self.names.insert(max_id, Text::atom(row_max));
        }
        self.out.line(format!("{row_sum} = tl.where({is_empty}, float('nan'), {total})"));
        self.names.insert(sum_id, Text::atom(row_sum));
    }

    /// The reduction of a block as a value of the row.
    pub fn result(&mut self, id: Id, kind: Fold, value: &str) {
        let (axis, row) = self.block.reduction();
        let name = self.fresh(match kind {
            Fold::Sum | Fold::SumExp | Fold::Running(_) => "sum",
            Fold::Prod => "prod",
            Fold::Max => "max",
            Fold::Min => "min",
            Fold::Any => "any",
        });
        let cast = if kind == Fold::Any { ".to(tl.int1)" } else { "" };
        self.out.line(format!("{name} = {}{row}{cast}", function::reduce(kind, value, axis)));
        self.names.insert(id, Text::atom(name));
    }

    /// What a reduction takes: outside of the row, the value that changes nothing; where it must be a `whole` block, spread over it.
    fn bounded(&mut self, kind: Fold, arg: Id, whole: bool) -> Result<Text, Unsupported> {
        let value = self.text(arg)?;
        let dtype = self.graph.dtype(arg);
        let mask = if self.masked.r { Some("rmask") } else { None };
        Ok(match mask {
            Some(mask) => Text::atom(format!("tl.where({mask}, {}, {})", value.alone, function::neutral(kind, dtype))),
            None if whole && !self.extents.get(&arg).is_some_and(|extent| extent.r) => {
                let typed = super::body::constant(self.graph, arg).map_or(value.alone, |number| function::typed(number, dtype));
                Text::atom(format!("tl.broadcast_to({typed}, {})", self.block.shape()))
            }
            None => value,
        })
    }

    /// A name for an expression.
    pub fn named(&mut self, stem: &'static str, text: &str) -> String {
        let name = self.fresh(stem);
        self.out.line(format!("{name} = {text}"));
        name
    }

    fn exp(&self, dtype: Dtype) -> &'static str {
        if self.schedule.exp == space::Exp::Base2 && dtype == Dtype::Float32 { "tl_math.exp" } else { "libdevice.exp" }
    }

    pub fn fold(&self, id: Id) -> Result<(Fold, Id), Unsupported> {
        match (&self.graph.value(id).op, self.graph.value(id).args.as_slice()) {
            (Op::Reduce { fold, .. }, [arg, ..]) => Ok((*fold, *arg)),
            _ => Err(Unsupported::new("no reduction")),
        }
    }
}

/// The least finite number: what a maximum starts from, so that `-inf` minus it is `-inf` and not NaN.
pub fn lowest(dtype: Dtype) -> String {
    if dtype == Dtype::Float64 { format!("{:?}", f64::MIN) } else { format!("{:?}", f64::from(f32::MIN)) }
}
