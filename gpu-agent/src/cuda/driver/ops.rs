//! Our own kernels on this device.

use std::collections::HashMap;
use std::ffi::c_void;

use super::api::{Context, Function, Module, Shape, Stream};
use super::image;
use crate::cuda::device::{DeviceError, Done, Span};
use crate::cuda::ops::Op;
use crate::cuda::ops::launch::{Argument, Machine, SCRATCH_BYTES, THREADS};

/// The ops, loaded, with their memory.
#[derive(Debug)]
pub(super) struct Ops {
    functions: HashMap<Op, Function>,
    scratch: Span,
    _module: Module,
}

impl Ops {
    /// Loads a cubin of [`crate::cuda::ops::SOURCE`].
    pub(super) fn load(cubin: &[u8]) -> Done<Self> {
        image::check(cubin)?;
        // SAFETY: just checked.
        let module = unsafe { Module::load(cubin) }?;
        let functions = Op::ALL.into_iter().map(|op| Ok((op, module.function(op.entry())?))).collect::<Done<_>>()?;
        Ok(Self { functions, scratch: Context::allocate(SCRATCH_BYTES)?, _module: module })
    }
}

impl Drop for Ops {
    fn drop(&mut self) {
        // SAFETY: allocated in `load`. A context that is lost cannot give memory back; the end of the process does that.
        let _ = unsafe { Context::free(self.scratch.address) };
    }
}

/// The ops on a stream.
pub(super) struct OnStream<'a> {
    pub(super) ops: &'a Ops,
    pub(super) stream: &'a Stream,
}

impl Machine for OnStream<'_> {
    fn scratch(&self) -> Span {
        self.ops.scratch
    }

    fn start(&mut self, op: Op, blocks: u32, arguments: &[Argument]) -> Done<()> {
        let function = self.ops.functions.get(&op).ok_or_else(|| DeviceError::Device(format!("no op {}", op.entry())))?;
        let mut pointers: Vec<*mut c_void> = arguments.iter().map(Argument::address).collect();
        let shape = Shape { grid: [blocks, 1, 1], threads: THREADS, shared_bytes: 0 };
        // SAFETY: `ops::launch` gives each op its own parameters, in order; they live until the call is over. Operands were found to be
        // in allocations of this device before.
        unsafe { self.stream.launch(function, shape, &mut pointers) }
    }

    fn wait(&mut self) -> Done<()> {
        self.stream.wait()
    }

    fn put(&mut self, to: Span, bytes: &[u8]) -> Done<()> {
        debug_assert_eq!(to.bytes, bytes.len() as u64);
        // SAFETY: ops write to their scratch memory only, which is as large as they know.
        unsafe { self.stream.put(to.address, bytes) }
    }

    fn get(&mut self, from: Span, bytes: &mut [u8]) -> Done<()> {
        debug_assert_eq!(from.bytes, bytes.len() as u64);
        // SAFETY: the same for reading.
        unsafe { self.stream.get(from.address, bytes) }
    }
}
