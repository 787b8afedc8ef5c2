//! How many blocks of a kernel run on one multiprocessor at once, and what limits them.
//!
//! The arithmetic of NVIDIA's `cuda_occupancy.h` (CUDA 13.0) over the table "Technical Specifications per Compute Capability" of the
//! CUDA C++ Programming Guide.

use super::image::{Image, RESERVED_SHARED_BYTES};
use crate::cuda::device::Binary;

/// What runs on one multiprocessor at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Occupancy {
    /// Blocks; zero where even one does not fit.
    pub blocks_per_sm: u32,
    /// Warps of those blocks over the warps that there is room for.
    pub warps: f64,
    /// What keeps another block out.
    pub limiter: Limiter,
}

/// A resource of a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limiter {
    /// The register file.
    Registers,
    /// Shared memory.
    Shared,
    /// Places for warps.
    Threads,
    /// Places for blocks.
    Blocks,
}

impl Limiter {
    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Registers => "registers",
            Self::Shared => "shared",
            Self::Threads => "threads",
            Self::Blocks => "blocks",
        }
    }
}

/// What a multiprocessor has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Multiprocessor {
    warps: u32,
    blocks: u32,
    shared_bytes: u32,
    /// Of one block.
    pub(super) block_shared_bytes: u32,
}

const WARP: u32 = 32;
const REGISTERS: u32 = 65_536;
const REGISTERS_PER_THREAD: u32 = 255;
/// Registers are given to warps in units of this many, and lie in as many parts of the file as there are schedulers.
const REGISTER_UNIT: u32 = 256;
const PARTS: u32 = 4;
const SHARED_UNIT: u32 = 128;
const BLOCK_THREADS: u32 = 1024;

impl Multiprocessor {
    /// Of a compute capability times ten; none where the table has no row for it.
    pub(super) const fn of(architecture: u32) -> Option<Self> {
        let (warps, blocks, shared_kib, block_kib) = match architecture {
            80 => (64, 32, 164, 163),
            86 => (48, 16, 100, 99),
            89 => (48, 24, 100, 99),
            90 | 100 => (64, 32, 228, 227),
            _ => return None,
        };
        Some(Self { warps, blocks, shared_bytes: shared_kib << 10, block_shared_bytes: block_kib << 10 })
    }
}

/// The occupancy of a kernel on a device of the given architecture (compute capability times ten); none where the architecture is
/// none of 80, 86, 89, 90 and 100, or the binary cannot be read.
pub fn occupancy(binary: &Binary, architecture: u32) -> Option<Occupancy> {
    let image = Image::read(&binary.cubin).ok()?;
    let fixed = image.kernels.get(&binary.entry)?.static_shared_bytes;
    Some(of(Multiprocessor::of(architecture)?, binary.threads, binary.registers, binary.shared_bytes.checked_add(fixed)?))
}

fn of(sm: Multiprocessor, threads: u32, registers: u32, shared_bytes: u32) -> Occupancy {
    let warps = threads.div_ceil(WARP).max(1);
    let by_warps = if threads > BLOCK_THREADS { 0 } else { sm.warps / warps };
    let limits = [
        // Where several are equally tight, the one named is the one that a change to the kernel can move.
        (by_registers(warps, registers), Limiter::Registers),
        (by_shared(sm, shared_bytes), Limiter::Shared),
        (by_warps, Limiter::Threads),
        (sm.blocks, Limiter::Blocks),
    ];
    let (blocks_per_sm, limiter) = limits.into_iter().min_by_key(|(blocks, _)| *blocks).unwrap_or((0, Limiter::Blocks));
    Occupancy { blocks_per_sm, warps: f64::from(blocks_per_sm * warps) / f64::from(sm.warps), limiter }
}

fn by_registers(warps: u32, registers: u32) -> u32 {
    let of_warp = (registers * WARP).next_multiple_of(REGISTER_UNIT);
    // The hardware's own check takes all parts to be filled alike.
    if registers > REGISTERS_PER_THREAD || of_warp * warps.next_multiple_of(PARTS) > REGISTERS {
        return 0;
    }
    let Some(warps_of_part) = (REGISTERS / PARTS).checked_div(of_warp) else { return u32::MAX };
    warps_of_part * PARTS / warps
}

fn by_shared(sm: Multiprocessor, shared_bytes: u32) -> u32 {
    if shared_bytes > sm.block_shared_bytes {
        return 0;
    }
    sm.shared_bytes / (shared_bytes + RESERVED_SHARED_BYTES).next_multiple_of(SHARED_UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(architecture: u32, threads: u32, registers: u32, shared_bytes: u32) -> (u32, Limiter) {
        let found = of(Multiprocessor::of(architecture).unwrap(), threads, registers, shared_bytes);
        (found.blocks_per_sm, found.limiter)
    }

    /// Answers of `cudaOccMaxActiveBlocksPerMultiprocessor` in `cuda_occupancy.h` of CUDA 13.0, shared memory configured to the most.
    #[test]
    fn it_counts_as_nvidias_own_header_does() {
        let rows: &[(u32, u32, u32, u32, u32)] = include!("occupancy_rows.in");
        for &(architecture, threads, registers, shared_bytes, expected) in rows {
            assert_eq!(
                blocks(architecture, threads, registers, shared_bytes).0,
                expected,
                "sm_{architecture}, {threads} threads, {registers} registers, {shared_bytes} bytes"
            );
        }
    }

    #[test]
    fn the_tightest_resource_is_named() {
        assert_eq!(blocks(90, 128, 128, 0), (4, Limiter::Registers));
        assert_eq!(blocks(90, 128, 16, 100 << 10), (2, Limiter::Shared));
        assert_eq!(blocks(90, 1024, 16, 0), (2, Limiter::Threads));
        assert_eq!(blocks(86, 32, 16, 0), (16, Limiter::Blocks));
        assert_eq!(blocks(89, 2048, 16, 0), (0, Limiter::Threads));
        assert!(Multiprocessor::of(75).is_none());
    }
}
