//! Reductions of a meaning taken apart into plain folds.

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::{Expr, Function, ReductionKind};

use super::Unsupported;
use super::graph::{Fold, Graph, Id, Level, Moment, Number, Op};
use super::index::canonical;
use super::loops::{extents, iterations};
use super::rewrite;
use super::simplify;
use super::space::Statistics;

/// The results of a reduction of `values` over `domain`.
///
/// # Errors
/// For a wrong number of values.
pub fn expand(graph: &mut Graph, kind: ReductionKind, domain: usize, values: &[Id], how: Statistics) -> Result<Vec<Id>, Unsupported> {
    let fold = match (kind, values) {
        (ReductionKind::Sum, _) => Fold::Sum,
        (ReductionKind::Prod, _) => Fold::Prod,
        (ReductionKind::Max, _) => Fold::Max,
        (ReductionKind::Min, _) => Fold::Min,
        (ReductionKind::Any, _) => Fold::Any,
        (ReductionKind::WelfordReduce, [x]) => return Ok(statistics(graph, domain, *x, how)),
        (ReductionKind::WelfordCombine, [mean, m2, weight]) => return Ok(combine(graph, domain, [*mean, *m2, *weight], how)),
        (ReductionKind::OnlineSoftmaxReduce, [x]) => return Ok(softmax(graph, domain, *x)),
        (ReductionKind::Argmax, [x]) => return Ok(vec![position(graph, domain, *x, Fold::Max)]),
        (ReductionKind::Argmin, [x]) => return Ok(vec![position(graph, domain, *x, Fold::Min)]),
        _ => return Err(Unsupported::new("wrong number of reduced values")),
    };
    let [value] = values else { return Err(Unsupported::new("wrong number of reduced values")) };
    Ok(vec![graph.reduce(fold, domain, *value)])
}

/// `(mean, sum of squared deviations, count)`.
fn statistics(graph: &mut Graph, domain: usize, x: Id, how: Statistics) -> Vec<Id> {
    let dtype = graph.dtype(x);
    let count = count(graph, domain, dtype);
    match how {
        Statistics::TwoPass => {
            let sum = graph.reduce(Fold::Sum, domain, x);
            let mean = graph.call(Function::Truediv, vec![sum, count]);
            let m2 = squared_deviations(graph, domain, x, mean);
            vec![mean, m2, count]
        }
        Statistics::Shifted => {
            let shift = rewrite::first_element(graph, domain, x);
            let deviation = graph.call(Function::Sub, vec![x, shift]);
            let sum = graph.reduce(Fold::Sum, domain, deviation);
            let squares = squared_deviations(graph, domain, x, shift);
            let offset = graph.call(Function::Truediv, vec![sum, count]);
            let mean = graph.call(Function::Add, vec![shift, offset]);
            let correction = graph.call(Function::Mul, vec![sum, offset]);
            let m2 = graph.call(Function::Sub, vec![squares, correction]);
            let zero = graph.constant(0.0, dtype);
            vec![mean, graph.call(Function::Maximum, vec![m2, zero]), count]
        }
        Statistics::Running => vec![running(graph, domain, &[x], Moment::Mean), running(graph, domain, &[x], Moment::Deviations), count],
    }
}

/// One of the running statistics of `args`: a value, and the condition under which it takes part if there is one.
fn running(graph: &mut Graph, domain: usize, args: &[Id], moment: Moment) -> Id {
    let dtype = graph.dtype(args[0]);
    graph.add(Op::Reduce { fold: Fold::Running(moment), domain }, args.to_vec(), dtype)
}

fn squared_deviations(graph: &mut Graph, domain: usize, x: Id, from: Id) -> Id {
    let deviation = graph.call(Function::Sub, vec![x, from]);
    let square = graph.call(Function::Mul, vec![deviation, deviation]);
    graph.reduce(Fold::Sum, domain, square)
}

/// Statistics of parts, combined: the mean of means by weight, and deviations within and between the parts.
fn combine(graph: &mut Graph, domain: usize, [mean, m2, weight]: [Id; 3], how: Statistics) -> Vec<Id> {
    if how == Statistics::Running
        && simplify::is_zero(graph, m2)
        && let Some(condition) = chosen(graph, weight)
        && prefix(graph, domain, condition).is_some()
    {
        return [Moment::Mean, Moment::Deviations, Moment::Count].map(|moment| running(graph, domain, &[mean, condition], moment)).into();
    }
    let total = graph.reduce(Fold::Sum, domain, weight);
    if how == Statistics::Shifted {
        let shift = rewrite::first_element(graph, domain, mean);
        let deviation = graph.call(Function::Sub, vec![mean, shift]);
        let weighted = graph.call(Function::Mul, vec![deviation, weight]);
        let sum = graph.reduce(Fold::Sum, domain, weighted);
        let squares = squares_of_parts(graph, domain, [deviation, m2, weight]);
        let offset = graph.call(Function::Truediv, vec![sum, total]);
        let grand = graph.call(Function::Add, vec![shift, offset]);
        let correction = graph.call(Function::Mul, vec![sum, offset]);
        let m2 = graph.call(Function::Sub, vec![squares, correction]);
        let zero = graph.constant(0.0, graph.dtype(m2));
        return vec![grand, graph.call(Function::Maximum, vec![m2, zero]), total];
    }
    let weighted = graph.call(Function::Mul, vec![mean, weight]);
    let sum = graph.reduce(Fold::Sum, domain, weighted);
    let grand = graph.call(Function::Truediv, vec![sum, total]);
    let deviation = graph.call(Function::Sub, vec![mean, grand]);
    vec![grand, squares_of_parts(graph, domain, [deviation, m2, weight]), total]
}

