//! What stands for machine code on the simulated device: a meaning, where its results go, and what is wrong with it.

use kernelopt_shared::meaning::Meaning;
use serde::{Deserialize, Serialize};

use crate::cuda::device::{Binary, DeviceError, Done};

/// Start of an image.
const MAGIC: &[u8] = b"KOptSim1";
/// Largest image in bytes.
const MAX_IMAGE_BYTES: usize = 16 << 20;

/// A simulated kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// What it computes, in float64.
    pub meaning: Meaning,
    /// What it leaves.
    pub stores: Stores,
    /// What is wrong with it, in this order.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// Time of one launch, in nanoseconds.
    pub time_ns: f64,
    /// Relative spread of that time: standard deviation over mean.
    #[serde(default)]
    pub noise: f64,
}

/// How results are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stores {
    /// Rounded to the type of each output: a compiler's kernel, or a candidate.
    Rounded,
    /// As float64, whatever the float type of an output; a pointer that is read and written holds float64 before, too. The twin.
    Wide,
    /// The same, but a narrow value that the kernel reads again is rounded as it was stored. The twin with rounding.
    WideRounding,
}

/// What can be wrong with a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fault {
    /// The last element of every output is not written.
    Tail,
    /// Every output is zero.
    Zero,
    /// Values are rounded to bfloat16 before they are stored.
    LowPrecision,
    /// One element behind each input is read.
    ReadsPast,
    /// One element behind the first output is written.
    WritesPast,
    /// The first element of the first input is changed.
    ChangesInput,
    /// An address that nobody has is written.
    IllegalAddress,
    /// Right for so many launches, zero afterwards.
    WorksFirst(u64),
    /// What the first launch stored is stored again by every later one.
    RemembersFirst,
    /// Nothing is written where all pointers are those of the launch just before.
    SkipsLastAddresses,
    /// What the first launch on input memory of an address and size stored is stored again by every later one on that memory.
    RemembersByInput,
    /// The launch takes so many milliseconds of the world's own time.
    Hangs(u64),
}

impl Program {
    /// A program without fault of a given time.
    pub const fn new(meaning: Meaning, stores: Stores, time_ns: f64) -> Self {
        Self { meaning, stores, faults: Vec::new(), time_ns, noise: 0.0 }
    }

    /// The same with a fault more.
    #[must_use]
    pub fn with(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// A binary to load.
    ///
    /// # Errors
    /// The meaning cannot be written as JSON.
    pub fn binary(&self) -> serde_json::Result<Binary> {
        let mut cubin = MAGIC.to_vec();
        serde_json::to_writer(&mut cubin, self)?;
        let entry = self.meaning.kernel.clone();
        Ok(Binary { cubin, entry, shared_bytes: 0, threads: 128, hidden_pointers: 0, registers: 32, spill_bytes: 0 })
    }

    /// Reads an image.
    pub(super) fn read(image: &[u8]) -> Done<Self> {
        if image.len() > MAX_IMAGE_BYTES {
            return Err(DeviceError::Image(format!("{} bytes; at most {MAX_IMAGE_BYTES}", image.len())));
        }
        let json = image.strip_prefix(MAGIC).ok_or_else(|| DeviceError::Image("it is no program of the simulated device".into()))?;
        serde_json::from_slice(json).map_err(|error| DeviceError::Image(error.to_string()))
    }
}
