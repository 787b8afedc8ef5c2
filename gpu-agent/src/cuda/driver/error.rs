//! What a driver's error means for us.

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult as Code;

use crate::cuda::device::DeviceError;

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Loading an image.
    Loading,
    /// Starting a kernel.
    Launching,
    /// Anything else; the words complete "cannot".
    Other(&'static str),
}

/// Errors after which the context answers nothing else (CUDA driver API, `CUresult`: "the process must be terminated and relaunched").
const LOST: [Code; 10] = [
    Code::CUDA_ERROR_ILLEGAL_ADDRESS,
    Code::CUDA_ERROR_LAUNCH_TIMEOUT,
    Code::CUDA_ERROR_ASSERT,
    Code::CUDA_ERROR_HARDWARE_STACK_ERROR,
    Code::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    Code::CUDA_ERROR_MISALIGNED_ADDRESS,
    Code::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    Code::CUDA_ERROR_INVALID_PC,
    Code::CUDA_ERROR_LAUNCH_FAILED,
    Code::CUDA_ERROR_TENSOR_MEMORY_LEAK,
];

/// Errors of a launch that leave the context well.
const REFUSED: [Code; 6] = [
    Code::CUDA_ERROR_INVALID_VALUE,
    Code::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
    Code::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
    Code::CUDA_ERROR_INVALID_CLUSTER_SIZE,
    Code::CUDA_ERROR_OUT_OF_MEMORY,
    Code::CUDA_ERROR_NOT_SUPPORTED,
];

/// Errors of an image.
const BAD_IMAGE: [Code; 8] = [
    Code::CUDA_ERROR_INVALID_IMAGE,
    Code::CUDA_ERROR_NO_BINARY_FOR_GPU,
    Code::CUDA_ERROR_INVALID_PTX,
    Code::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
    Code::CUDA_ERROR_INVALID_SOURCE,
    Code::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
    Code::CUDA_ERROR_NOT_FOUND,
    Code::CUDA_ERROR_INVALID_VALUE,
];

/// The error to hand on.
pub(super) fn explain(doing: Doing) -> impl Fn(DriverError) -> DeviceError {
    move |error| {
        let words = words(error);
        match doing {
            _ if LOST.contains(&error.0) => DeviceError::Fault(words),
            Doing::Launching if REFUSED.contains(&error.0) => DeviceError::Refused(words),
            Doing::Loading if BAD_IMAGE.contains(&error.0) => DeviceError::Image(words),
            Doing::Loading => DeviceError::Device(format!("cannot load a kernel: {words}")),
            Doing::Launching => DeviceError::Device(format!("cannot start a kernel: {words}")),
            Doing::Other(what) => DeviceError::Device(format!("cannot {what}: {words}")),
        }
    }
}

/// The driver's own words, `an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)`.
pub(super) fn words(error: DriverError) -> String {
    let described = error.error_string().ok().map(|text| text.to_string_lossy().into_owned());
    let name = error.error_name().ok().map(|text| text.to_string_lossy().into_owned());
    match (described, name) {
        (Some(described), Some(name)) => format!("{described} ({name})"),
        _ => format!("{:?}", error.0),
    }
}
