//! Identities of real numbers on the values of a row: fewer divisions, fewer exponentials, fewer passes.

use std::collections::BTreeMap;

use kernelopt_shared::meaning::{Expr, Function};

use super::graph::{Fold, Graph, Id, Level, Op, Value};
use super::index::canonical;
use super::loops::{Substitution, substitute};
use super::reduction::count;
use super::region::Region;
use super::space::Algebra;

/// How deep in sums the row's addends are looked for: values are shared, so that paths may be many more than values.
const MAX_ADDENDS_DEPTH: usize = 12;

/// The region with the identities of `algebra` applied.
pub fn apply(region: &Region, algebra: Algebra) -> Region {
    let mut rewriter = Rewriter { old: &region.graph, new: region.graph.emptied(), map: BTreeMap::new(), algebra };
    for id in region.graph.ids() {
        let new = rewriter.rewrite(id);
        rewriter.map.insert(id, new);
    }
    let Rewriter { new, map, .. } = rewriter;
    rebuilt(region, new, &map)
}

/// The region over `new` values; `map` gives the one in place of each old one.
pub fn rebuilt(region: &Region, new: Graph, map: &BTreeMap<Id, Id>) -> Region {
    let mut rewritten = region.clone();
    rewritten.graph = new;
    for store in &mut rewritten.stores {
        store.value = map[&store.value];
        store.target.args.iter_mut().for_each(|arg| *arg = map[arg]);
    }
    rewritten.reads.iter_mut().flat_map(|read| &mut read.args).for_each(|arg| *arg = map[arg]);
    rewritten
}

struct Rewriter<'a> {
    old: &'a Graph,
    new: Graph,
    map: BTreeMap<Id, Id>,
    algebra: Algebra,
}

