//! Who owns which device memory.

use std::collections::BTreeMap;

use crate::cuda::device::{DeviceError, Done, Span};

/// The allocations that were handed out.
#[derive(Debug, Default)]
pub(super) struct Allocations {
    by_address: BTreeMap<u64, u64>,
}

impl Allocations {
    /// Notes a new one.
    pub(super) fn add(&mut self, span: Span) {
        self.by_address.insert(span.address, span.bytes);
    }

    /// Takes one back.
    pub(super) fn remove(&mut self, span: Span) -> Done<()> {
        if self.by_address.get(&span.address) != Some(&span.bytes) {
            return Err(DeviceError::Device(format!("{} bytes at {:#x} are no allocation", span.bytes, span.address)));
        }
        self.by_address.remove(&span.address);
        Ok(())
    }

    /// All of them, which are forgotten.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = u64> + use<> {
        std::mem::take(&mut self.by_address).into_keys()
    }

    /// Bytes in all.
    pub(super) fn bytes(&self) -> u64 {
        self.by_address.values().sum()
    }

    /// Checks that a span lies in one allocation: an operand elsewhere is a mistake of ours, and would cost the context.
    pub(super) fn check(&self, span: Span) -> Done<()> {
        let inside = self.by_address.range(..=span.address).next_back().is_some_and(|(start, bytes)| {
            let from = span.address - start;
            from <= *bytes && span.bytes <= bytes - from
        });
        if inside { Ok(()) } else { Err(DeviceError::Device(format!("{} bytes at {:#x} are in no allocation", span.bytes, span.address))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_must_lie_in_one_allocation() {
        let mut allocations = Allocations::default();
        let span = Span { address: 512, bytes: 100 };
        allocations.add(span);
        allocations.add(Span { address: 1024, bytes: 8 });
        assert_eq!(allocations.bytes(), 108);
        assert!(allocations.check(span).is_ok() && allocations.check(Span { address: 600, bytes: 12 }).is_ok());
        for (address, bytes) in [(511, 1), (600, 13), (700, 1), (512, u64::MAX)] {
            assert!(allocations.check(Span { address, bytes }).is_err(), "{address} {bytes}");
        }
        assert!(allocations.remove(Span { address: 512, bytes: 99 }).is_err());
        assert!(allocations.remove(span).is_ok() && allocations.remove(span).is_err());
    }
}
