//! Element-wise functions, constants and conversions as Triton, in the way of the compiler's own backend
//! (torch 2.11, torch/_inductor/codegen/triton.py, `TritonOverrides`).

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::Function;

use super::super::Unsupported;
use super::super::graph::{Fold, Number};
use super::space::Exp;

/// Triton's name of the type in which values are computed.
pub const fn type_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Float64 => "tl.float64",
        Dtype::Float32 => "tl.float32",
        Dtype::Float16 => "tl.float16",
        Dtype::Bfloat16 => "tl.bfloat16",
        Dtype::Int64 => "tl.int64",
        Dtype::Int32 => "tl.int32",
        Dtype::Int16 => "tl.int16",
        Dtype::Int8 => "tl.int8",
        Dtype::Uint8 => "tl.uint8",
        Dtype::Bool => "tl.int1",
    }
}

/// A constant as a plain number, where it takes its type from what it meets.
pub fn literal(number: Number, dtype: Dtype) -> String {
    match number {
        Number::Int(value) if dtype == Dtype::Bool => if value != 0 { "True" } else { "False" }.to_owned(),
        Number::Int(value) => value.to_string(),
        Number::Float(bits) => {
            let value = f64::from_bits(bits);
            let single = if dtype == Dtype::Float64 { value } else { f64::from(value as f32) };
            match single {
                v if v.is_nan() => "float('nan')".to_owned(),
                v if v.is_infinite() => format!("float('{}inf')", if v < 0.0 { "-" } else { "" }),
                // Triton takes a number that is no normal float32 for a float64.
                v if dtype != Dtype::Float64 && v != 0.0 && v.abs() < f64::from(f32::MIN_POSITIVE) => {
                    format!("tl.full([], {v:?}, tl.float32)")
                }
                _ => format!("{value:?}"),
            }
        }
    }
}

/// A constant with its type.
pub fn typed(number: Number, dtype: Dtype) -> String {
    format!("tl.full([], {}, {})", literal(number, dtype), type_name(dtype))
}

/// `value` of type `from` as `to`.
pub fn cast(value: &str, from: Dtype, to: Dtype) -> String {
    match (from.is_float(), to) {
        (_, Dtype::Bool) => format!("({value} != 0)"),
        // A direct conversion of a negative float to an unsigned integer is zero.
        (true, Dtype::Uint8) => format!("{value}.to(tl.int16).to(tl.uint8)"),
        _ => format!("{value}.to({})", type_name(to)),
    }
}

/// Two values of a reduction as one.
pub fn fold(fold: Fold, dtype: Dtype, a: &str, b: &str) -> String {
    match fold {
        Fold::Sum => format!("{a} + {b}"),
        Fold::Prod => format!("{a} * {b}"),
        Fold::Max => extreme("maximum", dtype, a, b),
        Fold::Min => extreme("minimum", dtype, a, b),
        Fold::Any | Fold::SumExp | Fold::Running(_) => format!("{a} | {b}"),
    }
}

/// NaN wins: one instruction on devices of capability 8.0 and later.
pub fn extreme(function: &str, dtype: Dtype, a: &str, b: &str) -> String {
    let propagate = if dtype.is_float() { ", propagate_nan=tl.PropagateNan.ALL" } else { "" };
    format!("tl.{function}({a}, {b}{propagate})")
}

/// The value that a reduction starts from.
pub fn neutral(fold: Fold, dtype: Dtype) -> String {
    let bits = match dtype {
        Dtype::Int64 => 64,
        Dtype::Int32 => 32,
        Dtype::Int16 => 16,
        _ => 8,
    };
    let least = if dtype == Dtype::Uint8 { 0 } else { -1i128 << (bits - 1) };
    let greatest = if dtype == Dtype::Uint8 { 255 } else { (1i128 << (bits - 1)) - 1 };
    match (fold, dtype.is_float()) {
        (Fold::Sum | Fold::SumExp | Fold::Running(_), true) => "0.0".to_owned(),
        (Fold::Sum | Fold::SumExp | Fold::Running(_), false) => "0".to_owned(),
        (Fold::Prod, true) => "1.0".to_owned(),
        (Fold::Prod, false) => "1".to_owned(),
        (Fold::Max, true) => "float('-inf')".to_owned(),
        (Fold::Min, true) => "float('inf')".to_owned(),
        (Fold::Max | Fold::Min, false) if dtype == Dtype::Bool => if fold == Fold::Min { "True" } else { "False" }.to_owned(),
        (Fold::Max, false) => least.to_string(),
        (Fold::Min, false) => greatest.to_string(),
        (Fold::Any, _) => "False".to_owned(),
    }
}

