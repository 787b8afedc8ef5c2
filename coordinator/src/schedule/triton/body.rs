//! Values, loads and stores of a block.

use std::collections::{BTreeMap, BTreeSet};

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::{Expr, Function};

use super::super::Unsupported;
use super::super::graph::{Graph, Id, Level, Number, Op};
use super::super::plan::Step;
use super::super::region::Store;
use super::super::storage::Storage;
use super::block::{Block, Extent};
use super::function::{self, Binding, Operand, Text, type_name};
use super::index::{Direction, Spelling};
use super::space::{Erf, Hints, Schedule, Shape};
use super::writer::Writer;

/// Longest expression that is written where its value is used.
const MAX_INLINE: usize = 60;
/// Coefficients of [`Emitter::short_erf`], of the highest power first. The first must be positive: beyond 4 it decides.
const ERF: [f64; 8] = [4.53580142e-05, -0.000445503538, 0.0014894302, 0.000774645363, -0.0282536931, 0.148481622, 0.918416381, 1.62790859];
/// The text of a condition that holds for all of the block.
pub const HOLDS: &str = "True";

/// Writes one kernel's body.
pub struct Emitter<'a> {
    pub out: Writer,
    pub graph: &'a Graph,
    pub storage: &'a Storage<'a>,
    pub schedule: &'a Schedule,
    pub block: Block,
    pub steps: &'a [Step],
    pub spelling: Spelling,
    /// Values at hand where the code stands: a name, or an expression.
    pub names: BTreeMap<Id, Text>,
    /// Names given so far, by what they begin with.
    pub numbers: BTreeMap<&'static str, usize>,
    /// Users of each value within the whole plan.
    pub uses: BTreeMap<Id, usize>,
    /// Along what each value varies.
    pub extents: BTreeMap<Id, Extent>,
    /// Dimensions whose last block may be cut short where the code stands.
    pub masked: Extent,
    /// Number of the step being written.
    pub at: usize,
}

