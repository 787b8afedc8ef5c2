//! Shared memory between the referee and its candidates: argument storages in several copies, with guard zones around each.
//!
//! ```text
//! slot 0: [guard 4096][storage 0][pad + guard 4096] [guard 4096][storage 1][pad + guard 4096] ...
//! slot 1: ...
//! ```
//!
//! The memory is a sealed memfd: nobody can shrink it under the other's feet. Nothing but argument values lies in it;
//! commands, answers, clocks and expected outputs do not.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use memmap2::{MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::entropy::random_bytes;

/// Alignment of every storage, in bytes: torch's own on a CPU.
pub const STORAGE_ALIGN_BYTES: usize = 64;
/// Least size of a guard zone, in bytes; also the alignment of a slot, so that all slots have the same page offsets.
pub const GUARD_BYTES: usize = 4096;

/// Why an arena cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// More than the caller allows.
    #[error("{slots} copies of the arguments need {needed_bytes} bytes of shared memory; at most {limit_bytes} are allowed")]
    TooLarge {
        /// Copies asked for.
        slots: u32,
        /// Bytes that they need, guards included; `u64::MAX` stands for more than that.
        needed_bytes: u64,
        /// The caller's limit.
        limit_bytes: u64,
    },
    /// The kernel refused.
    #[error("shared memory for the arguments: {0}")]
    Io(#[from] io::Error),
}

/// A guard zone that was written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trespass {
    /// Copy.
    pub slot: u32,
    /// Storage whose guard it is.
    pub storage: usize,
    /// Which of its two guards.
    pub side: Side,
    /// Distance of the changed byte nearest to the storage, in bytes from the storage's first (before) or last (after) byte; at least one.
    pub distance_bytes: usize,
}

impl fmt::Display for Trespass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Before => "before its start",
            Side::After => "past its end",
        };
        write!(f, "storage {}, byte {} {side}", self.storage, self.distance_bytes)
    }
}

/// A side of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Below the first byte.
    Before,
    /// Above the last byte.
    After,
}

/// Where one storage lies in its slot, in bytes.
#[derive(Clone, Copy, Debug)]
struct Extent {
    offset: usize,
    len: usize,
}

impl Extent {
    /// Start of the guard below.
    fn before(self) -> usize {
        self.offset - GUARD_BYTES
    }

    /// End of the guard above.
    fn after(self) -> usize {
        self.offset + self.len.next_multiple_of(STORAGE_ALIGN_BYTES) + GUARD_BYTES
    }
}

/// `slots` copies of a list of storages in shared memory.
///
/// Contents may be torn while a runner works on them. Runners are stopped except inside `Runner::measure`, which borrows the
/// runner mutably, so reading after it returned is safe in every sense that matters.
#[derive(Debug)]
pub struct Arena {
    file: File,
    map: MmapRaw,
    slots: u32,
    stride: usize,
    extents: Vec<Extent>,
    pattern: Box<[u8; GUARD_BYTES]>,
}

impl Arena {
    /// Makes an arena of `slots` copies of storages of the given sizes in bytes; all zero, guards filled with a random pattern.
    pub fn new(slots: u32, storage_bytes: &[usize], limit_bytes: u64) -> Result<Self, ArenaError> {
        let too_large = |needed_bytes| ArenaError::TooLarge { slots, needed_bytes, limit_bytes };
        let (extents, stride) = lay_out(storage_bytes).ok_or_else(|| too_large(u64::MAX))?;
        let total = stride.checked_mul(slots as usize).ok_or_else(|| too_large(u64::MAX))?;
        if total as u64 > limit_bytes {
            return Err(too_large(total as u64));
        }
        let file = sealed_memory(total)?;
        let map = MmapOptions::new().len(total).populate().map_raw(&file)?;
        let mut arena = Self { file, map, slots, stride, extents, pattern: Box::new(random_bytes()?) };
        arena.restore_guards();
        Ok(arena)
    }

    /// Number of copies.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Number of storages in each copy.
    pub fn storages(&self) -> usize {
        self.extents.len()
    }

    /// Distance between copies, in bytes.
    pub fn stride_bytes(&self) -> usize {
        self.stride
    }

    /// Size of everything, guards included, in bytes.
    pub fn total_bytes(&self) -> usize {
        self.map.len()
    }

