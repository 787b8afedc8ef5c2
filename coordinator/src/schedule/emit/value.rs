//! Values as C++ expressions.

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::{Expr, Function};

use super::super::Unsupported;
use super::super::bounds;
use super::super::graph::{Fold, Graph, Id, Number, Op};
use super::super::storage::Storage;
use super::index;

/// C++ type of values and memory of a type.
pub fn c_type(dtype: Dtype) -> Result<&'static str, Unsupported> {
    Ok(match dtype {
        Dtype::Float64 => "double",
        Dtype::Float32 => "float",
        Dtype::Int64 => "int64_t",
        Dtype::Int32 => "int32_t",
        Dtype::Int16 => "int16_t",
        Dtype::Int8 => "int8_t",
        Dtype::Uint8 => "uint8_t",
        Dtype::Bool => "bool",
        Dtype::Bfloat16 => "at::BFloat16",
        Dtype::Float16 => "at::Half",
    })
}

/// How values and loop variables are spelled where the code stands.
pub struct Names<'a> {
    /// A value that is not a constant.
    pub value: &'a dyn Fn(Id) -> String,
    /// A loop variable or symbol.
    pub variable: &'a dyn Fn(&str) -> String,
    /// A loop variable in 32 bits.
    pub narrow: &'a dyn Fn(&str) -> String,
    /// Whether an index runs through neighbours along the lanes: such a load can be masked in a vector.
    pub is_contiguous: &'a dyn Fn(&Expr) -> bool,
}

/// `$k` of an index are arguments of the value; everything else is a variable.
pub fn subscript(graph: &Graph, expr: &Expr, args: &[Id], names: &Names<'_>) -> String {
    index::subscript(expr, &|var| match var.strip_prefix('$').and_then(|k| k.parse::<usize>().ok()).and_then(|k| args.get(k)) {
        Some(arg) => operand(graph, *arg, names),
        None => (names.variable)(var),
    })
}

/// A value where it is used: a literal for a constant, else its name.
pub fn operand(graph: &Graph, id: Id, names: &Names<'_>) -> String {
    match graph.value(id).op {
        Op::Constant(number) => literal(number, graph.dtype(id)),
        _ => (names.value)(id),
    }
}

/// A constant of a type.
pub fn literal(number: Number, dtype: Dtype) -> String {
    match (number, dtype) {
        (Number::Int(value), Dtype::Bool) => (value != 0).to_string(),
        (Number::Int(i64::MIN), _) => "std::numeric_limits<int64_t>::min()".to_owned(),
        (Number::Int(value), Dtype::Int64) => format!("int64_t{{{value}}}"),
        (Number::Int(value), _) => value.to_string(),
        (Number::Float(bits), Dtype::Float64) => float(f64::from_bits(bits), "double", |v| format!("{v:?}")),
        (Number::Float(bits), _) => float(f64::from_bits(bits), "float", |v| format!("{:?}f", v as f32)),
    }
}

fn float(value: f64, c_type: &str, finite: impl Fn(f64) -> String) -> String {
    let suffix = if c_type == "float" { "f" } else { "" };
    let overflows = c_type == "float" && value.is_finite() && (value as f32).is_infinite();
    match value {
        v if v.is_nan() => format!("__builtin_nan{suffix}(\"\")"),
        v if v.is_infinite() || overflows => format!("({}__builtin_inf{suffix}())", if v < 0.0 { "-" } else { "" }),
        v if v < 0.0 => format!("({})", finite(v)),
        v => finite(v),
    }
}

/// The expression that computes a value.
///
/// # Errors
/// Where a function or type cannot be written.
pub fn expression(graph: &Graph, storage: &Storage<'_>, id: Id, names: &Names<'_>) -> Result<String, Unsupported> {
    let value = graph.value(id);
    let arg = |k: usize| value.args.get(k).map_or_else(String::new, |arg| operand(graph, *arg, names));
    let c_type = c_type(value.dtype)?;
    Ok(match &value.op {
        Op::Constant(number) => literal(*number, value.dtype),
        Op::Index(expr) if value.dtype == Dtype::Int32 => index::subscript(expr, names.narrow),
        Op::Index(expr) => subscript(graph, expr, &value.args, names),
        Op::Load { buffer, index, guarded } => {
            let place = subscript(graph, index, &value.args, names);
            let guard = if *guarded { arg(value.args.len() - 1) } else { String::new() };
            match (*guarded, (names.is_contiguous)(index)) {
                (false, _) => load(storage, buffer, &place)?,
                (true, true) => format!("({guard} ? {} : {c_type}(0))", load(storage, buffer, &place)?),
                // Without the condition it reads the first element, which is always there, and nobody uses it.
                (true, false) => load(storage, buffer, &format!("({place}) & -int64_t({guard})"))?,
            }
        }
        Op::Wrap { size, wrap_negative, check, guarded } => {
            let size = index::text(size, names.variable);
            let wrapped = if *wrap_negative { format!("wrap_index({}, {size})", arg(0)) } else { arg(0) };
            let guard = if *guarded { arg(1) } else { "true".to_owned() };
            if *check { format!("checked_index({wrapped}, {size}, {guard})") } else { wrapped }
        }
        Op::Cast => cast(&arg(0), graph.dtype(value.args[0]), value.dtype, c_type),
        Op::Bitcast => format!("bits_as<{c_type}>({})", arg(0)),
        Op::Call(function) => {
            let texts: Vec<String> = (0..value.args.len()).map(arg).collect();
            call(graph, *function, &value.args, &texts, value.dtype)?
        }
        Op::Reduce { .. } => return Err(Unsupported::new("a reduction is no expression")),
    })
}

