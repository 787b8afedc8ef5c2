//! Elements of a tensor as numbers that can be compared.

use kernelopt_shared::dtype::Dtype;

/// Reads element `index` of `bytes` as a double. Exact for every floating-point type.
pub fn float_at(bytes: &[u8], dtype: Dtype, index: usize) -> f64 {
    let size = dtype.size_bytes();
    let element = &bytes[index * size..(index + 1) * size];
    match dtype {
        Dtype::Float64 => f64::from_le_bytes(array(element)),
        Dtype::Float16 => half::f16::from_le_bytes(array(element)).to_f64(),
        Dtype::Bfloat16 => half::bf16::from_le_bytes(array(element)).to_f64(),
        _ => f64::from(f32::from_le_bytes(array(element))),
    }
}

/// Reads element `index` of `bytes` as an integer.
pub fn int_at(bytes: &[u8], dtype: Dtype, index: usize) -> i64 {
    let size = dtype.size_bytes();
    let element = &bytes[index * size..(index + 1) * size];
    match dtype {
        Dtype::Int64 => i64::from_le_bytes(array(element)),
        Dtype::Int32 => i32::from_le_bytes(array(element)).into(),
        Dtype::Int16 => i16::from_le_bytes(array(element)).into(),
        Dtype::Int8 => i64::from(element[0] as i8),
        _ => element[0].into(),
    }
}

/// Appends `value`, rounded to `dtype`.
pub fn push_float(bytes: &mut Vec<u8>, dtype: Dtype, value: f64) {
    match dtype {
        Dtype::Float64 => bytes.extend_from_slice(&value.to_le_bytes()),
        Dtype::Float16 => bytes.extend_from_slice(&half::f16::from_f64(value).to_le_bytes()),
        Dtype::Bfloat16 => bytes.extend_from_slice(&half::bf16::from_f64(value).to_le_bytes()),
        _ => bytes.extend_from_slice(&(value as f32).to_le_bytes()),
    }
}

/// Appends `value`, cut to `dtype`.
pub fn push_int(bytes: &mut Vec<u8>, dtype: Dtype, value: i64) {
    match dtype {
        Dtype::Int64 => bytes.extend_from_slice(&value.to_le_bytes()),
        Dtype::Int32 => bytes.extend_from_slice(&(value as i32).to_le_bytes()),
        Dtype::Int16 => bytes.extend_from_slice(&(value as i16).to_le_bytes()),
        Dtype::Bool => bytes.push(u8::from(value != 0)),
        _ => bytes.push(value as u8),
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}
