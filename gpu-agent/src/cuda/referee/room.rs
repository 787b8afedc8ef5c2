//! One buffer between two guard zones.

use crate::cuda::device::{Device, Done, Span};

/// Bytes of a guard zone.
const GUARD: u64 = 4096;
/// Alignment of a buffer, torch's own (`c10::cuda` blocks are multiples of 512 bytes).
const ALIGNMENT: u64 = 512;

/// Memory of one buffer.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    allocation: Span,
    guards: [Span; 2],
    /// The buffer itself.
    pub inner: Span,
}

impl Room {
    /// What a buffer of so many bytes takes.
    pub const fn bytes(bytes: u64) -> u64 {
        2 * GUARD + bytes.next_multiple_of(ALIGNMENT)
    }

    /// Takes the memory.
    pub fn allocate(device: &mut dyn Device, bytes: u64) -> Done<Self> {
        let allocation = device.allocate(Self::bytes(bytes))?;
        let part = |offset, bytes| allocation.part(offset, bytes).unwrap_or(allocation);
        // The guard begins where the buffer ends, not where its alignment does.
        let after = allocation.bytes - GUARD - bytes;
        Ok(Self { allocation, inner: part(GUARD, bytes), guards: [part(0, GUARD), part(GUARD + bytes, after)] })
    }

    /// Takes the memory of several, or none.
    pub fn allocate_all(device: &mut dyn Device, sizes: &[u64]) -> Done<Vec<Self>> {
        let mut rooms = Vec::with_capacity(sizes.len());
        for &bytes in sizes {
            match Self::allocate(device, bytes) {
                Ok(room) => rooms.push(room),
                Err(error) => {
                    rooms.into_iter().try_for_each(|room| room.free(device))?;
                    return Err(error);
                }
            }
        }
        Ok(rooms)
    }

    /// Gives it back.
    pub fn free(self, device: &mut dyn Device) -> Done<()> {
        device.free(self.allocation)
    }

    /// Poisons buffer and guards.
    pub fn poison(&self, device: &mut dyn Device, seed: u64) -> Done<()> {
        [self.inner, self.guards[0], self.guards[1]].into_iter().try_for_each(|span| device.poison(span, seed))
    }

    /// Where a guard no longer holds its poison: `12 bytes after`.
    pub fn trespass(&self, device: &mut dyn Device, seed: u64) -> Done<Option<String>> {
        for (guard, side) in self.guards.iter().zip(["before", "after"]) {
            if let Some(offset) = device.first_unpoisoned(*guard, seed)? {
                let distance = if side == "before" { guard.bytes - offset } else { offset };
                return Ok(Some(format!("{distance} bytes {side}")));
            }
        }
        Ok(None)
    }
}
