//! The floating-point mode of the calling thread: rounding, denormals, exceptions.
//!
//! Threads inherit it from the thread that makes them, so setting it before OpenMP has any is setting it for all. That is
//! also what a model gets that calls `torch.set_flush_denormal` before its first parallel operator.

/// A mode. Two modes are equal where arithmetic behaves alike; sticky exception flags are no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FloatMode(u64);

#[cfg(target_arch = "x86_64")]
mod machine {
    /// MXCSR's exception flags (Intel SDM vol. 1, 10.2.3).
    pub(super) const STICKY: u64 = 0x3f;
    /// Flush-to-zero and denormals-are-zero, the two that torch sets.
    pub(super) const FLUSH_DENORMAL: u64 = 0x8040;

    pub(super) fn read() -> u64 {
        let mut mode = 0u32;
        // SAFETY: stores four bytes at the operand.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut mode, options(nostack, preserves_flags)) };
        mode.into()
    }

    pub(super) fn write(mode: u64) {
        let mode = mode as u32;
        // SAFETY: the value is one that `read` returned, with defined bits changed.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &mode, options(nostack, preserves_flags, readonly)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    /// FPCR holds no exception flags.
    pub(super) const STICKY: u64 = 0;
    /// FZ (Arm ARM, FPCR).
    pub(super) const FLUSH_DENORMAL: u64 = 1 << 24;

    pub(super) fn read() -> u64 {
        let mode: u64;
        // SAFETY: reads a register.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) mode, options(nomem, nostack, preserves_flags)) };
        mode
    }

    pub(super) fn write(mode: u64) {
        // SAFETY: the value is one that `read` returned, with defined bits changed.
        unsafe { std::arch::asm!("msr fpcr, {}", in(reg) mode, options(nomem, nostack, preserves_flags)) };
    }
}

impl FloatMode {
    /// Of the calling thread, now.
    pub(super) fn current() -> Self {
        Self(machine::read() & !machine::STICKY)
    }

    /// The same mode with denormals treated as zero, or not.
    pub(super) fn flushing(self, denormals: bool) -> Self {
        Self(if denormals { self.0 | machine::FLUSH_DENORMAL } else { self.0 & !machine::FLUSH_DENORMAL })
    }

    /// Makes it the calling thread's.
    pub(super) fn apply(self) {
        machine::write(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn flushing_makes_denormals_zero_and_new_threads_inherit_it() {
        // A thread of its own, so that no other test sees the mode.
        let product = || black_box(f32::MIN_POSITIVE) * black_box(0.5);
        std::thread::spawn(move || {
            assert!(product() > 0.0);
            let before = FloatMode::current();
            before.flushing(true).apply();
            let inherited = std::thread::spawn(move || (product(), FloatMode::current())).join().unwrap();
            let (here, mode) = (product(), FloatMode::current());
            before.apply();
            assert_eq!((here, inherited.0), (0.0, 0.0));
            assert_eq!(mode, before.flushing(true));
            assert_eq!(inherited.1, mode);
            assert_eq!(FloatMode::current(), before);
        })
        .join()
        .unwrap();
    }
}
