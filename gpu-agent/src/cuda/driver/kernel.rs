//! A loaded kernel and its launches.

use std::ffi::c_void;

use super::api::{Function, Module, Shape, Stream};
use super::image;
use crate::cuda::device::{Binary, DeviceError, DeviceFacts, Done, Run, Value};

/// Dynamic shared memory of a block that needs no leave.
const PLAIN_SHARED_BYTES: u32 = 48 << 10;

/// A kernel that can be launched.
#[derive(Debug)]
pub(super) struct Kernel {
    function: Function,
    /// Sizes of the parameters, hidden ones included.
    parameters: Vec<usize>,
    hidden_pointers: usize,
    threads: u32,
    shared_bytes: u32,
    _module: Module,
}

impl Kernel {
    /// Loads a binary.
    pub(super) fn load(binary: &Binary, facts: &DeviceFacts) -> Done<Self> {
        binary.fits(facts)?;
        image::check(&binary.cubin)?;
        // SAFETY: just checked.
        let module = unsafe { Module::load(&binary.cubin) }?;
        let function = module.function(&binary.entry)?;
        if binary.shared_bytes > PLAIN_SHARED_BYTES {
            function.allow_shared_bytes(binary.shared_bytes)?;
        }
        Ok(Self {
            function,
            parameters: function.parameters(),
            hidden_pointers: binary.hidden_pointers as usize,
            threads: binary.threads,
            shared_bytes: binary.shared_bytes,
            _module: module,
        })
    }

    /// Enqueues one launch. The driver takes parameters without types: count and sizes are compared with the kernel's own here.
    pub(super) fn enqueue(&self, run: &Run, stream: &Stream) -> Done<()> {
        let sizes = run.arguments.iter().map(|value| value.size_bytes()).chain(std::iter::repeat_n(8, self.hidden_pointers));
        if !sizes.eq(self.parameters.iter().copied()) {
            let given = run.arguments.len() + self.hidden_pointers;
            let taken = &self.parameters;
            return Err(DeviceError::Refused(format!("{given} arguments, {:?}; the kernel's are of {taken:?} bytes", run.arguments)));
        }
        let mut words: Vec<u64> =
            run.arguments.iter().map(|value| value.word()).chain(std::iter::repeat_n(0, self.hidden_pointers)).collect();
        let mut pointers: Vec<*mut c_void> = words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect();
        let shape = Shape { grid: run.grid, threads: self.threads, shared_bytes: self.shared_bytes };
        // SAFETY: as many parameters as the kernel has, each in a word at least as large, which lives until the call is over.
        unsafe { stream.launch(&self.function, shape, &mut pointers) }
    }
}

impl Value {
    const fn size_bytes(self) -> usize {
        match self {
            Self::I32(_) | Self::F32(_) => 4,
            Self::Pointer(_) | Self::I64(_) | Self::F64(_) => 8,
        }
    }

    /// The value in the low bytes of a word.
    const fn word(self) -> u64 {
        match self {
            Self::Pointer(address) => address,
            Self::I32(value) => value as u32 as u64,
            Self::I64(value) => value as u64,
            Self::F32(bits) => bits as u64,
            Self::F64(bits) => bits,
        }
    }
}
