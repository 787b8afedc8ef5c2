//! Element-wise functions over registers.

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::Function;

use super::erf::erf_of;
use super::functions as scalar;
use super::program::Slot;
use super::registers::{Arg, Registers, map1, map2, map3};
use super::types::{Kind, wrap};

/// `to = function(args)` for the first `lanes` lanes. Arguments are of one kind (for [`Function::Where`] after the condition).
pub(super) fn apply(registers: &mut Registers, function: Function, to: Slot, args: &[Slot], lanes: usize) {
    match (args, to.kind) {
        ([a, b, c], kind) if function == Function::Where => match kind {
            Kind::Float => {
                registers.write(to, lanes, |r, out: &mut [f64]| select(out, r.arg(*a, lanes), r.arg(*b, lanes), r.arg(*c, lanes)))
            }
            Kind::Int => registers.write(to, lanes, |r, out: &mut [i64]| select(out, r.arg(*a, lanes), r.arg(*b, lanes), r.arg(*c, lanes))),
            Kind::Bool => {
                registers.write(to, lanes, |r, out: &mut [bool]| select(out, r.arg(*a, lanes), r.arg(*b, lanes), r.arg(*c, lanes)))
            }
        },
        ([a, b, c], Kind::Float) => {
            registers.write(to, lanes, |r, out| map3(out, r.arg(*a, lanes), r.arg(*b, lanes), r.arg(*c, lanes), f64::mul_add));
        }
        ([a, b, c], _) => registers.write(to, lanes, |r, out: &mut [i64]| {
            map3(out, r.arg(*a, lanes), r.arg(*b, lanes), r.arg(*c, lanes), |a: i64, b: i64, c: i64| a.wrapping_mul(b).wrapping_add(c));
        }),
        ([a, b], Kind::Float) => registers.write(to, lanes, |r, out| float2(function, out, r.arg(*a, lanes), r.arg(*b, lanes))),
        ([a, b], Kind::Int) => registers.write(to, lanes, |r, out| int2(function, out, r.arg(*a, lanes), r.arg(*b, lanes))),
        ([a, b], Kind::Bool) => registers.write(to, lanes, |r, out| match a.kind {
            Kind::Float => compare(function, out, r.arg::<f64>(*a, lanes), r.arg::<f64>(*b, lanes)),
            Kind::Int => compare(function, out, r.arg::<i64>(*a, lanes), r.arg::<i64>(*b, lanes)),
            Kind::Bool => bool2(function, out, r.arg(*a, lanes), r.arg(*b, lanes)),
        }),
        ([a], Kind::Float) => registers.write(to, lanes, |r, out| float1(function, out, r.arg(*a, lanes))),
        ([a], Kind::Int) => registers.write(to, lanes, |r, out| int1(function, out, r.arg(*a, lanes))),
        ([a], Kind::Bool) => registers.write(to, lanes, |r, out| match a.kind {
            Kind::Float => classify(function, out, r.arg(*a, lanes)),
            Kind::Int => map1(out, r.arg(*a, lanes), |x: i64| function == Function::Signbit && x < 0),
            Kind::Bool => bool1(function, out, r.arg(*a, lanes)),
        }),
        _ => {}
    }
}

fn select<T: Copy>(out: &mut [T], condition: Arg<'_, bool>, yes: Arg<'_, T>, no: Arg<'_, T>) {
    map3(out, condition, yes, no, |c, a, b| if c { a } else { b });
}

fn float1(function: Function, out: &mut [f64], a: Arg<'_, f64>) {
    use Function as F;
    match function {
        F::Neg => map1(out, a, |x| -x),
        F::Abs => map1(out, a, f64::abs),
        F::Sign => map1(out, a, scalar::sign),
        F::Square => map1(out, a, |x| x * x),
        F::Reciprocal => map1(out, a, |x| 1.0 / x),
        F::Relu => map1(out, a, scalar::relu),
        F::Sigmoid => map1(out, a, scalar::sigmoid),
        F::Sqrt => map1(out, a, f64::sqrt),
        F::Rsqrt => map1(out, a, |x| 1.0 / x.sqrt()),
        F::Exp => map1(out, a, f64::exp),
        F::Exp2 => map1(out, a, f64::exp2),
        F::Expm1 => map1(out, a, f64::exp_m1),
        F::Log => map1(out, a, f64::ln),
        F::Log2 => map1(out, a, f64::log2),
        F::Log10 => map1(out, a, f64::log10),
        F::Log1p => map1(out, a, f64::ln_1p),
        F::Sin => map1(out, a, f64::sin),
        F::Cos => map1(out, a, f64::cos),
        F::Tan => map1(out, a, f64::tan),
        F::Sinh => map1(out, a, f64::sinh),
        F::Cosh => map1(out, a, f64::cosh),
        F::Tanh => map1(out, a, f64::tanh),
        F::Asin => map1(out, a, f64::asin),
        F::Acos => map1(out, a, f64::acos),
        F::Atan => map1(out, a, f64::atan),
        // The standard library computes these three from logarithms and loses digits near zero.
        F::Asinh => map1(out, a, libm::asinh),
        F::Acosh => map1(out, a, libm::acosh),
        F::Atanh => map1(out, a, libm::atanh),
        F::Erf => map1(out, a, erf_of()),
        F::Erfc => map1(out, a, libm::erfc),
        F::Floor => map1(out, a, f64::floor),
        F::Ceil => map1(out, a, f64::ceil),
        F::Trunc => map1(out, a, f64::trunc),
        F::Round => map1(out, a, f64::round_ties_even),
        _ => map1(out, a, |x| x),
    }
}

