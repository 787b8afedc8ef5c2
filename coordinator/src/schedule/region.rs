//! A region: meaning nodes that run row by row together, as values and stores.

use std::collections::BTreeMap;

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::{Axis, Expr, Function, Node, Operation, ReductionKind, Scalar, Statement, StoreMode, ValueId};

use super::Unsupported;
use super::graph::{Graph, Id, Level, Number, Op};
use super::index::canonical;
use super::loops::{Loops, Substitution, cover, extents, substitute};
use super::reduction;
use super::simplify;
use super::space::Statistics;
use super::storage::Storage;

/// Nodes that share their rows.
#[derive(Clone, Debug)]
pub struct Region {
    /// Everything that is computed.
    pub graph: Graph,
    /// Everything that may have to be written, in program order.
    pub stores: Vec<Store>,
    /// Buffers that are read from memory.
    pub reads: Vec<Access>,
}

/// One store, in the region's variables.
#[derive(Clone, Debug)]
pub struct Store {
    /// Where to.
    pub target: Access,
    /// What.
    pub value: Id,
    /// Adds to what is there, several iterations to one element.
    pub atomic: bool,
}

impl Store {
    /// True for a store to a computed place that does not add: of two to one place the later must win.
    pub fn is_scatter(&self) -> bool {
        !self.target.args.is_empty() && !self.atomic
    }
}

/// An element of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The buffer.
    pub buffer: String,
    /// The element; `$k` in it is `args[k]`.
    pub index: Expr,
    /// Values in the index.
    pub args: Vec<Id>,
    /// Whether the element belongs to a row or to an element of a domain.
    pub level: Level,
}

/// How nodes become a region.
#[derive(Clone)]
pub struct Builder<'a> {
    storage: &'a Storage<'a>,
    statistics: Statistics,
    region: Region,
    produced: BTreeMap<String, usize>,
    /// Squared deviations by their mean, where that says nothing of infinite values ([`reduction::known`]).
    means: BTreeMap<Id, Id>,
}

/// The values of one node while it is being added.
struct Frame {
    substitution: Substitution,
    domain: Option<usize>,
    values: BTreeMap<ValueId, Vec<Id>>,
    indirect: BTreeMap<String, Id>,
    guard: Option<Id>,
}

impl<'a> Builder<'a> {
    /// An empty region over the loops of `graph`.
    pub fn new(storage: &'a Storage<'a>, graph: Graph, statistics: Statistics) -> Self {
        let region = Region { graph, stores: Vec::new(), reads: Vec::new() };
        Self { storage, statistics, region, produced: BTreeMap::new(), means: BTreeMap::new() }
    }

    /// The region so far.
    pub fn finish(mut self) -> Region {
        // Only what is stored: a norm multiplies by what is no number in such rows anyway, and would have to subtract twice.
        for store in &mut self.region.stores {
            if let Some(m2) = self.means.get(&store.value) {
                store.value = reduction::known(&mut self.region.graph, store.value, *m2);
            }
        }
        self.region
    }

    /// Adds a node, in the first arrangement of its loops in which everything that it reads from the region is at hand.
    ///
    /// # Errors
    /// Where no arrangement fits: the node needs a region of its own.
    pub fn add(&mut self, node: &Node, loops: &Loops) -> Result<(), Unsupported> {
        let mut reason = Unsupported::new("loops do not fit the rows");
        for arrangement in arrangements(&self.region.graph, loops) {
            let mut attempt = self.clone();
            match attempt.add_arranged(node, loops, &arrangement) {
                Ok(()) => {
                    *self = attempt;
                    return Ok(());
                }
                Err(why) => reason = why,
            }
        }
        Err(reason)
    }

    fn add_arranged(&mut self, node: &Node, loops: &Loops, arrangement: &Arrangement) -> Result<(), Unsupported> {
        let graph = &mut self.region.graph;
        let domain = match &arrangement.inner {
            Inner::None => None,
            Inner::Existing(domain) => Some(*domain),
            Inner::New(axes) => Some(graph.add_domain(&extents(axes))),
        };
        let mut targets = arrangement.rows.clone();
        if let (Some(domain), Inner::Existing(_) | Inner::New(_)) = (domain, &arrangement.inner) {
            targets.extend(graph.domains[domain].iter().cloned());
        }
        let map = cover(&arrangement.axes, &targets).ok_or_else(|| Unsupported::new("loops do not fit the rows"))?;
        let substitution = loops.original.iter().map(|(var, expr)| (var.clone(), substitute(expr, &map))).collect();
        let mut frame = Frame { substitution, domain, values: BTreeMap::new(), indirect: BTreeMap::new(), guard: None };
        self.statements(&node.body, &mut frame)?;
        self.check_hazards()
    }

