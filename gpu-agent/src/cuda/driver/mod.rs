//! The device behind NVIDIA's driver. The one module that knows cudarc.
//!
//! | file | noun |
//! |---|---|
//! | `api` | the driver's objects, owned |
//! | `error` | what its errors mean: refused, faulted, image, device |
//! | `image` | a cubin, checked before the driver reads it |
//! | `kernel`, `ops` | candidates' kernels and our own |
//! | `timing` | blocks of launches between events |
//! | `allocations` | who owns which memory |
//!
//! Errors after which a context answers nothing else are [`DeviceError::Fault`]: the process must end then, which is why
//! [`crate::cuda::process`] runs this device in a child.

mod allocations;
mod api;
mod error;
mod image;
mod kernel;
mod ops;
mod timing;

use std::collections::HashMap;

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use super::device::{
    Allowance, Binary, Block, Compared, Comparison, Device, DeviceError, DeviceFacts, DeviceState, Done, Draw, Elements, KernelId, Span,
    Step,
};
use super::devices::Absent;
use super::nvml::Monitor;
use super::ops::launch::{self, same};
use crate::referee::Errors;
use allocations::Allocations;
use api::{Context, Event, Gpu, Stream};
use kernel::Kernel;
use ops::{OnStream, Ops};

/// A GPU with a context of this process, one stream, and our own kernels loaded.
///
/// It stays on the thread that opened it, and a process opens one: its context is the current one of that thread. Fields are dropped in
/// this order: the context goes last.
#[derive(Debug)]
pub struct CudaDevice {
    kernels: HashMap<KernelId, Kernel>,
    ops: Ops,
    events: Vec<Event>,
    flush: Option<Span>,
    allocations: Allocations,
    stream: Stream,
    facts: DeviceFacts,
    monitor: Option<Monitor>,
    persisting_lines: bool,
    next: u64,
}

impl CudaDevice {
    /// Opens the GPU (or MIG instance) of that UUID, `GPU-...` or `MIG-...` as NVML prints it. `ops` is a cubin of
    /// [`super::ops::SOURCE`] for its architecture. Without `monitor` the device's state is not known.
    ///
    /// # Errors
    /// No driver or one that is too old, no such GPU, a context that cannot be made, a cubin that does not load.
    pub fn open(uuid: &str, ops: &[u8], monitor: Option<Monitor>) -> Done<Self> {
        let version = api::start()?;
        let gpu = find(uuid)?;
        let facts = facts(gpu, uuid, version, monitor.as_ref())?;
        let context = Context::open(gpu)?;
        // Behind an MPS server the limit is the server's.
        let persisting_lines =
            gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE)? > 0 && Context::forbid_persisting_lines().is_ok();
        let stream = Stream::new(&context)?;
        Ok(Self {
            kernels: HashMap::new(),
            ops: Ops::load(ops)?,
            events: Vec::new(),
            flush: None,
            allocations: Allocations::default(),
            stream,
            facts,
            monitor,
            persisting_lines,
            next: 0,
        })
    }

    /// The GPUs that this process may use.
    ///
    /// # Errors
    /// There is none, with the reason.
    pub fn list() -> Result<Vec<DeviceFacts>, Absent> {
        let version = api::start()?;
        let monitor = Monitor::open().ok();
        let describe = |gpu: Gpu| facts(gpu, &format!("GPU-{}", hyphenated(gpu.uuid()?)), version, monitor.as_ref());
        let found: Done<Vec<_>> = Gpu::all().and_then(|gpus| gpus.into_iter().map(describe).collect());
        match found {
            Ok(gpus) if gpus.is_empty() => Err(Absent::gpu()),
            Ok(gpus) => Ok(gpus),
            Err(error) => Err(Absent::Broken(error.to_string())),
        }
    }

    fn machine(&self) -> OnStream<'_> {
        OnStream { ops: &self.ops, stream: &self.stream }
    }

    fn check(&self, spans: impl IntoIterator<Item = Span>) -> Done<()> {
        spans.into_iter().try_for_each(|span| self.allocations.check(span))
    }

    fn kernel(&self, id: KernelId) -> Done<&Kernel> {
        self.kernels.get(&id).ok_or_else(|| DeviceError::Device("no such kernel is loaded".into()))
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        for address in self.allocations.drain().chain(self.flush.map(|span| span.address)) {
            // SAFETY: allocated by this device and not given back. A context that is lost cannot; the end of the process does that.
            let _ = unsafe { Context::free(address) };
        }
    }
}

/// The GPU of that UUID among those that this process may use.
fn find(uuid: &str) -> Done<Gpu> {
    let wanted = uuid.split_once('-').map_or(uuid, |(_, digits)| digits).to_ascii_lowercase();
    let mut seen = Vec::new();
    for gpu in Gpu::all()? {
        let found = hyphenated(gpu.uuid()?);
        if found == wanted {
            return Ok(gpu);
        }
        seen.push(found);
    }
    Err(DeviceError::Device(format!("no GPU {uuid} here; there are {}: {}", seen.len(), seen.join(", "))))
}