fn float2(function: Function, out: &mut [f64], a: Arg<'_, f64>, b: Arg<'_, f64>) {
    use Function as F;
    match function {
        F::Add => map2(out, a, b, |a, b| a + b),
        F::Sub => map2(out, a, b, |a, b| a - b),
        F::Mul => map2(out, a, b, |a, b| a * b),
        F::Truediv => map2(out, a, b, |a, b| a / b),
        F::Floordiv => map2(out, a, b, scalar::floor_div),
        F::Truncdiv => map2(out, a, b, |a, b| (a / b).trunc()),
        F::Mod | F::Fmod => map2(out, a, b, |a, b| a % b),
        F::Remainder => map2(out, a, b, scalar::remainder),
        F::Pow => map2(out, a, b, f64::powf),
        F::Atan2 => map2(out, a, b, f64::atan2),
        F::Copysign => map2(out, a, b, f64::copysign),
        F::Hypot => map2(out, a, b, f64::hypot),
        F::Maximum => map2(out, a, b, scalar::maximum),
        F::Minimum => map2(out, a, b, scalar::minimum),
        _ => map1(out, a, |x| x),
    }
}

fn int1(function: Function, out: &mut [i64], a: Arg<'_, i64>) {
    use Function as F;
    match function {
        F::Neg => map1(out, a, i64::wrapping_neg),
        F::Abs => map1(out, a, i64::wrapping_abs),
        F::Sign => map1(out, a, i64::signum),
        F::Square => map1(out, a, |x| x.wrapping_mul(x)),
        F::Relu => map1(out, a, |x| x.max(0)),
        F::BitwiseNot => map1(out, a, |x: i64| !x),
        _ => map1(out, a, |x| x),
    }
}

fn int2(function: Function, out: &mut [i64], a: Arg<'_, i64>, b: Arg<'_, i64>) {
    use Function as F;
    match function {
        F::Add => map2(out, a, b, i64::wrapping_add),
        F::Sub => map2(out, a, b, i64::wrapping_sub),
        F::Mul => map2(out, a, b, i64::wrapping_mul),
        F::Floordiv => map2(out, a, b, scalar::int_floor_div),
        F::Truncdiv => map2(out, a, b, scalar::int_trunc_div),
        F::Mod | F::Fmod => map2(out, a, b, scalar::int_mod),
        F::Remainder => map2(out, a, b, scalar::int_remainder),
        F::Pow => map2(out, a, b, scalar::int_pow),
        F::Maximum => map2(out, a, b, i64::max),
        F::Minimum => map2(out, a, b, i64::min),
        F::BitwiseAnd => map2(out, a, b, |a, b| a & b),
        F::BitwiseOr => map2(out, a, b, |a, b| a | b),
        F::BitwiseXor => map2(out, a, b, |a, b| a ^ b),
        _ => map1(out, a, |x| x),
    }
}

fn compare<T: Copy + PartialOrd>(function: Function, out: &mut [bool], a: Arg<'_, T>, b: Arg<'_, T>) {
    use Function as F;
    match function {
        F::Eq => map2(out, a, b, |a, b| a == b),
        F::Ne => map2(out, a, b, |a, b| a != b),
        F::Lt => map2(out, a, b, |a, b| a < b),
        F::Gt => map2(out, a, b, |a, b| a > b),
        F::Le => map2(out, a, b, |a, b| a <= b),
        _ => map2(out, a, b, |a, b| a >= b),
    }
}

fn bool1(function: Function, out: &mut [bool], a: Arg<'_, bool>) {
    use Function as F;
    match function {
        F::LogicalNot | F::BitwiseNot => map1(out, a, |x: bool| !x),
        F::Isnan | F::Isinf | F::Signbit => map1(out, a, |_| false),
        _ => map1(out, a, |x| x),
    }
}

fn bool2(function: Function, out: &mut [bool], a: Arg<'_, bool>, b: Arg<'_, bool>) {
    use Function as F;
    match function {
        F::LogicalAnd | F::BitwiseAnd | F::Minimum => map2(out, a, b, |a, b| a & b),
        F::LogicalOr | F::BitwiseOr | F::Maximum => map2(out, a, b, |a, b| a | b),
        F::LogicalXor | F::BitwiseXor => map2(out, a, b, |a, b| a ^ b),
        _ => compare(function, out, a, b),
    }
}

