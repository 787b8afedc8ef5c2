//! What the referee needs of a GPU. One stream, work in order; calls return when the work is done unless they say otherwise.
//!
//! Two implementations pass one conformance suite: the driver's, and a simulated one for hosts without a GPU.

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::target::Distribution;
use kernelopt_shared::verdict::Conditions;

use crate::referee::{Errors, Regime};

/// A range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Device address.
    pub address: u64,
    /// Size.
    pub bytes: u64,
}

impl Span {
    /// `bytes` bytes from `offset` on; `None` where that is not inside.
    pub fn part(self, offset: u64, bytes: u64) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then_some(Self { address: self.address + offset, bytes })
    }
}

/// A tensor's memory: elements one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    /// Where.
    pub span: Span,
    /// Type.
    pub dtype: Dtype,
}

impl Elements {
    /// How many.
    pub const fn count(self) -> u64 {
        self.span.bytes / self.dtype.size_bytes() as u64
    }
}

/// A loaded kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelId(pub u64);

/// One argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A device address.
    Pointer(u64),
    /// A 32-bit integer.
    I32(i32),
    /// A 64-bit integer.
    I64(i64),
}

/// One launch. Block size, shared memory and the ABI's hidden arguments come from the kernel itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// What.
    pub kernel: KernelId,
    /// Programs or blocks along x, y and z.
    pub grid: [u32; 3],
    /// The kernel's own arguments, in order.
    pub arguments: Vec<Value>,
}

/// One thing that the device does. Steps follow one another on one stream: each begins when the one before has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A kernel runs.
    Launch(Run),
    /// Memory of ours becomes zero.
    Zero(Span),
}

/// What is timed as one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// One after the other; at least one.
    pub steps: Vec<Step>,
    /// Flush the L2 cache, by overwriting twice its size, before the clock starts.
    pub cold: bool,
}

/// How input values are drawn.
#[derive(Clone, Debug)]
pub struct Draw<'a> {
    /// Which kind.
    pub regime: Regime,
    /// What was captured.
    pub captured: &'a Distribution,
    /// Longest reduction in elements; the regimes that work by rows use it.
    pub row: u64,
    /// Element `i` is a pure function of this and `i`.
    pub seed: u64,
}

/// Exponents of doubles, in which errors are sorted by magnitude of the truth.
pub const EXPONENTS: usize = 2048;

/// Error allowed at an element: `factor_error[exponent of truth] + relative * |truth| + least`, or `at_zero` instead of `least`
/// where the truth is zero (see [`crate::referee::Tolerance`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Allowance {
    /// By biased exponent.
    pub by_exponent: Vec<f64>,
    /// Times the magnitude.
    pub relative: f64,
    /// At any magnitude.
    pub least: f64,
    /// Where the truth is zero.
    pub at_zero: f64,
    /// Greatest finite number of the type.
    pub greatest: f64,
}

/// What a comparison found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Greatest distance over what is allowed; at most 1e9, which stands for a wrong class (NaN for a number, say).
    pub worst: f64,
    /// Greatest absolute distance to the truth where both are finite.
    pub max_error: f64,
    /// Elements beyond what is allowed.
    pub wrong: u64,
    /// The first of them.
    pub first_wrong: Option<u64>,
}

/// What the device is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DeviceFacts {
    /// `NVIDIA H200`.
    pub name: String,
    /// UUID as NVML prints it, `GPU-...`; of the instance where MIG is on.
    pub uuid: String,
    /// Compute capability times ten: 90.
    pub architecture: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// L2 cache.
    pub l2_bytes: u64,
    /// Memory in all.
    pub memory_bytes: u64,
    /// Greatest dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Version of the driver, `580.159.04`.
    pub driver: String,
}

/// What the device was doing while something was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceState {
    /// Clock of the multiprocessors.
    pub sm_mhz: u32,
    /// Clock of the memory.
    pub memory_mhz: u32,
    /// Board power.
    pub power_mw: u32,
    /// Temperature of the GPU.
    pub celsius: u32,
    /// NVML's clocks-event (throttle) reasons, as a bit mask; idle is masked out.
    pub throttle: u64,
}

impl DeviceState {
    /// Adds this to what was seen before.
    pub fn add_to(self, seen: &mut Option<Conditions>) {
        let Self { sm_mhz, memory_mhz, power_mw, celsius, throttle } = self;
        let seen = seen.get_or_insert(Conditions { sm_mhz: [sm_mhz; 2], memory_mhz, power_mw, celsius, throttle });
        seen.sm_mhz = [seen.sm_mhz[0].min(sm_mhz), seen.sm_mhz[1].max(sm_mhz)];
        seen.power_mw = seen.power_mw.max(power_mw);
        seen.celsius = seen.celsius.max(celsius);
        seen.throttle |= throttle;
    }
}

/// A built kernel, ready to be loaded.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Binary {
    /// ELF image for one architecture.
    pub cubin: Vec<u8>,
    /// Symbol of the kernel.
    pub entry: String,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Pointers that the compiler appends to the kernel's own arguments (Triton: global scratch and profile scratch); passed as null.
    pub hidden_pointers: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread's local memory that register spilling takes.
    pub spill_bytes: u32,
}

/// Most threads of a block, on every device there is.
const MAX_THREADS: u32 = 1024;