fn load(storage: &Storage<'_>, buffer: &str, subscript: &str) -> Result<String, Unsupported> {
    let pointer = storage.read_through(buffer).map_or(buffer, |argument| argument.name.as_str());
    let element = format!("{pointer}[{subscript}]");
    Ok(match storage.dtype(buffer) {
        Dtype::Bfloat16 => format!("from_bf16({pointer}, {subscript})"),
        Dtype::Float16 => return Err(Unsupported::new("float16")),
        _ => element,
    })
}

/// The statement that stores `value` to an element.
pub fn store(storage: &Storage<'_>, buffer: &str, subscript: &str, value: &str) -> Result<String, Unsupported> {
    let pointer = storage.written_through(buffer).map_or(buffer, |argument| argument.name.as_str());
    Ok(match storage.dtype(buffer) {
        Dtype::Bfloat16 => format!("to_bf16({pointer}, {subscript}, {value});"),
        Dtype::Float16 => return Err(Unsupported::new("float16")),
        _ => format!("{pointer}[{subscript}] = {value};"),
    })
}

fn cast(value: &str, from: Dtype, to: Dtype, c_type: &str) -> String {
    match (from.is_float(), to) {
        (_, Dtype::Bool) => format!("({value} != 0)"),
        (true, Dtype::Uint8) => format!("static_cast<uint8_t>(static_cast<int64_t>({value}))"),
        _ => format!("static_cast<{c_type}>({value})"),
    }
}

/// A fold of two values.
pub fn fold(fold: Fold, dtype: Dtype, a: &str, b: &str) -> String {
    match (fold, dtype.is_float()) {
        (Fold::Sum, _) => format!("{a} + {b}"),
        (Fold::Prod, _) => format!("{a} * {b}"),
        (Fold::Max, true) => format!("max_nan({a}, {b})"),
        (Fold::Min, true) => format!("min_nan({a}, {b})"),
        (Fold::Max, false) => format!("({a} > {b} ? {a} : {b})"),
        (Fold::Min, false) => format!("({a} < {b} ? {a} : {b})"),
        (Fold::Any | Fold::SumExp | Fold::Running(_), _) => format!("bool({a} | ({b} != 0))"),
    }
}

/// The value that a fold starts from.
pub fn neutral(fold: Fold, dtype: Dtype) -> Result<String, Unsupported> {
    let limits = format!("std::numeric_limits<{}>::", c_type(dtype)?);
    Ok(match (fold, dtype.is_float()) {
        (Fold::Sum, _) => "0".to_owned(),
        (Fold::Prod, _) => "1".to_owned(),
        (Fold::Max, true) => "-__builtin_inf()".to_owned(),
        (Fold::Min, true) => "__builtin_inf()".to_owned(),
        (Fold::Max, false) => format!("{limits}lowest()"),
        (Fold::Min, false) => format!("{limits}max()"),
        (Fold::Any, _) => "false".to_owned(),
        (Fold::SumExp, _) => return Err(Unsupported::new("a sum of exponentials in one pass")),
        (Fold::Running(_), _) => return Err(Unsupported::new("running statistics")),
    })
}