/// The sum of squared deviations within parts and between them.
fn squares_of_parts(graph: &mut Graph, domain: usize, [deviation, m2, weight]: [Id; 3]) -> Id {
    let square = graph.call(Function::Mul, vec![deviation, deviation]);
    let between = graph.call(Function::Mul, vec![square, weight]);
    let both = if simplify::is_zero(graph, m2) { between } else { graph.call(Function::Add, vec![m2, between]) };
    graph.reduce(Fold::Sum, domain, both)
}

/// The mean as an algorithm in one pass has it (Welford 1962): none where some value is infinite, as there is no deviation from it
/// then. Two passes alone, and a shift, would say infinite.
pub fn known(graph: &mut Graph, mean: Id, m2: Id) -> Id {
    let is_known = graph.call(Function::Eq, vec![m2, m2]);
    graph.call(Function::Where, vec![is_known, mean, m2])
}

/// The condition under which a weight is one, where it is zero otherwise.
fn chosen(graph: &Graph, weight: Id) -> Option<Id> {
    let value = graph.value(weight);
    match (&value.op, value.args.as_slice()) {
        (Op::Call(Function::Where), [condition, one, zero]) if simplify::is_one(graph, *one) && simplify::is_zero(graph, *zero) => {
            Some(*condition)
        }
        _ => None,
    }
}

/// How many elements of a row `condition` holds for, where those are the row's first ones and there are any: a sum over the
/// row's variables, which may exceed the row's length.
pub fn prefix(graph: &Graph, domain: usize, condition: Id) -> Option<Expr> {
    let value = graph.value(condition);
    let (Op::Call(Function::Lt), [index, bound]) = (&value.op, value.args.as_slice()) else { return None };
    let (index, bound) = match (&graph.value(*index).op, &graph.value(*bound).op) {
        (Op::Index(expr), Op::Constant(Number::Int(bound))) if graph.value(*index).args.is_empty() => (expr, *bound),
        _ => return None,
    };
    let before = Expr::mul(vec![Expr::Int(-1), index.clone()]);
    let length = canonical(&Expr::add(vec![Expr::Int(bound), place(graph, domain), before]), &graph.ranges);
    let is_any = graph.ranges.of(&length).is_some_and(|(least, _)| least > 0);
    (is_any && graph.level_of(&length) == Level::Row).then_some(length)
}

/// The number of an element within its row.
fn place(graph: &Graph, domain: usize) -> Expr {
    let axes = graph.domains[domain].iter();
    axes.fold(Expr::Int(0), |so_far, axis| Expr::add(vec![Expr::mul(vec![so_far, axis.extent.clone()]), Expr::var(axis.var.as_str())]))
}

/// `(max, sum of exp(x - max))`.
fn softmax(graph: &mut Graph, domain: usize, x: Id) -> Vec<Id> {
    let max = graph.reduce(Fold::Max, domain, x);
    let difference = graph.call(Function::Sub, vec![x, max]);
    let exp = graph.call(Function::Exp, vec![difference]);
    vec![max, graph.reduce(Fold::Sum, domain, exp)]
}

/// The first place where `x` is its own extreme; NaN is more extreme than any number.
fn position(graph: &mut Graph, domain: usize, x: Id, extreme: Fold) -> Id {
    let extreme = graph.reduce(extreme, domain, x);
    let place = canonical(&place(graph, domain), &graph.ranges);
    let dtype = if graph.ranges.of(&place).is_some_and(|(_, last)| last < i64::from(i32::MAX)) { Dtype::Int32 } else { Dtype::Int64 };
    let nowhere = graph.constant(if dtype == Dtype::Int32 { f64::from(i32::MAX) } else { 2f64.powi(62) }, dtype);
    let place = graph.add(Op::Index(place), Vec::new(), dtype);
    let is_extreme = graph.call(Function::Eq, vec![x, extreme]);
    let is_nan = graph.call(Function::Ne, vec![x, x]);
    let is_here = simplify::call(graph, Function::LogicalOr, vec![is_extreme, is_nan]);
    let candidate = graph.call(Function::Where, vec![is_here, place, nowhere]);
    let first = graph.reduce(Fold::Min, domain, candidate);
    graph.cast(first, Dtype::Int64)
}

/// Number of elements of a domain, as a value.
pub fn count(graph: &mut Graph, domain: usize, dtype: Dtype) -> Id {
    let elements = canonical(&iterations(&extents(&graph.domains[domain])), &graph.ranges);
    if let Expr::Int(elements) = elements {
        return graph.constant(elements as f64, dtype);
    }
    let count = graph.add(Op::Index(elements), Vec::new(), Dtype::Int64);
    graph.cast(count, dtype)
}
