//! The driver's objects, each owned by a value that gives it back. Everything here belongs to one context, which is current on the one
//! thread that these values can be on (they hold raw pointers, so they cannot leave it).

use std::ffi::{CString, c_int, c_void};
use std::rc::Rc;

use cudarc::driver::result::{self, device, event, graph, module, primary_ctx, stream};
use cudarc::driver::sys::{
    self, CUctx_flags, CUdevice, CUdevice_attribute, CUevent, CUevent_flags, CUfunction, CUfunction_attribute, CUgraphExec,
    CUgraphInstantiate_flags, CUlimit, CUmodule, CUstream, CUstreamCaptureMode,
};

use super::error::{Doing, explain, words};
use crate::cuda::device::{DeviceError, Done, Span};
use crate::cuda::devices::{Absent, LEAST_DRIVER};

/// Version of the driver's API, `1000 * major + 10 * minor`.
///
/// # Errors
/// No driver, one that is too old, or one without a GPU.
pub(super) fn start() -> Result<c_int, Absent> {
    // SAFETY: opens and closes libraries by the names of NVIDIA's driver, whose initialisers have no preconditions.
    if !unsafe { sys::is_culib_present() } {
        return Err(Absent::Driver);
    }
    let mut version = 0;
    // SAFETY: the pointer is good for one integer.
    let asked = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result();
    asked.map_err(|error| Absent::Broken(format!("the driver does not tell its version: {}", words(error))))?;
    if version < LEAST_DRIVER {
        return Err(Absent::Old { version });
    }
    match result::init() {
        Ok(()) => Ok(version),
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => Err(Absent::gpu()),
        Err(error) => Err(Absent::Broken(format!("the driver does not start: {}", words(error)))),
    }
}

/// A GPU, or an instance of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gpu(CUdevice);

impl Gpu {
    /// All that this process may use.
    pub(super) fn all() -> Done<Vec<Self>> {
        let other = explain(Doing::Other("list the GPUs"));
        (0..device::get_count().map_err(&other)?).map(|ordinal| device::get(ordinal).map(Self).map_err(&other)).collect()
    }

    /// The sixteen bytes of its UUID.
    pub(super) fn uuid(self) -> Done<[u8; 16]> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the pointer is good for one UUID, the device came from the driver.
        unsafe { sys::cuDeviceGetUuid_v2(&raw mut uuid, self.0) }.result().map_err(explain(Doing::Other("read a GPU's UUID")))?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    pub(super) fn name(self) -> Done<String> {
        device::get_name(self.0).map_err(explain(Doing::Other("read a GPU's name")))
    }

    pub(super) fn memory_bytes(self) -> Done<u64> {
        // SAFETY: the device came from the driver.
        unsafe { device::total_mem(self.0) }.map(|bytes| bytes as u64).map_err(explain(Doing::Other("read a GPU's memory")))
    }

    pub(super) fn attribute(self, attribute: CUdevice_attribute) -> Done<u32> {
        // SAFETY: the device came from the driver.
        let value = unsafe { device::get_attribute(self.0, attribute) }.map_err(explain(Doing::Other("read a GPU's properties")))?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
}

/// A GPU's primary context.
#[derive(Debug)]
pub(super) struct Context(Gpu);

impl Context {
    /// Makes it, and makes it current on this thread.
    pub(super) fn open(gpu: Gpu) -> Done<Rc<Self>> {
        let other = explain(Doing::Other("open the GPU"));
        // While the host waits, its core builds the next candidates.
        let flags = CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC as u32;
        // SAFETY: the device came from the driver. That another context of this process has it already is no failure.
        let _ = unsafe { sys::cuDevicePrimaryCtxSetFlags_v2(gpu.0, flags) };
        // SAFETY: the device came from the driver.
        let context = unsafe { primary_ctx::retain(gpu.0) }.map_err(&other)?;
        let owned = Rc::new(Self(gpu));
        // SAFETY: the context was just made.
        unsafe { result::ctx::set_current(context) }.map_err(&other)?;
        Ok(owned)
    }

    /// Free bytes of device memory.
    pub(super) fn free_bytes() -> u64 {
        result::mem_get_info().map_or(0, |(free, _)| free as u64)
    }

    /// Takes away the part of the L2 cache in which lines can be made to stay.
    pub(super) fn forbid_persisting_lines() -> Done<()> {
        result::ctx::set_limit(CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0).map_err(explain(Doing::Other("set a cache limit")))
    }

    /// Makes lines that were to stay in the L2 cache ordinary ones.
    pub(super) fn reset_persisting_lines() -> Done<()> {
        // SAFETY: no preconditions but a current context.
        unsafe { sys::cuCtxResetPersistingL2Cache() }.result().map_err(explain(Doing::Other("reset the cache")))
    }