fn call(graph: &Graph, function: Function, ids: &[Id], args: &[String], dtype: Dtype) -> Result<String, Unsupported> {
    use Function::*;
    let (a, b, c) = (args.first().map_or("", |s| s), args.get(1).map_or("", |s| s), args.get(2).map_or("", |s| s));
    let from = ids.last().map_or(dtype, |id| graph.dtype(*id));
    let is_float = dtype.is_float();
    let is_single = dtype == Dtype::Float32;
    let truth = |text: &str, id: Option<&Id>| {
        if id.is_some_and(|id| graph.dtype(*id) == Dtype::Bool) { text.to_owned() } else { format!("({text} != 0)") }
    };
    let infix = |op: &str| format!("({a} {op} {b})");
    // The compiler's own, not the library's: those inline whatever flags the library's headers were read under.
    let builtin = |name: &str| format!("__builtin_{name}{}", if dtype == Dtype::Float64 { "" } else { "f" });
    Ok(match function {
        Add => narrow(infix("+"), dtype)?,
        Sub => narrow(infix("-"), dtype)?,
        Mul => narrow(infix("*"), dtype)?,
        Truediv if ids.iter().all(|id| !graph.dtype(*id).is_float()) => format!("(static_cast<float>({a}) / static_cast<float>({b}))"),
        Truediv => infix("/"),
        Floordiv if is_float => format!("{}({a} / {b})", builtin("floor")),
        Floordiv => format!("floor_div({a}, {b})"),
        Truncdiv if is_float => format!("{}({a} / {b})", builtin("trunc")),
        Truncdiv => format!("trunc_div({a}, {b})"),
        Mod | Fmod if is_float => format!("std::fmod({a}, {b})"),
        Mod | Fmod => format!("trunc_mod({a}, {b})"),
        Remainder if is_float => format!("floor_fmod({a}, {b})"),
        Remainder => format!("floor_mod({a}, {b})"),
        Maximum if is_float => format!("max_nan({a}, {b})"),
        Minimum if is_float => format!("min_nan({a}, {b})"),
        Maximum => format!("({a} > {b} ? {a} : {b})"),
        Minimum => format!("({a} < {b} ? {a} : {b})"),
        Eq => infix("=="),
        Ne => infix("!="),
        Lt => infix("<"),
        Gt => infix(">"),
        Le => infix("<="),
        Ge => infix(">="),
        LogicalAnd => format!("bool({} & {})", truth(a, ids.first()), truth(b, ids.get(1))),
        LogicalOr => format!("bool({} | {})", truth(a, ids.first()), truth(b, ids.get(1))),
        LogicalXor => format!("({} != {})", truth(a, ids.first()), truth(b, ids.get(1))),
        LogicalNot => format!("(!{})", truth(a, ids.first())),
        BitwiseAnd => narrow(infix("&"), dtype)?,
        BitwiseOr => narrow(infix("|"), dtype)?,
        BitwiseXor => narrow(infix("^"), dtype)?,
        BitwiseNot if dtype == Dtype::Bool => format!("(!{a})"),
        BitwiseNot => narrow(format!("(~{a})"), dtype)?,
        Where if is_float || matches!(dtype, Dtype::Int32 | Dtype::Int64) => format!("select({a}, {b}, {c})"),
        Where => format!("({a} ? {b} : {c})"),
        Fma => format!("({a} * {b} + {c})"),
        Neg => narrow(format!("(-{a})"), dtype)?,
        Abs if is_float => format!("{}({a})", builtin("fabs")),
        Abs => format!("({a} < 0 ? -{a} : {a})"),
        Sign => format!("static_cast<{}>(({a} > 0) - ({a} < 0))", c_type(dtype)?),
        Reciprocal if is_float => format!("(1 / {a})"),
        Relu if is_float => format!("select({a} < 0, {}, {a})", literal(Number::Float(0), dtype)),
        Relu => format!("({a} < 0 ? 0 : {a})"),
        Isnan => format!("({a} != {a})"),
        Isinf if from.is_float() => format!("(__builtin_fabs({a}) == __builtin_inf())"),
        Signbit if from.is_float() => format!("(__builtin_copysign(1.0, {a}) < 0)"),
        Floor | Ceil | Trunc | Round if !is_float => a.to_owned(),
        Sqrt | Floor | Ceil | Trunc if is_float => format!("{}({a})", builtin(&function.name())),
        Rsqrt if is_float => format!("(1 / {}({a}))", builtin("sqrt")),
        Exp if is_single && ids.first().is_some_and(|id| bounds::upper(graph, *id) <= 64.0) => format!("exp_low_f32({a})"),
        Exp | Log | Erf | Tanh | Sigmoid | Expm1 | Log1p if is_single => format!("{}_f32({a})", function.name()),
        Sigmoid if is_float => format!("(1 / (1 + std::exp(-{a})))"),
        Copysign if is_float => format!("{}({a}, {b})", builtin("copysign")),
        Pow | Atan2 | Hypot if is_float => format!("std::{}({a}, {b})", function.name()),
        Round if is_float => format!("{}({a})", builtin("nearbyint")),
        Exp | Exp2 | Expm1 | Log | Log2 | Log10 | Log1p | Sin | Cos | Tan | Sinh | Cosh | Tanh | Asin | Acos | Atan | Asinh | Acosh
        | Atanh | Erf | Erfc
            if is_float =>
        {
            format!("std::{}({a})", function.name())
        }
        other => return Err(Unsupported::new(format!("{} of {dtype}", other.name()))),
    })
}

/// Arithmetic of narrow integers, which C++ does in `int`, brought back.
fn narrow(text: String, dtype: Dtype) -> Result<String, Unsupported> {
    match dtype {
        Dtype::Int16 | Dtype::Int8 | Dtype::Uint8 | Dtype::Bool => Ok(format!("static_cast<{}>{text}", c_type(dtype)?)),
        _ => Ok(text),
    }
}
