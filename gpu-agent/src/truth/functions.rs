//! What each element-wise function means for one value, where the standard library has no function of that meaning.

/// C's `fmod` with the sign of the divisor, as Python's `%`.
pub(super) fn remainder(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) { rest + b } else { rest }
}

/// Division rounded to minus infinity, without the error of rounding the quotient first (c10::div_floor_floating).
pub(super) fn floor_div(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return a / b;
    }
    let rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return 0.0f64.copysign(a / b);
    }
    let floor = quotient.floor();
    if quotient - floor > 0.5 { floor + 1.0 } else { floor }
}

/// Maximum; NaN wins.
pub(super) fn maximum(a: f64, b: f64) -> f64 {
    if a < b || (b.is_nan() && !a.is_nan()) { b } else { a }
}

/// Minimum; NaN wins.
pub(super) fn minimum(a: f64, b: f64) -> f64 {
    if a > b || (b.is_nan() && !a.is_nan()) { b } else { a }
}

/// -1, 0 or 1; zero for NaN, as compiled kernels give.
pub(super) fn sign(x: f64) -> f64 {
    f64::from(u8::from(x > 0.0)) - f64::from(u8::from(x < 0.0))
}

/// `max(x, 0)`; NaN and -0.0 stay.
pub(super) fn relu(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// Logistic function.
pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Division rounded to minus infinity; zero for a divisor of zero, which no kernel that is defined divides by.
pub(super) const fn int_floor_div(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

/// Division rounded to zero; zero for a divisor of zero.
pub(super) const fn int_trunc_div(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_div(b) }
}

/// Remainder with the sign of the dividend; zero for a divisor of zero.
pub(super) const fn int_mod(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_rem(b) }
}

/// Remainder with the sign of the divisor; zero for a divisor of zero.
pub(super) const fn int_remainder(a: i64, b: i64) -> i64 {
    let rest = int_mod(a, b);
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

/// `a` to the power of `b`, wrapping. A negative power is the integer part of the true value.
pub(super) const fn int_pow(a: i64, b: i64) -> i64 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 => {
                if b % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            _ => 0,
        };
    }
    let (mut base, mut power, mut result) = (a, b, 1i64);
    while power > 0 {
        if power & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        power >>= 1;
    }
    result
}

/// `a << b` in a type of so many bits; zero where the count is out of range.
pub(super) const fn shift_left(a: i64, b: i64, bits: i64) -> i64 {
    if b < 0 || b >= bits { 0 } else { a << b }
}

/// `a >> b` in a type of so many bits; all sign bits where the count is out of range.
pub(super) const fn shift_right(a: i64, b: i64, bits: i64) -> i64 {
    if b < 0 || b >= bits { a >> 63 } else { a >> b }
}
