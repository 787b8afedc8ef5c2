//! In which of three domains a value is computed, and how types combine.

use kernelopt_shared::dtype::Dtype;

/// The domain in which a value is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    /// binary64.
    Float,
    /// 64 bits, wrapped to the width of the type after each operation.
    Int,
    /// True or false.
    Bool,
}

impl Kind {
    pub(super) const fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::Bool => Self::Bool,
            dtype if dtype.is_float() => Self::Float,
            _ => Self::Int,
        }
    }
}

/// The type in which two values meet, as torch promotes tensors. All floats count as float64 here.
pub(super) fn promote(a: Dtype, b: Dtype) -> Dtype {
    match (Kind::of(a), Kind::of(b)) {
        (Kind::Float, _) | (_, Kind::Float) => Dtype::Float64,
        (Kind::Bool, _) => b,
        (_, Kind::Bool) => a,
        (Kind::Int, Kind::Int) => match (a, b) {
            (Dtype::Uint8, Dtype::Int8) | (Dtype::Int8, Dtype::Uint8) => Dtype::Int16,
            _ if a.size_bytes() >= b.size_bytes() => a,
            _ => b,
        },
    }
}

/// `value` wrapped to the width of an integer type.
pub(super) const fn wrap(value: i64, dtype: Dtype) -> i64 {
    match dtype {
        Dtype::Int32 => value as i32 as i64,
        Dtype::Int16 => value as i16 as i64,
        Dtype::Int8 => value as i8 as i64,
        Dtype::Uint8 => value as u8 as i64,
        _ => value,
    }
}

/// `value` rounded to a float type narrower than float32, by way of float32 as kernels do.
pub(super) fn round_to(value: f64, dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float16 => half::f16::from_f32(value as f32).to_f64(),
        Dtype::Bfloat16 => half::bf16::from_f32(value as f32).to_f64(),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_meet_as_in_torch() {
        assert_eq!(promote(Dtype::Uint8, Dtype::Int8), Dtype::Int16);
        assert_eq!(promote(Dtype::Bool, Dtype::Int32), Dtype::Int32);
        assert_eq!(promote(Dtype::Int64, Dtype::Bfloat16), Dtype::Float64);
        assert_eq!(promote(Dtype::Bool, Dtype::Bool), Dtype::Bool);
    }

    #[test]
    fn integers_wrap() {
        assert_eq!((wrap(-1, Dtype::Uint8), wrap(200, Dtype::Int8), wrap(1 << 31, Dtype::Int32)), (255, -56, -(1 << 31)));
    }

    #[test]
    fn rounding_to_nearest_even() {
        assert_eq!(round_to(1.0 + 1.0 / 256.0, Dtype::Bfloat16), 1.0);
        assert_eq!(round_to(1.0 + 3.0 / 256.0, Dtype::Bfloat16), 1.0 + 4.0 / 256.0);
        assert_eq!(round_to(1e6, Dtype::Float16), f64::INFINITY);
        assert_eq!(round_to(1.1, Dtype::Float32), 1.1, "float32 keeps double precision");
    }
}
