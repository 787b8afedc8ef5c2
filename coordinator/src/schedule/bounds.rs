//! What is known of a value's size without running it.

use kernelopt_shared::meaning::Function;

use super::graph::{Fold, Graph, Id, Number, Op};

/// How many steps back a bound is looked for: values are shared, so that paths may be many more than values.
const MAX_DEPTH: usize = 8;

/// A number that the value never exceeds, NaN aside.
pub fn upper(graph: &Graph, id: Id) -> f64 {
    Bounds { graph, depth: MAX_DEPTH }.upper(id)
}

#[derive(Clone, Copy)]
struct Bounds<'a> {
    graph: &'a Graph,
    depth: usize,
}

impl Bounds<'_> {
    fn deeper(self) -> Option<Self> {
        Some(Self { depth: self.depth.checked_sub(1)?, ..self })
    }

    fn upper(self, id: Id) -> f64 {
        let Some(deeper) = self.deeper() else { return f64::INFINITY };
        let value = self.graph.value(id);
        let arg = |k: usize| value.args[k];
        let (upper, lower) = (|k| deeper.upper(arg(k)), |k| deeper.lower(arg(k)));
        match &value.op {
            Op::Constant(number) => constant(*number),
            Op::Call(Function::Sub) if self.is_maximum_of(arg(1), arg(0)) => 0.0,
            Op::Call(Function::Sub) => upper(0) - lower(1),
            Op::Call(Function::Add) => upper(0) + upper(1),
            Op::Call(Function::Neg) => -lower(0),
            Op::Call(Function::Mul) => deeper.product_upper(arg(0), arg(1)),
            Op::Call(Function::Minimum) => upper(0).min(upper(1)),
            Op::Call(Function::Tanh | Function::Erf | Function::Sigmoid) => 1.0,
            _ => f64::INFINITY,
        }
    }

    /// A number that the value never goes below, NaN aside.
    fn lower(self, id: Id) -> f64 {
        let Some(deeper) = self.deeper() else { return f64::NEG_INFINITY };
        let value = self.graph.value(id);
        let arg = |k: usize| value.args[k];
        let (upper, lower) = (|k| deeper.upper(arg(k)), |k| deeper.lower(arg(k)));
        match &value.op {
            Op::Constant(number) => constant(*number),
            Op::Call(Function::Exp | Function::Abs | Function::Relu | Function::Sqrt | Function::Sigmoid) => 0.0,
            Op::Call(Function::Mul) if arg(0) == arg(1) => 0.0,
            Op::Call(Function::Log) => lower(0).ln(),
            Op::Call(Function::Add) => lower(0) + lower(1),
            Op::Call(Function::Sub) => lower(0) - upper(1),
            Op::Reduce { fold: Fold::Sum, .. } if lower(0) >= 0.0 => self.sum_lower(arg(0)),
            _ => f64::NEG_INFINITY,
        }
    }

    /// The sum of `exp(x - max x)` holds a one.
    fn sum_lower(self, element: Id) -> f64 {
        let value = self.graph.value(element);
        let at_max = match &value.op {
            Op::Call(Function::Exp) => {
                let exponent = self.graph.value(value.args[0]);
                exponent.op == Op::Call(Function::Sub) && self.is_maximum_of(exponent.args[1], exponent.args[0])
            }
            _ => false,
        };
        if at_max { 1.0 } else { 0.0 }
    }

    fn product_upper(self, a: Id, b: Id) -> f64 {
        let is_natural = |id| self.lower(id) >= 0.0;
        let is_negative = |id| self.upper(id) <= 0.0;
        match (is_natural(a), is_natural(b)) {
            (true, true) => self.upper(a) * self.upper(b),
            (true, false) if is_negative(b) => 0.0,
            (false, true) if is_negative(a) => 0.0,
            (false, false) if a != b && is_negative(a) && is_negative(b) => self.lower(a) * self.lower(b),
            _ => f64::INFINITY,
        }
    }

    fn is_maximum_of(self, id: Id, of: Id) -> bool {
        let value = self.graph.value(id);
        matches!(value.op, Op::Reduce { fold: Fold::Max, .. }) && value.args[0] == of
    }
}

fn constant(number: Number) -> f64 {
    match number {
        Number::Int(value) => value as f64,
        Number::Float(bits) => f64::from_bits(bits),
    }
}