    /// Offset of a storage from the start of its slot, in bytes.
    ///
    /// # Panics
    /// If there is no such storage.
    pub fn offset_bytes(&self, storage: usize) -> usize {
        self.extents[storage].offset
    }

    /// Size of a storage in bytes.
    ///
    /// # Panics
    /// If there is no such storage.
    pub fn len_bytes(&self, storage: usize) -> usize {
        self.extents[storage].len
    }

    /// The memory, for a child to map.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// One storage of one copy.
    ///
    /// # Panics
    /// If there is no such slot or storage.
    pub fn bytes(&self, slot: u32, storage: usize) -> &[u8] {
        let Extent { offset, len } = self.extents[storage];
        self.span(slot, offset, len)
    }

    /// One storage of one copy, to write.
    ///
    /// # Panics
    /// If there is no such slot or storage.
    pub fn bytes_mut(&mut self, slot: u32, storage: usize) -> &mut [u8] {
        let Extent { offset, len } = self.extents[storage];
        let start = self.start(slot, offset, len);
        // SAFETY: `start` checked that the range lies in the mapping, which lives as long as `self`; the exclusive borrow of
        // `self` rules out other slices in this process.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// Looks at the guards of every storage in the given copies; the first one found damaged is the error.
    pub fn check_guards(&self, slots: impl IntoIterator<Item = u32>) -> Result<(), Trespass> {
        slots.into_iter().try_for_each(|slot| (0..self.extents.len()).try_for_each(|storage| self.check_storage(slot, storage)))
    }

    fn check_storage(&self, slot: u32, storage: usize) -> Result<(), Trespass> {
        let extent = self.extents[storage];
        let end = extent.offset + extent.len;
        let after = self.first_damage(slot, end, extent.after()).map(|at| (Side::After, at - end + 1));
        let before = || self.last_damage(slot, extent.before(), extent.offset).map(|at| (Side::Before, extent.offset - at));
        match after.or_else(before) {
            Some((side, distance_bytes)) => Err(Trespass { slot, storage, side, distance_bytes }),
            None => Ok(()),
        }
    }

    /// Lowest changed byte of the guard `from..to` (bytes from the start of the slot).
    fn first_damage(&self, slot: u32, from: usize, to: usize) -> Option<usize> {
        let (at, expected) = self.pattern(from, to).find(|&(at, expected)| self.span(slot, at, expected.len()) != expected)?;
        let found = self.span(slot, at, expected.len());
        found.iter().zip(expected).position(|(a, b)| a != b).map(|i| at + i)
    }

    /// Highest changed byte of the guard `from..to`.
    fn last_damage(&self, slot: u32, from: usize, to: usize) -> Option<usize> {
        let (at, expected) = self.pattern(from, to).filter(|&(at, expected)| self.span(slot, at, expected.len()) != expected).last()?;
        let found = self.span(slot, at, expected.len());
        found.iter().zip(expected).rposition(|(a, b)| a != b).map(|i| at + i)
    }

    /// What must stand in `from..to` of every slot: pieces with their places.
    fn pattern(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, &[u8])> {
        let mut at = from;
        std::iter::from_fn(move || {
            let phase = at % GUARD_BYTES;
            let count = (GUARD_BYTES - phase).min(to - at);
            let piece = (count > 0).then(|| (at, &self.pattern[phase..phase + count]));
            at += count;
            piece
        })
    }

    /// Writes the pattern into every guard again.
    pub fn restore_guards(&mut self) {
        for slot in 0..self.slots {
            for extent in &self.extents {
                let guards = [(extent.before(), extent.offset), (extent.offset + extent.len, extent.after())];
                for (at, piece) in guards.into_iter().flat_map(|(from, to)| self.pattern(from, to)) {
                    let start = self.start(slot, at, piece.len());
                    // SAFETY: `start` checked the range; the exclusive borrow of `self` rules out slices into the mapping.
                    unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), start, piece.len()) };
                }
            }
        }
    }

    fn span(&self, slot: u32, offset: usize, len: usize) -> &[u8] {
        let start = self.start(slot, offset, len);
        // SAFETY: `start` checked that the range lies in the mapping, which lives as long as `self`. Children are stopped while
        // the referee reads (see the type's comment).
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    fn start(&self, slot: u32, offset: usize, len: usize) -> *mut u8 {
        assert!(slot < self.slots && offset + len <= self.stride, "slot {slot}, bytes {offset}..{} are not in the arena", offset + len);
        // SAFETY: the assertion bounds the offset by the size of the mapping.
        unsafe { self.map.as_mut_ptr().add(slot as usize * self.stride + offset) }
    }
}