impl Emitter<'_> {
    /// A new name.
    pub fn fresh(&mut self, stem: &'static str) -> String {
        let number = self.numbers.entry(stem).or_insert(0);
        *number += 1;
        format!("{stem}{}", *number - 1)
    }

    /// Computes the values of a step that are not at hand, independent loads first.
    pub fn compute(&mut self, step: &Step) -> Result<(), Unsupported> {
        let (loads, others): (Vec<Id>, Vec<Id>) = step.values.iter().copied().partition(|id| self.is_plain_load(*id));
        for id in loads.into_iter().chain(others) {
            self.value(id, step)?;
        }
        Ok(())
    }

    /// A load whose place and condition are known from the loops alone.
    pub fn is_plain_load(&self, id: Id) -> bool {
        let value = self.graph.value(id);
        matches!(value.op, Op::Load { .. }) && value.args.is_empty()
    }

    /// Computes one value of `step`, if it is not at hand.
    pub fn value(&mut self, id: Id, step: &Step) -> Result<(), Unsupported> {
        if self.names.contains_key(&id) || constant(self.graph, id).is_some() {
            return Ok(());
        }
        let text = self.expression(id)?;
        let op = &self.graph.value(id).op;
        if is_word(&text) {
            self.names.insert(id, Text::atom(text));
            return Ok(());
        }
        let is_cheap =
            matches!(op, Op::Call(_) | Op::Cast | Op::Index(_)) && self.uses.get(&id) == Some(&1) && uses_within(self.graph, step, id);
        let name = if is_cheap && text.len() <= MAX_INLINE {
            let binding = match op {
                Op::Call(function) => function::binding(*function),
                Op::Index(_) if self.graph.dtype(id) == Dtype::Int32 && !self.is_wide() => Binding::Sum,
                _ => Binding::Atom,
            };
            Text { alone: text, binding }
        } else {
            let name = self.fresh("tmp");
            self.out.line(format!("{name} = {text}"));
            Text::atom(name)
        };
        self.names.insert(id, name);
        Ok(())
    }

    fn expression(&mut self, id: Id) -> Result<String, Unsupported> {
        let value = self.graph.value(id).clone();
        Ok(match &value.op {
            Op::Load { buffer, index, guarded } => self.load(id, buffer, index, &value.args, *guarded)?,
            Op::Index(index) => {
                let text = self.index(index, &value.args)?;
                match value.dtype == Dtype::Int32 && !self.is_wide() {
                    true => text,
                    false if is_word(&text) => format!("{text}.to({})", type_name(value.dtype)),
                    false => format!("({text}).to({})", type_name(value.dtype)),
                }
            }
            Op::Wrap { size, wrap_negative, check, guarded } => {
                let (index, guard) = (self.inner(value.args[0])?, value.args.get(1).filter(|_| *guarded).copied());
                self.wrapped(&index, size, (*wrap_negative, *check), guard, self.extents[&id])?
            }
            Op::Cast => function::cast(&self.inner(value.args[0])?, self.graph.dtype(value.args[0]), value.dtype),
            Op::Bitcast => format!("{}.to({}, bitcast=True)", self.inner(value.args[0])?, type_name(value.dtype)),
            Op::Call(Function::Erf) if self.schedule.erf == Erf::Short && value.dtype == Dtype::Float32 => {
                let operand = self.text(value.args[0])?;
                self.short_erf(&operand)
            }
            Op::Call(function) => {
                let operands = self.operands(*function, &value.args)?;
                function::call(*function, &operands, value.dtype, self.schedule.exp)?
            }
            Op::Constant(_) | Op::Reduce { .. } => return Err(Unsupported::new("no expression")),
        })
    }

    /// `1 - 2^(-|x| p(|x|))` with the sign of `x`, which grows to one by itself. See [`Erf::Short`]; coefficients by `emit/runtime/minimax.py`.
    fn short_erf(&mut self, operand: &Text) -> String {
        let x = if is_word(&operand.alone) {
            operand.alone.clone()
        } else {
            let name = self.fresh("tmp");
            self.out.line(format!("{name} = {}", operand.alone));
            name
        };
        let size = self.fresh("tmp");
        self.out.line(format!("{size} = tl_math.abs({x})"));
        let polynomial = ERF.iter().skip(1).fold(ERF[0].to_string(), |sum, term| {
            let sign = if *term < 0.0 { '-' } else { '+' };
            format!("({sum} * {size} {sign} {})", term.abs())
        });
        format!("libdevice.copysign(1.0 - tl_math.exp2(-{size} * {polynomial}), {x})")
    }

    fn operands(&self, function: Function, args: &[Id]) -> Result<Vec<Operand>, Unsupported> {
        let all_literal = function != Function::Where && args.iter().all(|arg| constant(self.graph, *arg).is_some());
        let operand = |(k, id): (usize, &Id)| {
            let dtype = self.graph.dtype(*id);
            let text = match constant(self.graph, *id) {
                Some(number) if all_literal && k == 0 => Text::atom(function::typed(number, dtype)),
                _ => self.text(*id)?,
            };
            Ok(Operand { text, dtype, is_literal: constant(self.graph, *id).is_some() })
        };
        args.iter().enumerate().map(operand).collect()
    }

    /// A value where it is used.
    pub fn text(&self, id: Id) -> Result<Text, Unsupported> {
        if let Some(number) = constant(self.graph, id) {
            return Ok(Text::atom(function::literal(number, self.graph.dtype(id))));
        }
        self.names.get(&id).cloned().ok_or_else(|| Unsupported::new("a value is used before it is computed"))
    }

    /// A value beside an operator.
    pub fn inner(&self, id: Id) -> Result<String, Unsupported> {
        self.text(id).map(|text| text.inner())
    }

    /// An index expression; `$k` in it is `args[k]`.
    fn index(&mut self, index: &Expr, args: &[Id]) -> Result<String, Unsupported> {
        let names: Vec<String> = args.iter().map(|arg| self.inner(*arg)).collect::<Result<_, _>>()?;
        Ok(self.spelling.text(index, &self.graph.ranges, &|k| names.get(k).cloned().unwrap_or_default()))
    }

    fn is_wide(&self) -> bool {
        [&self.block.x, &self.block.r].into_iter().flatten().any(|dimension| dimension.is_wide)
    }

    fn wrapped(
        &mut self,
        index: &str,
        size: &Expr,
        (wrap_negative, check): (bool, bool),
        guard: Option<Id>,
        extent: Extent,
    ) -> Result<String, Unsupported> {
        let size = self.spelling.plain(size);
        let text = if wrap_negative { format!("tl.where({index} < 0, {index} + {size}, {index})") } else { index.to_owned() };
        if !check {
            return Ok(text);
        }
        let name = self.fresh("tmp");
        self.out.line(format!("{name} = {text}"));
        let inside = format!("(0 <= {name}) & ({name} < {size})");
        let condition = match self.mask(extent, guard)? {
            Some(mask) => format!("({inside}) | ~({mask})"),
            None => inside,
        };
        self.out.line(format!("tl.device_assert({condition}, \"index out of bounds: 0 <= {name} < {size}\")"));
        Ok(name)
    }

    fn load(&mut self, id: Id, buffer: &str, index: &Expr, args: &[Id], guarded: bool) -> Result<String, Unsupported> {
        let pointer = self.storage.read_through(buffer).ok_or_else(|| Unsupported::new(format!("{buffer} is behind no pointer")))?;
        let (places, guard) = if guarded { args.split_at(args.len() - 1) } else { (args, [].as_slice()) };
        let guard = guard.first().copied().filter(|guard| !self.holds(*guard));
        let place = self.extent_of(index, places);
        let mut text = self.index(index, places)?;
        let whole = guard.map_or_else(Extent::default, |guard| self.extents[&guard]).or(place);
        if whole != place {
            text = format!("{text} + tl.zeros({}, tl.int32)", self.block.shape());
        }
        let mut load = format!("tl.load({}", element(&pointer.name, &text));
        if let Some(mask) = self.mask(whole, guard)? {
            load.push_str(&format!(", {mask}, other=0"));
        }
        if let Some(policy) = self.policy(id, index, places) {
            load.push_str(&format!(", eviction_policy='{policy}'"));
        }
        load.push(')');
        Ok(match self.storage.dtype(buffer) {
            Dtype::Bfloat16 | Dtype::Float16 => format!("{load}.to(tl.float32)"),
            Dtype::Bool => format!("{load}.to(tl.int1)"),
            _ => load,
        })
    }

    /// What a load says about the cache.
    fn policy(&self, id: Id, index: &Expr, places: &[Id]) -> Option<&'static str> {
        let variables = index.variables();
        let group = if let Level::Inner(domain) = self.graph.level(id) { domain } else { 0 };
        let axes =
            [(Direction::Y, 0), (Direction::X, 0), (Direction::R, group)].map(|(direction, group)| self.spelling.axes(direction, group));
        let streams = places.is_empty() && axes.into_iter().flatten().all(|axis| variables.contains(axis.var.as_str()));
        // What several loads of one pass share is better left to the cache's own mind.
        let shared = self.steps[self.at].values.iter().filter(|other| self.is_same_stream(id, **other)).count() > 1;
        let again = self.schedule.shape == Shape::Loop && self.steps[self.at + 1..].iter().any(|step| step.values.contains(&id));
        match self.schedule.hints {
            Hints::None => None,
            _ if streams && shared => None,
            Hints::Stream if streams => Some("evict_first"),
            Hints::Reuse if streams && !again => Some("evict_first"),
            _ => Some("evict_last"),
        }
    }

    /// True for two loads of one buffer.
    fn is_same_stream(&self, a: Id, b: Id) -> bool {
        match (&self.graph.value(a).op, &self.graph.value(b).op) {
            (Op::Load { buffer: a, .. }, Op::Load { buffer: b, .. }) => a == b,
            _ => false,
        }
    }

    /// The condition under which an access of that extent happens.
    pub fn mask(&self, extent: Extent, guard: Option<Id>) -> Result<Option<String>, Unsupported> {
        let cut = self.masked.and(extent);
        let bounds = [(cut.r, "rmask"), (cut.x, "xmask")].into_iter().filter(|(is_cut, _)| *is_cut).map(|(_, name)| name.to_owned());
        let mut conditions: Vec<String> = bounds.collect();
        if let Some(guard) = guard {
            let guard = self.text(guard)?;
            if !conditions.contains(&guard.alone) {
                conditions.push(if conditions.is_empty() { guard.alone } else { guard.inner() });
            }
        }
        Ok((!conditions.is_empty()).then(|| conditions.join(" & ")))
    }

    /// True for a condition that holds for all of the block.
    fn holds(&self, condition: Id) -> bool {
        self.names.get(&condition).is_some_and(|text| text.alone == HOLDS)
    }

    /// Along what an index varies.
    fn extent_of(&self, index: &Expr, args: &[Id]) -> Extent {
        let variables = index.variables();
        let own = variables.into_iter().filter_map(|var| self.spelling.direction(var)).map(Extent::along);
        own.chain(args.iter().map(|arg| self.extents[arg])).fold(Extent::default(), Extent::or).and(self.block.extent())
    }

    /// Finds out along what each value varies; what a reduction takes is gone from its result.
    pub fn find_extents(&mut self) {
        for id in self.graph.ids() {
            let value = self.graph.value(id);
            let extent = match &value.op {
                Op::Index(index) | Op::Load { index, .. } => self.extent_of(index, &value.args),
                Op::Reduce { .. } => Extent { r: false, ..self.block.extent() },
                _ => value.args.iter().map(|arg| self.extents[arg]).fold(Extent::default(), Extent::or),
            };
            self.extents.insert(id, extent);
        }
    }

    /// Writes `stores`.
    pub fn write(&mut self, stores: &[Store]) -> Result<(), Unsupported> {
        for store in stores {
            let target = &store.target;
            let argument = self.storage.written_through(&target.buffer).ok_or_else(|| Unsupported::new("a buffer inside the kernel"))?;
            let value = self.text(store.value)?.alone;
            let mut extent = self.extent_of(&target.index, &target.args);
            let mut text = self.index(&target.index, &target.args)?;
            let all = self.block.extent().and(Extent { x: true, r: target.level != Level::Row });
            if store.atomic && extent != all || self.extents[&store.value].or(extent) != extent {
                text = format!("{text} + tl.zeros({}, tl.int32)", self.block.shape());
                extent = all;
            }
            let mask = self.mask(extent, None)?.map_or_else(String::new, |mask| format!(", {mask}"));
            if target.level == Level::Row && self.block.r.is_some() && self.is_read(&target.buffer) {
                self.out.line("tl.debug_barrier()");
            }
            let place = element(&argument.name, &text);
            self.out.line(match store.atomic {
                true => format!("tl.atomic_add({place}, {value}{mask}, sem='relaxed')"),
                false if self.schedule.streaming_stores => format!("tl.store({place}, {value}{mask}, cache_modifier='.cs')"),
                false => format!("tl.store({place}, {value}{mask})"),
            });
        }
        Ok(())
    }

    /// True where the kernel reads the memory of a buffer.
    pub fn is_read(&self, buffer: &str) -> bool {
        let memory = self.storage.of(buffer);
        let is_load = |id: &Id| matches!(&self.graph.value(*id).op, Op::Load { buffer, .. } if self.storage.of(buffer) == memory);
        self.steps.iter().flat_map(|step| &step.values).any(is_load)
    }
}