/// The reduction of a block along an axis.
pub fn reduce(fold: Fold, value: &str, axis: usize) -> String {
    match fold {
        Fold::Sum | Fold::SumExp | Fold::Running(_) => format!("tl.sum({value}, {axis})"),
        Fold::Prod => format!("triton_helpers.prod({value}, {axis})"),
        Fold::Max => format!("triton_helpers.max2({value}, {axis})"),
        Fold::Min => format!("triton_helpers.min2({value}, {axis})"),
        Fold::Any => format!("triton_helpers.any({value}, {axis})"),
    }
}

/// How tightly the parts of an expression hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Binding {
    /// Comparisons and logic.
    Comparison,
    /// Sums.
    Sum,
    /// Products and signs.
    Product,
    /// Names and calls.
    Atom,
}

/// The text of a value where it is used.
#[derive(Clone, Debug)]
pub struct Text {
    /// As it stands alone.
    pub alone: String,
    /// How tightly it holds together.
    pub binding: Binding,
}

impl Text {
    /// A name or a call.
    pub fn atom(text: String) -> Self {
        Self { alone: text, binding: Binding::Atom }
    }

    /// In parentheses, unless it holds together as tightly as asked.
    pub fn at_least(&self, binding: Binding) -> String {
        if self.binding < binding { format!("({})", self.alone) } else { self.alone.clone() }
    }

    /// Beside any operator, or before a dot.
    pub fn inner(&self) -> String {
        self.at_least(Binding::Atom)
    }
}

/// An argument of a function.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Its text.
    pub text: Text,
    /// Its type.
    pub dtype: Dtype,
    /// A number, whose type Triton does not know.
    pub is_literal: bool,
}

/// How tightly the text of a function holds together.
pub const fn binding(function: Function) -> Binding {
    use Function::*;
    match function {
        Add | Sub => Binding::Sum,
        Mul | Square | Truediv | Reciprocal | Neg => Binding::Product,
        Eq | Ne | Lt | Gt | Le | Ge | LogicalAnd | LogicalOr | LogicalXor | LogicalNot => Binding::Comparison,
        _ => Binding::Atom,
    }
}

