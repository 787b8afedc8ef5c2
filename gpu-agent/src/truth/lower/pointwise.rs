//! Element-wise functions: which domain their arguments meet in, and which type they give.

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::Function;

use super::super::program::Step;
use super::super::types::Kind;
use super::{Lowering, Stage, Value, promote};

/// How a function treats the types of its arguments.
enum Typing {
    /// Arguments meet, the result is of that type. Booleans count as integers.
    Number,
    /// The same, booleans stay booleans.
    Any,
    /// Arguments become floats.
    Float,
    /// Arguments meet, the result is a boolean.
    Compare,
    /// Arguments become booleans.
    Logical,
    /// Shifts in the type of the first argument.
    Shift,
    /// A condition, then arguments that meet.
    Where,
}

const fn typing(function: Function) -> Typing {
    use Function as F;
    match function {
        F::Add | F::Sub | F::Mul | F::Floordiv | F::Truncdiv | F::Mod | F::Fmod | F::Remainder | F::Pow | F::Fma => Typing::Number,
        F::Neg | F::Abs | F::Sign | F::Square | F::Relu | F::Floor | F::Ceil | F::Trunc | F::Round => Typing::Number,
        F::Maximum | F::Minimum | F::Identity | F::BitwiseAnd | F::BitwiseOr | F::BitwiseXor | F::BitwiseNot => Typing::Any,
        F::Eq | F::Ne | F::Lt | F::Gt | F::Le | F::Ge | F::Isnan | F::Isinf | F::Signbit => Typing::Compare,
        F::LogicalAnd | F::LogicalOr | F::LogicalXor | F::LogicalNot => Typing::Logical,
        F::BitwiseLeftShift | F::BitwiseRightShift => Typing::Shift,
        F::Where => Typing::Where,
        F::Truediv | F::Atan2 | F::Copysign | F::Hypot | F::Reciprocal | F::Sigmoid | F::Sqrt | F::Rsqrt => Typing::Float,
        F::Exp | F::Exp2 | F::Expm1 | F::Log | F::Log2 | F::Log10 | F::Log1p | F::Erf | F::Erfc => Typing::Float,
        F::Sin | F::Cos | F::Tan | F::Sinh | F::Cosh | F::Tanh => Typing::Float,
        F::Asin | F::Acos | F::Atan | F::Asinh | F::Acosh | F::Atanh => Typing::Float,
    }
}

impl Lowering<'_> {
    /// Applies `function`; the number of arguments fits.
    pub(super) fn pointwise(&mut self, function: Function, args: &[Value]) -> Value {
        let meet = |values: &[Value]| values.iter().skip(1).fold(values[0].dtype, |dtype, value| promote(dtype, value.dtype));
        let number = |dtype: Dtype| if dtype == Dtype::Bool { Dtype::Int64 } else { dtype };
        match typing(function) {
            Typing::Number => self.uniform(function, args, number(meet(args)), None),
            Typing::Any => self.uniform(function, args, meet(args), None),
            Typing::Float => self.uniform(function, args, Dtype::Float64, None),
            Typing::Compare => self.uniform(function, args, meet(args), Some(Dtype::Bool)),
            Typing::Logical => self.uniform(function, args, Dtype::Bool, None),
            Typing::Shift => self.shift(function, args),
            Typing::Where => {
                let dtype = meet(&args[1..]);
                let condition = self.cast(args[0], Dtype::Bool);
                let (yes, no) = (self.cast(args[1], dtype), self.cast(args[2], dtype));
                self.apply(function, &[condition, yes, no], dtype)
            }
        }
    }

    /// All arguments in type `meet`, and the result too unless `result` says otherwise.
    fn uniform(&mut self, function: Function, args: &[Value], meet: Dtype, result: Option<Dtype>) -> Value {
        let args: Vec<Value> = args.iter().map(|arg| self.cast(*arg, meet)).collect();
        let value = self.apply(function, &args, result.unwrap_or(meet));
        // The step computed in 64 bits; a narrower type wraps what came of it.
        if value.slot.kind != Kind::Int || meet == Dtype::Int64 {
            return value;
        }
        self.cast(Value { dtype: Dtype::Int64, ..value }, meet)
    }

    fn apply(&mut self, function: Function, args: &[Value], dtype: Dtype) -> Value {
        let (wide, stage) = spread(args);
        let args = args.iter().map(|arg| arg.slot).collect();
        self.emit(dtype, wide, stage, |to| Step::Apply { function, to, args })
    }

    fn shift(&mut self, function: Function, args: &[Value]) -> Value {
        let dtype = if args[0].slot.kind == Kind::Int { args[0].dtype } else { Dtype::Int64 };
        let (a, b) = (self.cast(args[0], dtype), self.cast(args[1], Dtype::Int64));
        let (wide, stage) = spread(&[a, b]);
        let value = self.emit(Dtype::Int64, wide, stage, |to| Step::Shift { function, to, args: (a.slot, b.slot), dtype });
        self.cast(value, dtype)
    }
}

/// Whether a value made from `args` differs between lanes, and when it is known.
fn spread(args: &[Value]) -> (bool, Stage) {
    (args.iter().any(|arg| arg.slot.wide), args.iter().map(|arg| arg.stage).max().unwrap_or(Stage::Row))
}
