//! Our own small kernels: drawing inputs, poisoning outputs, hashing and comparing where the data lies.
//!
//! Each exists twice, as CUDA C++ (`*.cu`) and as plain Rust ([`mod@reference`]), and the two agree bit for bit: whatever
//! could differ (fused operations, transcendental functions, order of additions) is avoided or fixed. [`launch`] turns a call
//! into arguments; it runs on anything that can start an op, the driver or a test's emulation.
//!
//! | file | noun |
//! |---|---|
//! | `kernel.cu` | positions, packs of sixteen bytes, reductions of a block |
//! | `random.cu`, [`random`] | SplitMix64 words and Philox numbers of a seed and a position |
//! | `element.cu`, [`element`] | elements as doubles, and back |
//! | `draw.cu`, [`recipe`] | input values in a regime |
//! | `poison.cu` | the pattern where nothing was written |
//! | `digest.cu`, `difference.cu`, `widen.cu` | hash, first difference, conversion |
//! | `errors.cu`, `compare.cu` | the baseline's errors; a candidate against the truth |
//! | `sweep.cu` | moving bytes: cache flush and bandwidth |

pub mod element;
pub mod launch;
pub mod random;
pub mod recipe;
pub mod reference;

/// The ops as one CUDA C++ translation unit for NVRTC. It needs no header and no option but the architecture and C++17; with fast
/// math it would not be what it says.
pub const SOURCE: &str = concat!(
    include_str!("kernel.cu"),
    include_str!("random.cu"),
    include_str!("element.cu"),
    include_str!("draw.cu"),
    include_str!("poison.cu"),
    include_str!("digest.cu"),
    include_str!("widen.cu"),
    include_str!("errors.cu"),
    include_str!("compare.cu"),
    include_str!("difference.cu"),
    include_str!("sweep.cu"),
);

/// One op: a kernel of [`SOURCE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the table above and the .cu files say what each does")]
pub enum Op {
    Draw,
    Poison,
    FirstUnpoisoned,
    Digest,
    Widen,
    Errors,
    Compare,
    FirstDifference,
    Flush,
    SweepRead,
    SweepCopy,
}

impl Op {
    /// Every op.
    pub const ALL: [Self; 11] = [
        Self::Draw,
        Self::Poison,
        Self::FirstUnpoisoned,
        Self::Digest,
        Self::Widen,
        Self::Errors,
        Self::Compare,
        Self::FirstDifference,
        Self::Flush,
        Self::SweepRead,
        Self::SweepCopy,
    ];

    /// Name of the kernel in [`SOURCE`].
    pub const fn entry(self) -> &'static str {
        match self {
            Self::Draw => "draw",
            Self::Poison => "poison",
            Self::FirstUnpoisoned => "first_unpoisoned",
            Self::Digest => "digest",
            Self::Widen => "widen",
            Self::Errors => "errors",
            Self::Compare => "compare",
            Self::FirstDifference => "first_difference",
            Self::Flush => "flush",
            Self::SweepRead => "sweep_read",
            Self::SweepCopy => "sweep_copy",
        }
    }
}