    fn statements(&mut self, body: &[Statement], frame: &mut Frame) -> Result<(), Unsupported> {
        for statement in body {
            let values = self.statement(&statement.operation, frame)?;
            frame.values.insert(statement.id, values);
        }
        Ok(())
    }

    fn statement(&mut self, operation: &Operation, frame: &mut Frame) -> Result<Vec<Id>, Unsupported> {
        let graph = &mut self.region.graph;
        let one = |id| Ok(vec![id]);
        match operation {
            Operation::Load { buffer, index } => self.load(buffer, index, frame).map(|id| vec![id]),
            Operation::Store { buffer, index, value, mode } => {
                let value = frame.value(*value)?;
                self.store(buffer, index, value, *mode, frame).map(|()| Vec::new())
            }
            Operation::Constant { value, dtype } => one(constant(graph, *value, *dtype)),
            Operation::Index { index, dtype } => {
                let (index, args) = frame.index(graph, index);
                let value = graph.add(Op::Index(index), args, Dtype::Int64);
                one(simplify::cast(graph, value, *dtype))
            }
            Operation::Cast { value, dtype } => one(simplify::cast(graph, frame.value(*value)?, *dtype)),
            Operation::Bitcast { value, from, dtype } => bitcast(graph, frame.value(*value)?, *from, *dtype).map(|id| vec![id]),
            Operation::Pointwise { function, args } => {
                let args: Vec<Id> = args.iter().map(|arg| frame.value(*arg)).collect::<Result<_, _>>()?;
                one(simplify::call(graph, *function, args))
            }
            Operation::Reduction { kind, dtype, values } => {
                let domain = frame.domain.ok_or_else(|| Unsupported::new("reduction without loops"))?;
                let values: Vec<Id> = values.iter().map(|value| frame.value(*value)).collect::<Result<_, _>>()?;
                // The type of a position says nothing of what is compared.
                let is_position = matches!(kind, ReductionKind::Argmax | ReductionKind::Argmin);
                let values: Vec<Id> = values.into_iter().map(|value| if is_position { value } else { graph.cast(value, *dtype) }).collect();
                let results = reduction::expand(graph, *kind, domain, &values, self.statistics)?;
                if let ([mean, m2, _], true) = (results.as_slice(), self.statistics != Statistics::Running) {
                    self.means.insert(*mean, *m2);
                }
                Ok(results)
            }
            Operation::Item { value, position } => {
                let values = frame.values.get(value);
                values.and_then(|v| v.get(*position)).map(|id| vec![*id]).ok_or_else(|| Unsupported::new("no such item"))
            }
            Operation::Masked { mask, other, body, result } => self.masked(frame, *mask, *other, body, *result).map(|id| vec![id]),
            Operation::Indirect { value, variable, size, check, wrap_negative } => {
                let value = graph.cast(frame.value(*value)?, Dtype::Int64);
                let op = Op::Wrap { size: size.clone(), wrap_negative: *wrap_negative, check: *check, guarded: frame.guard.is_some() };
                let args = [value].into_iter().chain(frame.guard).collect();
                let wrapped = if *check || *wrap_negative { graph.add(op, args, Dtype::Int64) } else { value };
                frame.indirect.insert(variable.clone(), wrapped);
                one(wrapped)
            }
        }
    }

    fn masked(&mut self, frame: &mut Frame, mask: ValueId, other: Scalar, body: &[Statement], result: ValueId) -> Result<Id, Unsupported> {
        let mask = frame.value(mask)?;
        let outer = frame.guard;
        let guard = match outer {
            Some(outer) => simplify::call(&mut self.region.graph, Function::LogicalAnd, vec![outer, mask]),
            None => mask,
        };
        frame.guard = (simplify::truth(&self.region.graph, guard) != Some(true)).then_some(guard);
        self.statements(body, frame)?;
        frame.guard = outer;
        let value = frame.value(result)?;
        let graph = &mut self.region.graph;
        let dtype = graph.dtype(value);
        let other = constant(graph, other, dtype);
        Ok(simplify::call(graph, Function::Where, vec![mask, value, other]))
    }

