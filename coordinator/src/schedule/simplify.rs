//! Element-wise functions with what is free to simplify simplified: no rounding and no special value changes.

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::Function;

use super::graph::{Graph, Id, Number, Op};

/// Largest magnitude of an integer that is compared in 32 bits.
const NARROW: i64 = 1 << 30;

/// The value of `function` at `args`.
pub fn call(graph: &mut Graph, function: Function, args: Vec<Id>) -> Id {
    use Function::*;
    let is_bool = |graph: &Graph, id: Id| graph.dtype(id) == Dtype::Bool;
    match (function, args.as_slice()) {
        (Identity, [x]) => *x,
        (Mul, [x, k]) | (Mul, [k, x]) | (Truediv, [x, k]) if is_one(graph, *k) && graph.dtype(*x).is_float() => *x,
        (Square, [x]) => graph.call(Mul, vec![*x, *x]),
        (Lt | Le | Gt | Ge | Eq | Ne, [a, b]) => compare(graph, function, *a, *b),
        (LogicalAnd | BitwiseAnd, [a, b]) if is_bool(graph, *a) && is_bool(graph, *b) => match (truth(graph, *a), truth(graph, *b)) {
            (Some(true), _) => *b,
            (_, Some(true)) => *a,
            (Some(false), _) => *a,
            (_, Some(false)) => *b,
            _ => graph.call(LogicalAnd, vec![*a, *b]),
        },
        (LogicalOr | BitwiseOr, [a, b]) if is_bool(graph, *a) && is_bool(graph, *b) => match (truth(graph, *a), truth(graph, *b)) {
            (Some(false), _) => *b,
            (_, Some(false)) => *a,
            (Some(true), _) => *a,
            (_, Some(true)) => *b,
            _ => graph.call(LogicalOr, vec![*a, *b]),
        },
        (Where, [c, a, b]) => choose(graph, *c, *a, *b),
        _ => graph.call(function, args),
    }
}

/// `a` where `c` holds, else `b`: one of them where it is known which, and no choice twice.
fn choose(graph: &mut Graph, c: Id, a: Id, b: Id) -> Id {
    let whole = graph.call(Function::Where, vec![c, a, b]);
    let dtype = graph.dtype(whole);
    let part = |id: Id, k: usize| match graph.value(id) {
        value if value.op == Op::Call(Function::Where) && value.args[0] == c => value.args[k],
        _ => id,
    };
    let (a, b) = (part(a, 1), part(b, 2));
    match truth(graph, c) {
        Some(holds) => graph.cast(if holds { a } else { b }, dtype),
        // What is not read is zero.
        None if a == b || is_read_under(graph, a, c) && is_zero(graph, b) => graph.cast(a, dtype),
        None => graph.call(Function::Where, vec![c, a, b]),
    }
}

/// True for a load that happens where `condition` holds.
fn is_read_under(graph: &Graph, id: Id, condition: Id) -> bool {
    let value = graph.value(id);
    matches!(value.op, Op::Load { guarded: true, .. }) && value.args.last() == Some(&condition)
}

/// `value` converted; an index expression that fits in 32 bits goes there directly, which vectors can do.
pub fn cast(graph: &mut Graph, value: Id, dtype: Dtype) -> Id {
    let narrow = dtype != Dtype::Int64 && range(graph, value).is_some_and(|(low, high)| low > -NARROW && high < NARROW);
    if narrow && matches!(graph.value(value).op, Op::Index(_)) {
        let index = graph.value(value).clone();
        let index = graph.add(index.op, index.args, Dtype::Int32);
        return graph.cast(index, dtype);
    }
    graph.cast(value, dtype)
}

/// True for the constant one.
pub fn is_one(graph: &Graph, id: Id) -> bool {
    matches!(graph.value(id).op, Op::Constant(Number::Float(bits)) if bits == 1f64.to_bits())
}

/// True for the constant zero.
pub fn is_zero(graph: &Graph, id: Id) -> bool {
    matches!(graph.value(id).op, Op::Constant(Number::Int(0))) || graph.value(id).op == Op::Constant(Number::Float(0))
}

/// A constant boolean's value.
pub fn truth(graph: &Graph, id: Id) -> Option<bool> {
    match graph.value(id).op {
        Op::Constant(Number::Int(value)) if graph.dtype(id) == Dtype::Bool => Some(value != 0),
        _ => None,
    }
}

/// A comparison: of a choice between constants with a constant it is the choice's condition; of index expressions and
/// constants it is decided where their ranges decide it, else done in 32 bits.
fn compare(graph: &mut Graph, function: Function, a: Id, b: Id) -> Id {
    if let Some(condition) = compare_choice(graph, function, a, b) {
        return condition;
    }
    let (Some(x), Some(y)) = (range(graph, a), range(graph, b)) else { return graph.call(function, vec![a, b]) };
    let always = |holds: bool, fails: bool| {
        if holds {
            Some(true)
        } else if fails {
            Some(false)
        } else {
            None
        }
    };
    let decided = match function {
        Function::Lt => always(x.1 < y.0, x.0 >= y.1),
        Function::Le => always(x.1 <= y.0, x.0 > y.1),
        Function::Gt => always(x.0 > y.1, x.1 <= y.0),
        Function::Ge => always(x.0 >= y.1, x.1 < y.0),
        _ => None,
    };
    if let Some(holds) = decided {
        return graph.add(Op::Constant(Number::Int(holds.into())), Vec::new(), Dtype::Bool);
    }
    if [x.0, x.1, y.0, y.1].iter().any(|end| end.abs() >= NARROW) {
        return graph.call(function, vec![a, b]);
    }
    let args = [a, b].map(|id| {
        let value = graph.value(id).clone();
        graph.add(value.op, value.args, Dtype::Int32)
    });
    graph.call(function, args.to_vec())
}

fn compare_choice(graph: &mut Graph, function: Function, a: Id, b: Id) -> Option<Id> {
    let number = |graph: &Graph, id: Id| match graph.value(id).op {
        Op::Constant(Number::Int(value)) => Some(value as f64),
        Op::Constant(Number::Float(bits)) => Some(f64::from_bits(bits)),
        _ => None,
    };
    let (choice, with) = (graph.value(a).clone(), number(graph, b)?);
    if choice.op != Op::Call(Function::Where) {
        return None;
    }
    let holds = |number: f64| match function {
        Function::Eq => number == with,
        Function::Ne => number != with,
        Function::Lt => number < with,
        Function::Le => number <= with,
        Function::Gt => number > with,
        _ => number >= with,
    };
    let (yes, no) = (holds(number(graph, choice.args[1])?), holds(number(graph, choice.args[2])?));
    let condition = choice.args[0];
    match (yes, no) {
        (true, false) if graph.dtype(condition) == Dtype::Bool => Some(condition),
        (false, true) if graph.dtype(condition) == Dtype::Bool => Some(graph.call(Function::LogicalNot, vec![condition])),
        (yes, no) if yes == no => Some(graph.add(Op::Constant(Number::Int(yes.into())), Vec::new(), Dtype::Bool)),
        _ => None,
    }
}

/// Least and greatest value of an integer index expression or constant.
fn range(graph: &Graph, id: Id) -> Option<(i64, i64)> {
    let value = graph.value(id);
    match &value.op {
        _ if !matches!(value.dtype, Dtype::Int64 | Dtype::Int32) => None,
        Op::Index(expr) if value.args.is_empty() => graph.ranges.of(expr),
        Op::Constant(Number::Int(constant)) => Some((*constant, *constant)),
        _ => None,
    }
}
