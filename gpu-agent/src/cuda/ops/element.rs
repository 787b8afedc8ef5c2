//! Elements as doubles, and back (`element.cu`). NaN has one bit pattern in each type, so that implementations agree on it.

use half::{bf16, f16};
use kernelopt_shared::dtype::Dtype;

/// The one NaN.
pub const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// Number of a type in `element.cu`.
pub const fn code(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::Float64 => 0,
        Dtype::Float32 => 1,
        Dtype::Float16 => 2,
        Dtype::Bfloat16 => 3,
        Dtype::Int64 => 4,
        Dtype::Int32 => 5,
        Dtype::Int16 => 6,
        Dtype::Int8 => 7,
        Dtype::Uint8 => 8,
        Dtype::Bool => 9,
    }
}

/// Bits of element `index` of `bytes`.
pub fn bits(bytes: &[u8], dtype: Dtype, index: u64) -> u64 {
    let size = dtype.size_bytes();
    let at = index as usize * size;
    let mut word = [0u8; 8];
    word[..size].copy_from_slice(&bytes[at..at + size]);
    u64::from_le_bytes(word)
}

/// The element with these bits as a double: exact for floats, nearest for integers. A boolean is its byte.
pub fn number(dtype: Dtype, bits: u64) -> f64 {
    let value = match dtype {
        Dtype::Float64 => f64::from_bits(bits),
        Dtype::Float32 => f64::from(f32::from_bits(bits as u32)),
        Dtype::Float16 => f16::from_bits(bits as u16).to_f64(),
        Dtype::Bfloat16 => bf16::from_bits(bits as u16).to_f64(),
        Dtype::Int64 => bits as i64 as f64,
        Dtype::Int32 => f64::from(bits as i32),
        Dtype::Int16 => f64::from(bits as i16),
        Dtype::Int8 => f64::from(bits as i8),
        Dtype::Uint8 | Dtype::Bool => f64::from(bits as u8),
    };
    if value.is_nan() { NAN } else { value }
}

/// Bits of a double rounded to a float type, to nearest with ties to even, by way of float32 where it is narrower.
pub fn stored(dtype: Dtype, value: f64) -> u64 {
    let nan = value.is_nan();
    match dtype {
        Dtype::Float64 => (if nan { NAN } else { value }).to_bits(),
        Dtype::Float16 if nan => 0x7e00,
        Dtype::Float16 => f16::from_f32(value as f32).to_bits().into(),
        Dtype::Bfloat16 if nan => 0x7fc0,
        Dtype::Bfloat16 => bf16::from_f32(value as f32).to_bits().into(),
        _ if nan => 0x7fc0_0000,
        _ => (value as f32).to_bits().into(),
    }
}

/// Bits of an integer cut to the width of an integer type; any number but zero is true.
pub const fn cut(dtype: Dtype, value: i64) -> u64 {
    match dtype {
        Dtype::Bool => (value != 0) as u64,
        Dtype::Int64 => value as u64,
        Dtype::Int32 => value as u32 as u64,
        Dtype::Int16 => value as u16 as u64,
        _ => value as u8 as u64,
    }
}

/// Writes element `index` of `bytes`.
pub fn put(bytes: &mut [u8], dtype: Dtype, index: u64, bits: u64) {
    let size = dtype.size_bytes();
    let at = index as usize * size;
    bytes[at..at + size].copy_from_slice(&bits.to_le_bytes()[..size]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_narrow_float_comes_back() {
        for dtype in [Dtype::Float16, Dtype::Bfloat16] {
            for bits in 0..=0xffffu64 {
                let value = number(dtype, bits);
                if !value.is_nan() {
                    assert_eq!(stored(dtype, value), bits, "{dtype}");
                }
            }
        }
    }

    #[test]
    fn integers_are_cut_and_booleans_are_not() {
        assert_eq!((cut(Dtype::Int8, -1), cut(Dtype::Int16, 65_537), cut(Dtype::Bool, 256)), (0xff, 1, 1));
        assert_eq!((number(Dtype::Int8, 0xff), number(Dtype::Uint8, 0xff), number(Dtype::Bool, 2)), (-1.0, 255.0, 2.0));
    }
}