    fn load(&mut self, buffer: &str, index: &Expr, frame: &Frame) -> Result<Id, Unsupported> {
        let graph = &mut self.region.graph;
        let (mut index, args) = frame.index(graph, index);
        if let Some(guard) = frame.guard {
            index = within(graph, &index, guard);
        }
        if let Some(store) = self.produced.get(buffer).map(|at| &self.region.stores[*at]) {
            let same = store.target.index == index && store.target.args.is_empty() && args.is_empty() && !store.atomic;
            return if same {
                Ok(store.value)
            } else {
                Err(Unsupported::new(format!("{buffer} is read at another element than the row's")))
            };
        }
        let level = args.iter().map(|arg| graph.level(*arg)).max().unwrap_or(Level::Row).max(graph.level_of(&index));
        let access = Access { buffer: buffer.to_owned(), index: index.clone(), args: args.clone(), level };
        if !self.region.reads.contains(&access) {
            self.region.reads.push(access);
        }
        let op = Op::Load { buffer: buffer.to_owned(), index, guarded: frame.guard.is_some() };
        let args = args.into_iter().chain(frame.guard).collect();
        let dtype = super::graph::compute_type(self.storage.dtype(buffer));
        Ok(graph.add(op, args, dtype))
    }

    fn store(&mut self, buffer: &str, index: &Expr, value: Id, mode: Option<StoreMode>, frame: &Frame) -> Result<(), Unsupported> {
        if frame.guard.is_some() {
            return Err(Unsupported::new("store under a mask"));
        }
        let graph = &mut self.region.graph;
        let value = graph.cast(value, self.storage.dtype(buffer));
        let (index, args) = frame.index(graph, index);
        let level = args.iter().chain([&value]).map(|arg| graph.level(*arg)).max().unwrap_or(Level::Row).max(graph.level_of(&index));
        let target = Access { buffer: buffer.to_owned(), index, args, level };
        self.produced.insert(buffer.to_owned(), self.region.stores.len());
        self.region.stores.push(Store { target, value, atomic: mode == Some(StoreMode::AtomicAdd) });
        Ok(())
    }

    /// Memory that is both read and written, or written twice, must be so at the same element by the same row.
    fn check_hazards(&self) -> Result<(), Unsupported> {
        for (at, store) in self.region.stores.iter().enumerate() {
            let memory = self.storage.of(&store.target.buffer);
            for other in self.region.stores[..at].iter().filter(|other| self.storage.of(&other.target.buffer) == memory) {
                let parts = self.storage.is_part(&store.target.buffer) && self.storage.is_part(&other.target.buffer);
                let same =
                    other.target.index == store.target.index && other.target.level == store.target.level && !store.atomic && !other.atomic;
                if !(parts || same) {
                    return Err(Unsupported::new(format!("{} and {} are written to one memory", store.target.buffer, other.target.buffer)));
                }
            }
            for read in self.region.reads.iter().filter(|read| self.storage.of(&read.buffer) == memory) {
                let same = read.index == store.target.index
                    && read.level == store.target.level
                    && read.args.is_empty()
                    && store.target.args.is_empty();
                let whole = self.storage.is_part(&read.buffer) || self.storage.is_part(&store.target.buffer);
                if !same || whole {
                    return Err(Unsupported::new(format!("{} is written where {} is read", store.target.buffer, read.buffer)));
                }
            }
        }
        Ok(())
    }
}

impl Frame {
    fn value(&self, id: ValueId) -> Result<Id, Unsupported> {
        let found = self.values.get(&id).and_then(|values| values.first());
        found.copied().ok_or_else(|| Unsupported::new(format!("value {id} is not made before it is used")))
    }

    /// `index` in the region's variables, canonical, and the values that it holds.
    fn index(&self, graph: &Graph, index: &Expr) -> (Expr, Vec<Id>) {
        let mut args = Vec::new();
        let expr = index.map_vars(&mut |name| {
            let Some(id) = self.indirect.get(name) else {
                return self.substitution.get(name).cloned().unwrap_or_else(|| Expr::var(name));
            };
            let at = args.iter().position(|arg| arg == id).unwrap_or_else(|| {
                args.push(*id);
                args.len() - 1
            });
            Expr::var(format!("${at}"))
        });
        (canonical(&expr, &graph.ranges), args)
    }
}