/// A UUID in its usual form (RFC 9562).
fn hyphenated(uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn facts(gpu: Gpu, uuid: &str, version: i32, monitor: Option<&Monitor>) -> Done<DeviceFacts> {
    let major = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let driver = monitor.and_then(Monitor::driver_version);
    Ok(DeviceFacts {
        name: gpu.name()?,
        uuid: uuid.into(),
        architecture: major * 10 + minor,
        multiprocessors: gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        l2_bytes: gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        memory_bytes: gpu.memory_bytes()?,
        shared_bytes: gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        driver: driver.unwrap_or_else(|| format!("for CUDA {}.{}", version / 1000, version % 1000 / 10)),
    })
}

impl Device for CudaDevice {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn state(&mut self) -> DeviceState {
        self.monitor.as_ref().map_or_else(DeviceState::default, |monitor| monitor.state(&self.facts.uuid))
    }

    fn allocate(&mut self, bytes: u64) -> Done<Span> {
        let span = Context::allocate(bytes)?;
        self.allocations.add(span);
        Ok(span)
    }

    fn free(&mut self, memory: Span) -> Done<()> {
        self.allocations.remove(memory)?;
        // SAFETY: it was an allocation until the line above. Work on it is over, since every call waits for its own.
        unsafe { Context::free(memory.address) }
    }

    fn allocated_bytes(&self) -> u64 {
        self.allocations.bytes()
    }

    fn upload(&mut self, to: Span, bytes: &[u8]) -> Done<()> {
        self.check([to])?;
        same(to.bytes, bytes.len() as u64)?;
        // SAFETY: the span is in an allocation and as long as the bytes.
        unsafe { self.stream.put(to.address, bytes) }
    }

    fn download(&mut self, from: Span, bytes: &mut [u8]) -> Done<()> {
        self.check([from])?;
        same(from.bytes, bytes.len() as u64)?;
        // SAFETY: the span is in an allocation and as long as the bytes.
        unsafe { self.stream.get(from.address, bytes) }
    }

    fn copy(&mut self, from: Span, to: Span) -> Done<()> {
        self.check([from, to])?;
        same(from.bytes, to.bytes)?;
        // SAFETY: both spans are in allocations and of one length.
        unsafe { self.stream.copy(from.address, to.address, from.bytes) }?;
        self.stream.wait()
    }

    fn load(&mut self, binary: &Binary) -> Done<KernelId> {
        let kernel = Kernel::load(binary, &self.facts)?;
        let id = KernelId(self.next);
        self.next += 1;
        self.kernels.insert(id, kernel);
        Ok(id)
    }

    fn unload(&mut self, kernel: KernelId) -> Done<()> {
        self.kernels.remove(&kernel).map(drop).ok_or_else(|| DeviceError::Device("no such kernel is loaded".into()))
    }

    fn run(&mut self, steps: &[Step]) -> Done<()> {
        let enqueued = steps.iter().try_for_each(|step| self.enqueue(step));
        let waited = self.stream.wait();
        enqueued.and(waited)
    }

    fn time(&mut self, blocks: &[Block]) -> Done<Vec<f64>> {
        self.time_blocks(blocks)
    }

    fn sweep(&mut self, from: Span, to: Option<Span>, passes: u32) -> Done<f64> {
        self.check([from].into_iter().chain(to))?;
        self.time_sweep(from, to, passes)
    }

    fn draw(&mut self, to: Elements, draw: &Draw<'_>) -> Done<()> {
        self.check([to.span])?;
        launch::draw(&mut self.machine(), to, draw)
    }

    fn poison(&mut self, to: Span, seed: u64) -> Done<()> {
        self.check([to])?;
        launch::poison(&mut self.machine(), to, seed)
    }

    fn first_unpoisoned(&mut self, span: Span, seed: u64) -> Done<Option<u64>> {
        self.check([span])?;
        launch::first_unpoisoned(&mut self.machine(), span, seed)
    }

    fn digest(&mut self, span: Span) -> Done<u64> {
        self.check([span])?;
        launch::digest(&mut self.machine(), span)
    }

    fn widen(&mut self, from: Elements, to: Span) -> Done<()> {
        self.check([from.span, to])?;
        launch::widen(&mut self.machine(), from, to)
    }

    fn errors(&mut self, values: Elements, truth: Span, rounded: Option<Span>, truth_poison: u64) -> Done<Errors> {
        self.check([values.span, truth].into_iter().chain(rounded))?;
        launch::errors(&mut self.machine(), values, truth, rounded, truth_poison)
    }

    fn compare(&mut self, what: &Compared, allowance: &Allowance) -> Done<Comparison> {
        self.check([what.values.span, what.baseline.span, what.truth].into_iter().chain(what.rounded))?;
        launch::compare(&mut self.machine(), what, allowance)
    }

    fn first_difference(&mut self, a: Elements, b: Elements) -> Done<Option<u64>> {
        self.check([a.span, b.span])?;
        launch::first_difference(&mut self.machine(), a, b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_their_usual_form() {
        let bytes = std::array::from_fn(|i| 16 * i as u8 + 10);
        assert_eq!(hyphenated(bytes), "0a1a2a3a-4a5a-6a7a-8a9a-aabacadaeafa");
    }

    /// On a host with a GPU there is one by that name or none; on one without a driver there is a reason, and no panic.
    #[test]
    fn a_gpu_that_is_not_there_is_an_error() {
        let error = CudaDevice::open("GPU-0a1a2a3a-4a5a-6a7a-8a9a-aabacadaeafa", &[], None).err();
        assert!(matches!(&error, Some(DeviceError::Device(why)) if why.contains("GPU") || why.contains("driver")), "{error:?}");
    }
}