impl Binary {
    /// Checks what can be known of a launch before the first one.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] where the device cannot run a block of it.
    pub fn fits(&self, facts: &DeviceFacts) -> Done<()> {
        let Self { shared_bytes, threads, .. } = *self;
        if shared_bytes > facts.shared_bytes {
            let most = facts.shared_bytes;
            return Err(DeviceError::Refused(format!("a block takes {shared_bytes} bytes of shared memory; {most} are there")));
        }
        if !(1..=MAX_THREADS).contains(&threads) {
            return Err(DeviceError::Refused(format!("a block has {threads} threads; 1 to {MAX_THREADS} are possible")));
        }
        Ok(())
    }
}

/// Why a device did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum DeviceError {
    #[error("out of device memory: {bytes} bytes wanted, {free} free")]
    OutOfMemory { bytes: u64, free: u64 },
    /// This launch cannot be; the context is well (too much shared memory, too many threads).
    #[error("the launch is refused: {0}")]
    Refused(String),
    /// The context is lost: the process must end (illegal address, misaligned access, trap, assertion).
    #[error("the kernel faulted: {0}")]
    Fault(String),
    /// The image does not load: wrong architecture, not an ELF file.
    #[error("the kernel does not load: {0}")]
    Image(String),
    /// The device or driver fails in itself.
    #[error("the device fails: {0}")]
    Device(String),
}

/// Result of a device call.
pub type Done<T> = Result<T, DeviceError>;

/// A GPU, or something that behaves like one.
///
/// Poison and draws are pure functions of a seed and a position, the same ones on every implementation.
pub trait Device {
    /// What it is.
    fn facts(&self) -> &DeviceFacts;
    /// What it is doing.
    fn state(&mut self) -> DeviceState;

    /// Memory of its own, aligned to 256 bytes, contents undefined.
    fn allocate(&mut self, bytes: u64) -> Done<Span>;
    /// Gives memory back; the span must come from [`Device::allocate`].
    fn free(&mut self, memory: Span) -> Done<()>;
    /// Host to device; lengths must agree.
    fn upload(&mut self, to: Span, bytes: &[u8]) -> Done<()>;
    /// Device to host; lengths must agree.
    fn download(&mut self, from: Span, bytes: &mut [u8]) -> Done<()>;
    /// Device to device; lengths must agree.
    fn copy(&mut self, from: Span, to: Span) -> Done<()>;

    /// Loads a kernel.
    fn load(&mut self, binary: &Binary) -> Done<KernelId>;
    /// Unloads it.
    fn unload(&mut self, kernel: KernelId) -> Done<()>;
    /// Runs all steps in order, nothing of ours in between, and waits once.
    fn run(&mut self, steps: &[Step]) -> Done<()>;
    /// Runs one kernel and waits.
    fn launch(&mut self, run: &Run) -> Done<()> {
        self.run(&[Step::Launch(run.clone())])
    }
    /// Runs all blocks in order, nothing of ours in between but cache flushes, waits once, and returns nanoseconds of each block
    /// by the device's own clock (events around the block's steps).
    fn time(&mut self, blocks: &[Block]) -> Done<Vec<f64>>;

    /// Nanoseconds, by the device's own clock, that one of our own kernels takes to read `from` so many times, or to copy it to `to`.
    /// Spans are multiples of sixteen bytes, of one length.
    fn sweep(&mut self, from: Span, to: Option<Span>, passes: u32) -> Done<f64>;
    /// Bytes that [`Device::allocate`] gave and that were not given back.
    fn allocated_bytes(&self) -> u64;

    /// Draws values.
    fn draw(&mut self, to: Elements, draw: &Draw<'_>) -> Done<()>;
    /// Overwrites with a pattern of `seed` and the offset within the span (any bits, so a pattern may be NaN or any number).
    fn poison(&mut self, to: Span, seed: u64) -> Done<()>;
    /// Offset in bytes of the first byte that is not the poison of `seed`.
    fn first_unpoisoned(&mut self, span: Span, seed: u64) -> Done<Option<u64>>;
    /// A hash in which position counts.
    fn digest(&mut self, span: Span) -> Done<u64>;
    /// Converts every element to float64.
    fn widen(&mut self, from: Elements, to: Span) -> Done<()>;
    /// The baseline's errors against `truth` (float64). Where `truth` still is the poison of `truth_poison`, the kernel does not
    /// write: such elements are skipped, as are those where either is not finite. Where `rounded` is given, the nearer of the two
    /// truths counts.
    fn errors(&mut self, values: Elements, truth: Span, rounded: Option<Span>, truth_poison: u64) -> Done<Errors>;
    /// Compares `values` with the truth. A value must be of the truth's class (finite, NaN, the same infinity); where the baseline's
    /// class is another than the truth's, the baseline's value will do as well; beyond `greatest`, infinity and a finite number near
    /// it are one. Where `truth` still is its poison, `values` must still be the poison of `values_poison` at that position.
    fn compare(&mut self, what: &Compared, allowance: &Allowance) -> Done<Comparison>;
    /// Index of the first element that differs bit for bit.
    fn first_difference(&mut self, a: Elements, b: Elements) -> Done<Option<u64>>;
}

/// Tensors of one comparison, all of the same number of elements.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// What the candidate left.
    pub values: Elements,
    /// Seed of the poison that was there before.
    pub values_poison: u64,
    /// What the baseline left on the same inputs.
    pub baseline: Elements,
    /// Float64 truth.
    pub truth: Span,
    /// Float64 truth in which re-read stores are rounded to their type, where there is one.
    pub rounded: Option<Span>,
    /// Seed of the poison that was in both truths before.
    pub truth_poison: u64,
}
