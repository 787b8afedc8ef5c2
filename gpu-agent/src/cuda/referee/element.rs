//! One element, for people.

use kernelopt_shared::dtype::Dtype;

use crate::cuda::device::{Device, DeviceError, Done, Elements, Span};
use crate::referee::values::{float_at, int_at};

/// The element `index` as a double.
pub fn read(device: &mut dyn Device, elements: Elements, index: u64) -> Done<f64> {
    let size = elements.dtype.size_bytes() as u64;
    let span = elements.span.part(index * size, size).ok_or_else(|| DeviceError::Device(format!("there is no element {index}")))?;
    let mut bytes = vec![0; size as usize];
    device.download(span, &mut bytes)?;
    let dtype = elements.dtype;
    Ok(if dtype.is_float() { float_at(&bytes, dtype, 0) } else { int_at(&bytes, dtype, 0) as f64 })
}

/// The same of a float64 tensor.
pub fn read_f64(device: &mut dyn Device, span: Span, index: u64) -> Done<f64> {
    read(device, Elements { span, dtype: Dtype::Float64 }, index)
}