impl Rewriter<'_> {
    fn rewrite(&mut self, id: Id) -> Id {
        let Value { op, args, dtype, level, .. } = self.old.value(id).clone();
        let args: Vec<Id> = args.iter().map(|arg| self.map[arg]).collect();
        if dtype.is_float() {
            match (&op, args.as_slice()) {
                (Op::Call(Function::Truediv), [x, r]) if self.algebra.factors && level != Level::Row && self.is_varying_row(*r) => {
                    let reciprocal = self.new.call(Function::Reciprocal, vec![*r]);
                    return self.scaled(*x, reciprocal);
                }
                (Op::Call(Function::Mul), [x, r]) | (Op::Call(Function::Mul), [r, x]) if level != Level::Row && self.is_row(*r) => {
                    return self.scaled(*x, *r);
                }
                (Op::Call(Function::Add | Function::Sub), [x, t])
                    if self.algebra.shifts && level != Level::Row && self.is_varying_row(*t) =>
                {
                    let function = if op == Op::Call(Function::Add) { Function::Add } else { Function::Sub };
                    return self.shifted(*x, function, *t);
                }
                (Op::Call(Function::Exp), [x]) if self.algebra.exponents => {
                    if let Some(split) = self.split_exponent(*x) {
                        return split;
                    }
                }
                (Op::Reduce { fold: Fold::Sum, domain }, [x]) if self.algebra.sums => return self.sum(*domain, *x),
                _ => {}
            }
        }
        self.new.add(op, args, dtype)
    }

    fn is_row(&self, id: Id) -> bool {
        self.new.level(id) == Level::Row
    }

    fn is_varying_row(&self, id: Id) -> bool {
        self.is_row(id) && !matches!(self.new.value(id).op, Op::Constant(_))
    }

    /// `x * r` with `r` joined to a factor of the row that `x` has already, and shifts of the row taken out of `x`.
    fn scaled(&mut self, x: Id, r: Id) -> Id {
        let parts =
            |this: &Self, function| this.call_of(x, function).filter(|(core, row)| !this.is_row(*core) && this.is_varying_row(*row));
        if self.algebra.factors
            && let Some((core, factor)) = parts(self, Function::Mul)
        {
            let factor = self.new.call(Function::Mul, vec![factor, r]);
            return self.new.call(Function::Mul, vec![core, factor]);
        }
        for function in [Function::Add, Function::Sub] {
            if self.algebra.shifts
                && self.is_varying_row(r)
                && let Some((core, shift)) = parts(self, function)
            {
                let core = self.scaled(core, r);
                let shift = self.new.call(Function::Mul, vec![shift, r]);
                return self.new.call(function, vec![core, shift]);
            }
        }
        self.new.call(Function::Mul, vec![x, r])
    }

    /// `x + t` or `x - t` with `t` joined to a shift of the row that `x` has already.
    fn shifted(&mut self, x: Id, function: Function, t: Id) -> Id {
        for inner in [Function::Add, Function::Sub] {
            if let Some((core, shift)) = self.call_of(x, inner).filter(|(core, row)| !self.is_row(*core) && self.is_varying_row(*row)) {
                let (outer, joined) = match (inner, function) {
                    (Function::Sub, Function::Add) => (Function::Add, self.new.call(Function::Sub, vec![t, shift])),
                    (Function::Sub, _) => (Function::Sub, self.new.call(Function::Add, vec![shift, t])),
                    (_, function) => (Function::Add, self.new.call(function, vec![shift, t])),
                };
                return self.new.call(outer, vec![core, joined]);
            }
        }
        self.new.call(function, vec![x, t])
    }

    /// `exp(x - log r)` as `exp(x) * (1 / r)`, for an `exp(x)` that is computed in any case.
    fn split_exponent(&mut self, argument: Id) -> Option<Id> {
        let (x, log) = self.call_of(argument, Function::Sub)?;
        let r = match self.new.value(log) {
            Value { op: Op::Call(Function::Log), args, level: Level::Row, .. } => args[0],
            _ => return None,
        };
        let exp = self.new.find(Op::Call(Function::Exp), &[x], self.new.dtype(x))?;
        let reciprocal = self.new.call(Function::Reciprocal, vec![r]);
        Some(self.new.call(Function::Mul, vec![exp, reciprocal]))
    }

    fn call_of(&self, id: Id, function: Function) -> Option<(Id, Id)> {
        match self.new.value(id) {
            Value { op: Op::Call(f), args, .. } if *f == function => Some((args[0], args[1])),
            _ => None,
        }
    }

    /// `sum(x)` with the row's factors taken out, and the row's late addends of a factor as well: an addend is late if it
    /// is known only after a pass that the rest does not have to wait for.
    fn sum(&mut self, domain: usize, x: Id) -> Id {
        if self.is_row(x) {
            let dtype = self.new.dtype(x);
            let count = count(&mut self.new, domain, dtype);
            return self.new.call(Function::Mul, vec![x, count]);
        }
        if let Some((a, b)) = self.call_of(x, Function::Mul) {
            for (row, inner) in [(a, b), (b, a)] {
                if self.is_row(row) {
                    let sum = self.sum(domain, inner);
                    return self.new.call(Function::Mul, vec![row, sum]);
                }
            }
            let (mut factors, mut rest) = (Vec::new(), Vec::new());
            for side in [a, b] {
                let inner = self.without_factors(side, &mut factors);
                rest.push(inner);
            }
            let sum = self.sum_of_product(domain, rest[0], rest[1]);
            return factors.into_iter().fold(sum, |product, factor| self.new.call(Function::Mul, vec![factor, product]));
        }
        self.new.reduce(Fold::Sum, domain, x)
    }

    /// `x` without its factors of the row, which go to `factors`.
    fn without_factors(&mut self, x: Id, factors: &mut Vec<Id>) -> Id {
        match self.call_of(x, Function::Mul) {
            Some((row, inner)) | Some((inner, row)) if self.is_row(row) && !self.is_row(inner) => {
                factors.push(row);
                self.without_factors(inner, factors)
            }
            _ => x,
        }
    }

    fn sum_of_product(&mut self, domain: usize, a: Id, b: Id) -> Id {
        for (weight, sum) in [(a, b), (b, a)] {
            let ready = self.new.passes(weight);
            let (inner, row) = self.without_late_addends(sum, ready, MAX_ADDENDS_DEPTH);
            if let (Some(inner), Some(row)) = (inner, row) {
                let product = self.new.call(Function::Mul, vec![weight, inner]);
                let first = self.new.reduce(Fold::Sum, domain, product);
                let weights = self.new.reduce(Fold::Sum, domain, weight);
                let second = self.new.call(Function::Mul, vec![row, weights]);
                return self.new.call(Function::Add, vec![first, second]);
            }
        }
        let product = self.new.call(Function::Mul, vec![a, b]);
        self.new.reduce(Fold::Sum, domain, product)
    }

    /// `x` as an inner part plus a part of the row that needs more than `ready` passes.
    fn without_late_addends(&mut self, x: Id, ready: usize, depth: usize) -> (Option<Id>, Option<Id>) {
        if self.is_row(x) {
            return if self.new.passes(x) > ready { (None, Some(x)) } else { (Some(x), None) };
        }
        if self.new.passes(x) <= ready {
            return (Some(x), None);
        }
        let (function, a, b) = match (self.call_of(x, Function::Add), self.call_of(x, Function::Sub)) {
            (Some((a, b)), _) => (Function::Add, a, b),
            (_, Some((a, b))) => (Function::Sub, a, b),
            _ => return (Some(x), None),
        };
        let Some(depth) = depth.checked_sub(1) else { return (Some(x), None) };
        let (left, right) = (self.without_late_addends(a, ready, depth), self.without_late_addends(b, ready, depth));
        (self.join(function, left.0, right.0), self.join(function, left.1, right.1))
    }

    fn join(&mut self, function: Function, a: Option<Id>, b: Option<Id>) -> Option<Id> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.new.call(function, vec![a, b])),
            (None, Some(b)) if function == Function::Sub => Some(self.new.call(Function::Neg, vec![b])),
            (a, b) => a.or(b),
        }
    }
}

/// The value of `id` at the first element of `domain`, a value of the row.
pub fn first_element(graph: &mut Graph, domain: usize, id: Id) -> Id {
    let start: Substitution = graph.domains[domain].iter().map(|axis| (axis.var.clone(), Expr::Int(0))).collect();
    let mut at_start: BTreeMap<Id, Id> = BTreeMap::new();
    // Arguments come before their users.
    for old in graph.ids().filter(|old| *old <= id) {
        let value = graph.value(old).clone();
        if value.level != Level::Inner(domain) {
            at_start.insert(old, old);
            continue;
        }
        let place = |index: &Expr| canonical(&substitute(index, &start), &graph.ranges);
        let op = match &value.op {
            Op::Index(index) => Op::Index(place(index)),
            Op::Load { buffer, index, guarded } => Op::Load { buffer: buffer.clone(), index: place(index), guarded: *guarded },
            other => other.clone(),
        };
        let args = value.args.iter().map(|arg| at_start[arg]).collect();
        at_start.insert(old, graph.add(op, args, value.dtype));
    }
    at_start[&id]
}
