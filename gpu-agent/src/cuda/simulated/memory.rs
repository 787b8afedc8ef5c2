//! An address space like a device's: allocations far apart, and nothing in between.

use std::collections::BTreeMap;

use crate::cuda::device::{DeviceError, Done, Span};

/// Alignment of allocations, as a driver gives it.
const ALIGNMENT: u64 = 256;
/// Unmapped bytes behind each allocation.
const GAP: u64 = 1 << 21;
/// Address of the first allocation, in the range where drivers put theirs.
const FIRST: u64 = 0x7f00_0000_0000;

/// Simulated device memory.
#[derive(Debug)]
pub(super) struct Memory {
    capacity: u64,
    next: u64,
    allocations: BTreeMap<u64, Vec<u8>>,
}

/// Bytes at an address that no allocation has: what a kernel's access of them is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unmapped(pub u64);

impl Memory {
    /// Memory of `capacity` bytes, all free.
    pub(super) const fn new(capacity: u64) -> Self {
        Self { capacity, next: FIRST, allocations: BTreeMap::new() }
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.allocations.values().map(|bytes| bytes.len() as u64).sum()
    }

    /// An allocation that holds what a program before may have left: no byte of it is a number that means something.
    pub(super) fn allocate(&mut self, bytes: u64) -> Done<Span> {
        let free = self.capacity - self.allocated_bytes();
        if bytes > free {
            return Err(DeviceError::OutOfMemory { bytes, free });
        }
        let address = self.next;
        self.next = (address + bytes + GAP).next_multiple_of(ALIGNMENT);
        self.allocations.insert(address, vec![0xa5; bytes as usize]);
        Ok(Span { address, bytes })
    }

    pub(super) fn free(&mut self, span: Span) -> Done<()> {
        match self.allocations.get(&span.address) {
            Some(bytes) if bytes.len() as u64 == span.bytes => {
                self.allocations.remove(&span.address);
                Ok(())
            }
            _ => Err(DeviceError::Device(format!("{span:x?} is no allocation"))),
        }
    }

    /// The bytes of a span of ours.
    pub(super) fn own(&self, span: Span) -> Done<&[u8]> {
        self.read(span).map_err(foreign)
    }

    /// The bytes of a span of ours, to be written.
    pub(super) fn own_mut(&mut self, span: Span) -> Done<&mut [u8]> {
        self.write(span).map_err(foreign)
    }

    /// What a kernel reads.
    pub(super) fn read(&self, span: Span) -> Result<&[u8], Unmapped> {
        let unmapped = Unmapped(span.address);
        let (start, bytes) = self.allocations.range(..=span.address).next_back().ok_or(unmapped)?;
        within(*start, bytes.len(), span).map(|range| &bytes[range])
    }

    /// Where a kernel writes.
    pub(super) fn write(&mut self, span: Span) -> Result<&mut [u8], Unmapped> {
        let unmapped = Unmapped(span.address);
        let (start, bytes) = self.allocations.range_mut(..=span.address).next_back().ok_or(unmapped)?;
        within(*start, bytes.len(), span).map(|range| &mut bytes[range])
    }
}

fn within(start: u64, len: usize, span: Span) -> Result<std::ops::Range<usize>, Unmapped> {
    let from = span.address - start;
    let mapped = (len as u64).saturating_sub(from);
    if span.bytes > mapped {
        return Err(Unmapped(span.address + mapped));
    }
    Ok(from as usize..(from + span.bytes) as usize)
}

fn foreign(Unmapped(address): Unmapped) -> DeviceError {
    DeviceError::Device(format!("address {address:#x} is in no allocation"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_found_within_their_allocation_only() {
        let mut memory = Memory::new(1000);
        let span = memory.allocate(300).unwrap();
        assert!(memory.read(span.part(10, 290).unwrap()).is_ok());
        assert!(matches!(memory.read(Span { bytes: 301, ..span }), Err(Unmapped(at)) if at == span.address + 300));
        assert!(memory.read(Span { address: span.address - 1, bytes: 1 }).is_err());
        assert!(matches!(memory.allocate(701), Err(DeviceError::OutOfMemory { free: 700, .. })));
        memory.free(span).unwrap();
        assert!(memory.free(span).is_err() && memory.own(span).is_err() && memory.allocated_bytes() == 0);
    }
}