    /// Memory, aligned to 256 bytes. A span without bytes has an address of its own, too.
    pub(super) fn allocate(bytes: u64) -> Done<Span> {
        // SAFETY: a current context is all that it needs.
        match unsafe { result::malloc_sync(bytes.max(1) as usize) } {
            Ok(address) => Ok(Span { address, bytes }),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                Err(DeviceError::OutOfMemory { bytes, free: Self::free_bytes() })
            }
            Err(error) => Err(explain(Doing::Other("allocate memory"))(error)),
        }
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// The address came from [`Context::allocate`] and was not given back.
    pub(super) unsafe fn free(address: u64) -> Done<()> {
        // SAFETY: as the caller says.
        unsafe { result::free_sync(address) }.map_err(explain(Doing::Other("free memory")))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained in `open`. A context that is lost cannot be given back; the end of the process does that.
        let _ = unsafe { primary_ctx::release(self.0.0) };
    }
}

/// Work in order.
#[derive(Debug)]
pub(super) struct Stream {
    raw: CUstream,
    _context: Rc<Context>,
}

impl Stream {
    pub(super) fn new(context: &Rc<Context>) -> Done<Self> {
        let raw = stream::create(stream::StreamKind::NonBlocking).map_err(explain(Doing::Other("make a stream")))?;
        Ok(Self { raw, _context: Rc::clone(context) })
    }

    /// Waits for all that was enqueued.
    pub(super) fn wait(&self) -> Done<()> {
        // SAFETY: the stream is alive.
        unsafe { stream::synchronize(self.raw) }.map_err(explain(Doing::Other("wait for the GPU")))
    }

    /// Host to device; returns when it is done.
    ///
    /// # Safety
    /// `to` is memory of this context of that many bytes.
    pub(super) unsafe fn put(&self, to: u64, bytes: &[u8]) -> Done<()> {
        // SAFETY: the memory is there, as the caller says, and the bytes live until the wait is over.
        unsafe { result::memcpy_htod_async(to, bytes, self.raw) }.map_err(explain(Doing::Other("write to the GPU")))?;
        self.wait()
    }

    /// Device to host; returns when it is done.
    ///
    /// # Safety
    /// `from` is memory of this context of that many bytes.
    pub(super) unsafe fn get(&self, from: u64, bytes: &mut [u8]) -> Done<()> {
        // SAFETY: the memory is there, as the caller says, and the bytes live until the wait is over.
        unsafe { result::memcpy_dtoh_async(bytes, from, self.raw) }.map_err(explain(Doing::Other("read from the GPU")))?;
        self.wait()
    }

    /// Device to device.
    ///
    /// # Safety
    /// Both are memory of this context of that many bytes.
    pub(super) unsafe fn copy(&self, from: u64, to: u64, bytes: u64) -> Done<()> {
        // SAFETY: as the caller says.
        unsafe { result::memcpy_dtod_async(to, from, bytes as usize, self.raw) }.map_err(explain(Doing::Other("copy on the GPU")))
    }

    /// Enqueues zeros into memory.
    ///
    /// # Safety
    /// It is memory of this context of that many bytes.
    pub(super) unsafe fn zero(&self, address: u64, bytes: u64) -> Done<()> {
        // SAFETY: as the caller says.
        unsafe { result::memset_d8_async(address, 0, bytes as usize, self.raw) }.map_err(explain(Doing::Other("set memory to zero")))
    }

    /// Enqueues a kernel.
    ///
    /// # Safety
    /// `parameters` point at values of the sizes that the kernel takes; what it does with addresses among them is its own affair.
    pub(super) unsafe fn launch(&self, function: &Function, launch: Shape, parameters: &mut [*mut c_void]) -> Done<()> {
        let [x, y, z] = launch.grid;
        let block = (launch.threads, 1, 1);
        // SAFETY: function and stream are alive, the parameters are as the caller says; the driver copies them before it returns.
        unsafe { result::launch_kernel(function.raw, (x, y, z), block, launch.shared_bytes, self.raw, parameters) }
            .map_err(explain(Doing::Launching))
    }

    pub(super) fn record(&self, event: &Event) -> Done<()> {
        // SAFETY: both are alive and of one context.
        unsafe { event::record(event.raw, self.raw) }.map_err(explain(Doing::Other("record an event")))
    }