/// An element-wise function of type `dtype`; [`binding`] says how tightly the text holds together.
///
/// # Errors
/// Where Triton has no such function of that type.
pub fn call(function: Function, args: &[Operand], dtype: Dtype, exp: Exp) -> Result<String, Unsupported> {
    use Function::*;
    if args.len() != function.arity() {
        return Err(Unsupported::new(format!("{} of {} arguments", function.name(), args.len())));
    }
    let inner: Vec<String> = args.iter().map(|arg| arg.text.inner()).collect();
    let alone: Vec<&str> = args.iter().map(|arg| arg.text.alone.as_str()).collect();
    let at = |k: usize| inner.get(k).map_or("", String::as_str);
    let (a, b) = (at(0), at(1));
    let is_float = dtype.is_float();
    let from_float = args.first().is_some_and(|arg| arg.dtype.is_float());
    let beside = |k: usize, binding: Binding| args[k].text.at_least(binding);
    let compared = |operator: &str| format!("{} {operator} {}", beside(0, Binding::Sum), beside(1, Binding::Sum));
    let is_bool = |k: usize| args.get(k).is_some_and(|arg| arg.dtype == Dtype::Bool);
    let truth = |k: usize| if is_bool(k) { at(k).to_owned() } else { format!("({} != 0)", at(k)) };
    let named = |name: &str| format!("{name}({})", alone.join(", "));
    let library = |name: &str| named(&format!("libdevice.{name}"));
    Ok(match function {
        Add => format!("{} + {}", beside(0, Binding::Sum), beside(1, Binding::Product)),
        Sub => format!("{} - {}", beside(0, Binding::Sum), beside(1, Binding::Product)),
        Mul => format!("{} * {b}", beside(0, Binding::Product)),
        Truediv => format!("{} / {b}", beside(0, Binding::Product)),
        Square => format!("{a} * {a}"),
        Reciprocal => format!("1.0 / {a}"),
        Neg => format!("-{a}"),
        Floordiv if is_float => format!("libdevice.floor({a} / {b})"),
        Floordiv => named("triton_helpers.div_floor_integer"),
        Truncdiv if is_float => format!("libdevice.trunc({a} / {b})"),
        Truncdiv => format!("({a} // {b})"),
        Mod | Fmod if is_float => library("fmod"),
        Mod | Fmod => format!("({a} % {b})"),
        Remainder if is_float => {
            let rest = library("fmod");
            format!("tl.where(({rest} != 0) & (({rest} < 0) != ({b} < 0)), {rest} + {b}, {rest})")
        }
        Remainder => named("triton_helpers.remainder_integer"),
        Maximum => extreme("maximum", dtype, alone[0], alone[1]),
        Minimum => extreme("minimum", dtype, alone[0], alone[1]),
        Relu => extreme("maximum", dtype, alone[0], if is_float { "0.0" } else { "0" }),
        Eq => compared("=="),
        Ne => compared("!="),
        Lt => compared("<"),
        Gt => compared(">"),
        Le => compared("<="),
        Ge => compared(">="),
        LogicalAnd => format!("{} & {}", truth(0), truth(1)),
        LogicalOr => format!("{} | {}", truth(0), truth(1)),
        LogicalXor => format!("{} ^ {}", truth(0), truth(1)),
        LogicalNot => format!("{} == 0", truth(0)),
        BitwiseAnd => format!("({a} & {b})"),
        BitwiseOr => format!("({a} | {b})"),
        BitwiseXor => format!("({a} ^ {b})"),
        BitwiseNot if dtype == Dtype::Bool => format!("({a} == 0)"),
        BitwiseNot => format!("(~{a})"),
        BitwiseLeftShift => format!("({a} << {b})"),
        BitwiseRightShift => format!("({a} >> {b})"),
        Where => {
            let condition = if is_bool(0) { alone[0].to_owned() } else { truth(0) };
            let chosen = format!("tl.where({condition}, {}, {})", alone[1], alone[2]);
            let known = args[1..].iter().any(|arg| !arg.is_literal) || dtype == Dtype::Float32;
            if known { chosen } else { format!("{chosen}.to({})", type_name(dtype)) }
        }
        Fma => named("tl.fma"),
        Abs => named("tl_math.abs"),
        Sign => format!("((0 < {a}).to(tl.int8) - ({a} < 0).to(tl.int8)).to({})", type_name(dtype)),
        Isnan if from_float => format!("({a} != {a})"),
        Isinf if from_float => format!("(tl_math.abs({a}) == float('inf'))"),
        Isnan | Isinf => format!("({a} != {a})"),
        Signbit if from_float => format!("(libdevice.signbit({a}) != 0)"),
        Signbit => format!("({a} < 0)"),
        Floor | Ceil | Trunc | Round | Identity if !is_float => a.to_owned(),
        Identity => a.to_owned(),
        Round => library("nearbyint"),
        Exp if exp == self::Exp::Base2 && dtype == Dtype::Float32 => named("tl_math.exp"),
        Sigmoid => named("tl.sigmoid"),
        Sqrt if is_float => named("tl.sqrt_rn"),
        Log | Sin | Cos => named(&format!("tl_math.{}", function.name())),
        Pow | Atan2 | Copysign | Hypot if is_float => library(&function.name()),
        Rsqrt | Exp | Exp2 | Expm1 | Log2 | Log10 | Log1p | Tan | Sinh | Cosh | Tanh | Asin | Acos | Atan | Asinh | Acosh | Atanh | Erf
        | Erfc | Floor | Ceil | Trunc
            if is_float =>
        {
            library(&function.name())
        }
        Pow | Atan2 | Copysign | Hypot | Rsqrt | Exp | Exp2 | Expm1 | Log2 | Log10 | Log1p | Tan | Sinh | Cosh | Tanh | Asin | Acos
        | Atan | Asinh | Acosh | Atanh | Erf | Erfc | Sqrt | Floor | Ceil | Trunc => {
            return Err(Unsupported::new(format!("{} of {dtype}", function.name())));
        }
    })
}