/// The address of an element.
fn element(pointer: &str, index: &str) -> String {
    if is_word(index) { format!("{pointer} + {index}") } else { format!("{pointer} + ({index})") }
}

/// The number that a value is, a conversion of a constant included.
pub fn constant(graph: &Graph, id: Id) -> Option<Number> {
    let value = graph.value(id);
    match value.op {
        Op::Constant(number) => Some(number),
        Op::Cast => {
            let number = match graph.value(value.args[0]).op {
                Op::Constant(Number::Int(value)) => value as f64,
                Op::Constant(Number::Float(bits)) => f64::from_bits(bits),
                _ => return None,
            };
            Some(match value.dtype {
                dtype if dtype.is_float() => Number::Float(number.to_bits()),
                Dtype::Bool => Number::Int(i64::from(number != 0.0)),
                _ => Number::Int(number as i64),
            })
        }
        _ => None,
    }
}

/// How often each value is used in all steps; with `once`, a value that several steps need is computed by the first.
pub fn uses(graph: &Graph, steps: &[Step], once: bool) -> BTreeMap<Id, usize> {
    let (mut uses, mut done) = (BTreeMap::new(), BTreeSet::new());
    for step in steps {
        let computed = step.values.iter().filter(|id| done.insert(**id) || !once).flat_map(|id| graph.value(*id).args.iter().copied());
        computed.chain(taken(graph, step)).for_each(|id| *uses.entry(id).or_insert(0) += 1);
    }
    uses
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn uses_within(graph: &Graph, step: &Step, id: Id) -> bool {
    step.values.iter().any(|user| graph.value(*user).args.contains(&id)) || taken(graph, step).any(|taken| taken == id)
}

/// What the reductions and stores of a step take.
fn taken<'a>(graph: &'a Graph, step: &'a Step) -> impl Iterator<Item = Id> + 'a {
    let by_folds = step.folds.iter().flat_map(|id| graph.value(*id).args.iter().copied());
    by_folds.chain(step.stores.iter().flat_map(|store| store.target.args.iter().chain([&store.value]).copied()))
}