    /// What `enqueue` puts on the stream, as a graph: nothing runs yet.
    pub(super) fn capture(&self, enqueue: impl FnOnce() -> Done<()>) -> Done<Graph> {
        let other = explain(Doing::Other("capture launches"));
        // SAFETY: the stream is alive and not capturing.
        unsafe { stream::begin_capture(self.raw, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) }.map_err(&other)?;
        let enqueued = enqueue();
        // SAFETY: capturing since above; ended whatever happened in between, or the stream would stay unusable.
        let captured = unsafe { stream::end_capture(self.raw) };
        let executable = captured.map(|template| {
            // SAFETY: the graph was just made.
            let executable = unsafe { graph::instantiate(template, CUgraphInstantiate_flags(0)) };
            // SAFETY: the same; the executable does not need it. That it cannot be destroyed could not be mended.
            let _ = unsafe { graph::destroy(template) };
            executable.map(|raw| Graph { raw })
        });
        enqueued?;
        let graph = executable.map_err(&other)?.map_err(explain(Doing::Launching))?;
        // SAFETY: both are alive.
        unsafe { graph::upload(graph.raw, self.raw) }.map_err(explain(Doing::Launching))?;
        Ok(graph)
    }

    /// Enqueues a graph.
    pub(super) fn replay(&self, graph: &Graph) -> Done<()> {
        // SAFETY: both are alive.
        unsafe { graph::launch(graph.raw, self.raw) }.map_err(explain(Doing::Launching))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made in `new`. Nothing could be done about a failure.
        let _ = unsafe { stream::destroy(self.raw) };
    }
}

/// Extents of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) grid: [u32; 3],
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
}

/// Launches made ready to be enqueued at once.
#[derive(Debug)]
pub(super) struct Graph {
    raw: CUgraphExec,
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made in `Stream::capture`. Nothing could be done about a failure.
        let _ = unsafe { graph::exec_destroy(self.raw) };
    }
}

/// A point in a stream whose time the device notes.
#[derive(Debug)]
pub(super) struct Event {
    raw: CUevent,
}

impl Event {
    pub(super) fn new() -> Done<Self> {
        // The default flags are those with timing.
        event::create(CUevent_flags::CU_EVENT_DEFAULT).map(|raw| Self { raw }).map_err(explain(Doing::Other("make an event")))
    }

    /// Nanoseconds from `start` to here; both must have happened. The clock's step is about half a microsecond.
    pub(super) fn since(&self, start: &Self) -> Done<f64> {
        // SAFETY: both are alive and were made with timing.
        let millis = unsafe { event::elapsed(start.raw, self.raw) }.map_err(explain(Doing::Other("read a time")))?;
        Ok(f64::from(millis) * 1e6)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made in `new`. Nothing could be done about a failure.
        let _ = unsafe { event::destroy(self.raw) };
    }
}

/// A loaded image.
#[derive(Debug)]
pub(super) struct Module {
    raw: CUmodule,
}

impl Module {
    /// Loads an image.
    ///
    /// # Safety
    /// The image is whole (see `image::check`): the driver reads as far as its headers say.
    pub(super) unsafe fn load(image: &[u8]) -> Done<Self> {
        // SAFETY: as the caller says.
        unsafe { module::load_data(image.as_ptr().cast()) }.map(|raw| Self { raw }).map_err(explain(Doing::Loading))
    }

    /// A kernel by its symbol, loaded now rather than with its first launch.
    pub(super) fn function(&self, name: &str) -> Done<Function> {
        let name = CString::new(name).map_err(|_| DeviceError::Image(format!("{name:?} is no symbol")))?;
        // SAFETY: the module is alive.
        let raw = unsafe { module::get_function(self.raw, name) }.map_err(explain(Doing::Loading))?;
        // SAFETY: the function was just found.
        unsafe { sys::cuFuncLoad(raw) }.result().map_err(explain(Doing::Loading))?;
        Ok(Function { raw })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded in `load`. Nothing could be done about a failure.
        let _ = unsafe { module::unload(self.raw) };
    }
}

/// A kernel; good while its [`Module`] is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    raw: CUfunction,
}

impl Function {
    /// Sizes of its parameters in bytes, in order.
    pub(super) fn parameters(self) -> Vec<usize> {
        let size = |index: usize| {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the function is alive, the pointers are good for one number each. Past the last parameter it is an error.
            unsafe { sys::cuFuncGetParamInfo(self.raw, index, &raw mut offset, &raw mut bytes) }.result().ok().map(|()| bytes)
        };
        (0..).map_while(size).collect()
    }

    /// Lets blocks have so much dynamic shared memory; more than 48 KiB must be asked for.
    pub(super) fn allow_shared_bytes(self, bytes: u32) -> Done<()> {
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: the function is alive.
        unsafe { result::function::set_function_attribute(self.raw, attribute, bytes) }.map_err(explain(Doing::Launching))
    }
}