fn classify(function: Function, out: &mut [bool], a: Arg<'_, f64>) {
    match function {
        Function::Isnan => map1(out, a, f64::is_nan),
        Function::Isinf => map1(out, a, f64::is_infinite),
        _ => map1(out, a, f64::is_sign_negative),
    }
}

/// `to = a << b` or `a >> b` in the integer type `dtype`.
pub(super) fn shift(registers: &mut Registers, function: Function, to: Slot, (a, b): (Slot, Slot), dtype: Dtype, lanes: usize) {
    let bits = 8 * dtype.size_bytes() as i64;
    registers.write(to, lanes, |r, out| match function {
        Function::BitwiseLeftShift => map2(out, r.arg(a, lanes), r.arg(b, lanes), |a, b| scalar::shift_left(a, b, bits)),
        _ => map2(out, r.arg(a, lanes), r.arg(b, lanes), |a, b| scalar::shift_right(a, b, bits)),
    });
}

/// Changes the kind of a value: floats lose their fraction (NaN becomes zero), booleans are one or zero, numbers are true where not zero.
pub(super) fn convert(registers: &mut Registers, to: Slot, from: Slot, lanes: usize) {
    match (from.kind, to.kind) {
        (Kind::Float, Kind::Int) => registers.write(to, lanes, |r, out: &mut [i64]| map1(out, r.arg(from, lanes), |x: f64| x as i64)),
        (Kind::Float, Kind::Bool) => registers.write(to, lanes, |r, out: &mut [bool]| map1(out, r.arg(from, lanes), |x: f64| x != 0.0)),
        (Kind::Int, Kind::Float) => registers.write(to, lanes, |r, out: &mut [f64]| map1(out, r.arg(from, lanes), |x: i64| x as f64)),
        (Kind::Int, Kind::Bool) => registers.write(to, lanes, |r, out: &mut [bool]| map1(out, r.arg(from, lanes), |x: i64| x != 0)),
        (Kind::Bool, Kind::Float) => registers.write(to, lanes, |r, out: &mut [f64]| map1(out, r.arg(from, lanes), |x: bool| x.into())),
        (Kind::Bool, Kind::Int) => registers.write(to, lanes, |r, out: &mut [i64]| map1(out, r.arg(from, lanes), |x: bool| x.into())),
        (Kind::Float, Kind::Float) => registers.write(to, lanes, |r, out: &mut [f64]| map1(out, r.arg(from, lanes), |x: f64| x)),
        (Kind::Int, Kind::Int) => registers.write(to, lanes, |r, out: &mut [i64]| map1(out, r.arg(from, lanes), |x: i64| x)),
        (Kind::Bool, Kind::Bool) => registers.write(to, lanes, |r, out: &mut [bool]| map1(out, r.arg(from, lanes), |x: bool| x)),
    }
}

/// Wraps integers to the width of `dtype`.
pub(super) fn wrap_to(registers: &mut Registers, to: Slot, from: Slot, dtype: Dtype, lanes: usize) {
    registers.write(to, lanes, |r, out| match dtype {
        Dtype::Int32 => map1(out, r.arg(from, lanes), |x| wrap(x, Dtype::Int32)),
        _ => map1(out, r.arg(from, lanes), |x| wrap(x, dtype)),
    });
}

/// Reads the bits of a value of type `source` as type `target`, of the same width.
pub(super) fn bitcast(registers: &mut Registers, to: Slot, from: Slot, (source, target): (Dtype, Dtype), lanes: usize) {
    let bits = |r: &Registers, lane: usize| match from.kind {
        Kind::Float => float_bits(r.arg::<f64>(from, lanes).lane(lane), source),
        Kind::Int => r.arg::<i64>(from, lanes).lane(lane),
        Kind::Bool => r.arg::<bool>(from, lanes).lane(lane).into(),
    };
    match to.kind {
        Kind::Float => registers.write(to, lanes, |r, out: &mut [f64]| fill(out, |lane| float_of_bits(bits(r, lane), target))),
        Kind::Int => registers.write(to, lanes, |r, out: &mut [i64]| fill(out, |lane| wrap(bits(r, lane), target))),
        Kind::Bool => registers.write(to, lanes, |r, out: &mut [bool]| fill(out, |lane| bits(r, lane) & 0xff != 0)),
    }
}

fn fill<T>(out: &mut [T], value: impl Fn(usize) -> T) {
    out.iter_mut().enumerate().for_each(|(lane, out)| *out = value(lane));
}

fn float_bits(value: f64, dtype: Dtype) -> i64 {
    match dtype {
        Dtype::Float64 => value.to_bits() as i64,
        Dtype::Float16 => half::f16::from_f64(value).to_bits().into(),
        Dtype::Bfloat16 => half::bf16::from_f64(value).to_bits().into(),
        _ => (value as f32).to_bits().into(),
    }
}

fn float_of_bits(bits: i64, dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float64 => f64::from_bits(bits as u64),
        Dtype::Float16 => half::f16::from_bits(bits as u16).to_f64(),
        Dtype::Bfloat16 => half::bf16::from_bits(bits as u16).to_f64(),
        _ => f32::from_bits(bits as u32).into(),
    }
}
