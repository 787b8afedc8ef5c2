//! What is known of a value's size without running it.

use kernelopt_shared::meaning::Function;

use super::graph::{Fold, Graph, Id, Number, Op};

/// A number that the value never exceeds, NaN aside.
pub fn upper(graph: &Graph, id: Id) -> f64 {
    let value = graph.value(id);
    let arg = |k: usize| value.args[k];
    match &value.op {
        Op::Constant(number) => constant(*number),
        Op::Call(Function::Sub) if is_extreme_of(graph, arg(1), Fold::Max, arg(0)) => 0.0,
        Op::Call(Function::Sub) => upper(graph, arg(0)) - lower(graph, arg(1)),
        Op::Call(Function::Add) => upper(graph, arg(0)) + upper(graph, arg(1)),
        Op::Call(Function::Neg) => -lower(graph, arg(0)),
        Op::Call(Function::Mul) => product_upper(graph, arg(0), arg(1)),
        Op::Call(Function::Minimum) => upper(graph, arg(0)).min(upper(graph, arg(1))),
        Op::Call(Function::Tanh | Function::Erf | Function::Sigmoid) => 1.0,
        _ => f64::INFINITY,
    }
}

/// A number that the value never goes below, NaN aside.
pub fn lower(graph: &Graph, id: Id) -> f64 {
    let value = graph.value(id);
    let arg = |k: usize| value.args[k];
    match &value.op {
        Op::Constant(number) => constant(*number),
        Op::Call(Function::Exp | Function::Abs | Function::Relu | Function::Sqrt | Function::Sigmoid) => 0.0,
        Op::Call(Function::Mul) if arg(0) == arg(1) => 0.0,
        Op::Call(Function::Log) if lower(graph, arg(0)) > 0.0 => lower(graph, arg(0)).ln(),
        Op::Call(Function::Add) => lower(graph, arg(0)) + lower(graph, arg(1)),
        Op::Call(Function::Sub) => lower(graph, arg(0)) - upper(graph, arg(1)),
        Op::Reduce { fold: Fold::Sum, .. } if lower(graph, arg(0)) >= 0.0 => sum_lower(graph, arg(0)),
        _ => f64::NEG_INFINITY,
    }
}

/// The sum of `exp(x - max x)` holds a one.
fn sum_lower(graph: &Graph, element: Id) -> f64 {
    let value = graph.value(element);
    let at_max = match &value.op {
        Op::Call(Function::Exp) => {
            let exponent = graph.value(value.args[0]);
            exponent.op == Op::Call(Function::Sub) && is_extreme_of(graph, exponent.args[1], Fold::Max, exponent.args[0])
        }
        _ => false,
    };
    if at_max { 1.0 } else { 0.0 }
}

fn product_upper(graph: &Graph, a: Id, b: Id) -> f64 {
    let is_natural = |id| lower(graph, id) >= 0.0;
    let is_negative = |id| upper(graph, id) <= 0.0;
    match (is_natural(a), is_natural(b)) {
        (true, true) => upper(graph, a) * upper(graph, b),
        (true, false) if is_negative(b) => 0.0,
        (false, true) if is_negative(a) => 0.0,
        (false, false) if a != b && is_negative(a) && is_negative(b) => lower(graph, a) * lower(graph, b),
        _ => f64::INFINITY,
    }
}

fn is_extreme_of(graph: &Graph, id: Id, fold: Fold, of: Id) -> bool {
    matches!(graph.value(id).op, Op::Reduce { fold: f, .. } if f == fold) && graph.value(id).args[0] == of
}

fn constant(number: Number) -> f64 {
    match number {
        Number::Int(value) => value as f64,
        Number::Float(bits) => f64::from_bits(bits),
    }
}