/// `index` as it is where `guard` holds: `e % n` is `e` where `0 <= e < n`.
fn within(graph: &Graph, index: &Expr, guard: Id) -> Expr {
    let holds = |expr: &Expr, bound: i64| {
        let mut open = vec![guard];
        while let Some(id) = open.pop() {
            let value = graph.value(id);
            match (&value.op, value.args.as_slice()) {
                (Op::Call(Function::LogicalAnd), args) => open.extend(args),
                (Op::Call(Function::Lt), [left, right]) => {
                    let (left, right) = (graph.value(*left), graph.value(*right));
                    let is_index = left.args.is_empty() && left.op == Op::Index(expr.clone());
                    if is_index && matches!(right.op, Op::Constant(Number::Int(value)) if value <= bound) {
                        return true;
                    }
                }
                _ => {}
            }
        }
        false
    };
    let part = |part: &Expr| match part {
        Expr::Mod(a, n) if matches!(**n, Expr::Int(n) if holds(a, n)) && graph.ranges.is_natural(a) => (**a).clone(),
        other => other.clone(),
    };
    match index {
        Expr::Add(terms) => canonical(&Expr::add(terms.iter().map(part).collect()), &graph.ranges),
        single => part(single),
    }
}

fn constant(graph: &mut Graph, value: Scalar, dtype: Dtype) -> Id {
    let dtype = super::graph::compute_type(dtype);
    let number = match value {
        Scalar::Int(value) if !dtype.is_float() => Number::Int(value),
        Scalar::Float(value) if !dtype.is_float() => Number::Int(value as i64),
        other => Number::Float(other.as_f64().to_bits()),
    };
    graph.add(Op::Constant(number), Vec::new(), dtype)
}

fn bitcast(graph: &mut Graph, value: Id, from: Dtype, dtype: Dtype) -> Result<Id, Unsupported> {
    let exact = graph.dtype(value) == from && super::graph::compute_type(dtype) == dtype;
    if exact { Ok(graph.add(Op::Bitcast, vec![value], dtype)) } else { Err(Unsupported::new("bits of a narrow float")) }
}

/// A way to lay a node's loops over the rows.
struct Arrangement {
    rows: Vec<Axis>,
    axes: Vec<Axis>,
    inner: Inner,
}

enum Inner {
    None,
    Existing(usize),
    New(Vec<Axis>),
}

/// Most loops of a node that are tried in other orders.
const MAX_REORDERED: usize = 5;

/// Ways in which the loops of a node may lie over rows and domains, most natural first.
fn arrangements(graph: &Graph, loops: &Loops) -> Vec<Arrangement> {
    let rows = || graph.rows.clone();
    let in_order = || loops.iter.iter().chain(&loops.reduce).cloned().collect::<Vec<_>>();
    let domains = 0..graph.domains.len();
    let mut ways = Vec::new();
    if loops.reduce.is_empty() {
        ways.push(Arrangement { rows: rows(), axes: in_order(), inner: Inner::None });
    }
    ways.extend(domains.clone().map(|domain| Arrangement { rows: rows(), axes: in_order(), inner: Inner::Existing(domain) }));
    if !loops.reduce.is_empty() {
        ways.push(Arrangement { rows: rows(), axes: in_order(), inner: Inner::New(loops.reduce.clone()) });
        return ways;
    }
    for split in 1..=loops.iter.len() {
        if cover(&loops.iter[..split - 1], &graph.rows).is_some() {
            ways.push(Arrangement { rows: rows(), axes: in_order(), inner: Inner::New(loops.iter[split - 1..].to_vec()) });
        }
    }
    if loops.iter.len() > MAX_REORDERED {
        return ways;
    }
    for axes in reorderings(&loops.iter, &graph.rows) {
        let inner = axes[graph.rows.len()..].to_vec();
        if inner.is_empty() {
            ways.push(Arrangement { rows: rows(), axes, inner: Inner::None });
            continue;
        }
        ways.extend(domains.clone().map(|domain| Arrangement { rows: rows(), axes: axes.clone(), inner: Inner::Existing(domain) }));
        ways.push(Arrangement { rows: rows(), axes, inner: Inner::New(inner) });
    }
    ways
}

/// Orders of `axes` whose first loops have the extents of `rows`.
fn reorderings(axes: &[Axis], rows: &[Axis]) -> Vec<Vec<Axis>> {
    let Some((row, rest)) = rows.split_first() else { return vec![axes.to_vec()] };
    let mut orders = Vec::new();
    for (at, axis) in axes.iter().enumerate().filter(|(_, axis)| axis.extent == row.extent) {
        let others: Vec<Axis> = axes.iter().enumerate().filter(|(k, _)| *k != at).map(|(_, other)| other.clone()).collect();
        for order in reorderings(&others, rest) {
            orders.push([vec![axis.clone()], order].concat());
        }
    }
    orders
}