/// Places of the storages in a slot, and the slot's size; none on overflow.
fn lay_out(storage_bytes: &[usize]) -> Option<(Vec<Extent>, usize)> {
    let mut cursor = 0usize;
    let mut extents = Vec::with_capacity(storage_bytes.len());
    for &len in storage_bytes {
        // Checked first, so that the sums of `Extent::after` cannot overflow.
        len.checked_add(3 * GUARD_BYTES)?.checked_add(cursor)?.checked_next_multiple_of(GUARD_BYTES)?;
        let extent = Extent { offset: cursor + GUARD_BYTES, len };
        cursor = extent.after();
        extents.push(extent);
    }
    Some((extents, cursor.max(1).checked_next_multiple_of(GUARD_BYTES)?))
}

/// Anonymous shared memory whose size can no longer change, and that can hold no program.
fn sealed_memory(len: usize) -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let never_executable = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    let made = match memfd_create(c"kernelopt-arena", flags | never_executable) {
        // A kernel before 6.3 does not know the flag.
        Err(Errno::EINVAL) => memfd_create(c"kernelopt-arena", flags),
        other => other,
    };
    let file = File::from(made?);
    file.set_len(len as u64)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1 << 24;

    #[test]
    fn storages_are_aligned_apart_and_alike_in_every_slot() {
        let mut arena = Arena::new(3, &[1, 0, 4096, 100], LIMIT).unwrap();
        assert_eq!(arena.stride_bytes() % GUARD_BYTES, 0);
        for storage in 0..arena.storages() {
            assert_eq!(arena.offset_bytes(storage) % STORAGE_ALIGN_BYTES, 0);
            for slot in 0..3 {
                arena.bytes_mut(slot, storage).fill(slot as u8 * 10 + storage as u8);
            }
        }
        for slot in 0..3 {
            for storage in 0..arena.storages() {
                assert!(arena.bytes(slot, storage).iter().all(|&b| b == slot as u8 * 10 + storage as u8));
            }
        }
        assert_eq!(arena.check_guards(0..3), Ok(()));
    }

    #[test]
    fn one_byte_past_either_end_is_seen_and_named() {
        let mut arena = Arena::new(2, &[64, 33], LIMIT).unwrap();
        for (slot, storage, side) in [(0, 0, Side::After), (1, 1, Side::After), (0, 1, Side::Before), (1, 0, Side::Before)] {
            for distance_bytes in [1, 2, GUARD_BYTES] {
                let offset = arena.offset_bytes(storage);
                let at = match side {
                    Side::After => offset + arena.len_bytes(storage) + distance_bytes - 1,
                    Side::Before => offset - distance_bytes,
                };
                // SAFETY: inside the mapping, in a guard.
                unsafe { *arena.start(slot, at, 1) ^= 1 };
                assert_eq!(arena.check_guards(0..2), Err(Trespass { slot, storage, side, distance_bytes }));
                arena.restore_guards();
                assert_eq!(arena.check_guards(0..2), Ok(()));
            }
        }
    }

    #[test]
    fn size_is_bounded_and_sealed() {
        assert!(matches!(Arena::new(1000, &[1 << 20], LIMIT), Err(ArenaError::TooLarge { needed_bytes, .. }) if needed_bytes > LIMIT));
        assert!(matches!(Arena::new(2, &[usize::MAX - 5], LIMIT), Err(ArenaError::TooLarge { .. })));
        assert!(matches!(Arena::new(2, &[usize::MAX / 2, usize::MAX / 2], LIMIT), Err(ArenaError::TooLarge { .. })));
        let arena = Arena::new(1, &[10], LIMIT).unwrap();
        assert!(arena.file.set_len(0).is_err());
        assert!(arena.file.set_len(1 << 30).is_err());
    }
}
