//! One conformance suite for everything that is a [`kernelopt_gpu_agent::cuda::device::Device`], and for the process that owns one.
//!
//! It runs on the simulated device always. The ops run on their own CUDA text, compiled for the host, always. Everything runs on a real GPU
//! where `KERNELOPT_GPU_TESTS=1` is set (see `subjects.rs`): this program needs neither cargo nor the sources, so it can be carried to a
//! host that has one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod deaths;
mod emulation;
mod gpu_only;
mod kernel_suite;
mod ops_suite;
mod simulated_faults;
mod subjects;

use kernelopt_gpu_agent::cuda::ops::launch::THREADS;
use kernelopt_gpu_agent::cuda::ops::reference::Lanes;

macro_rules! ops {
    ($($name:ident),* $(,)?) => {
        mod simulated_ops { $( #[test] fn $name() { crate::ops_suite::$name(&mut *crate::subjects::simulated().device) } )* }
        mod emulated_ops { $( #[test] fn $name() { crate::ops_suite::$name(&mut *crate::subjects::emulated().device) } )* }
        mod gpu_ops {
            $( #[test] fn $name() { if let Some(mut subject) = crate::subjects::gpu() { crate::ops_suite::$name(&mut *subject.device) } } )*
        }
    };
}

/// With two blocks in place of a thousand, each lane adds several squares.
#[test]
fn emulated_squares_are_added_in_order() {
    let mut device = emulation::Emulated::new();
    device.error_blocks = 2;
    let lanes = Lanes { blocks: 2, threads: THREADS };
    ops_suite::squares_are_added_in_order(&mut device, 3001, lanes);
}

macro_rules! kernels {
    ($($name:ident),* $(,)?) => {
        mod simulated_kernels {
            $( #[test] fn $name() { let mut subject = crate::subjects::simulated(); crate::kernel_suite::$name(&mut *subject.device, &subject.kernels) } )*
        }
        mod gpu_kernels {
            $( #[test] fn $name() {
                if let Some(mut subject) = crate::subjects::gpu() { crate::kernel_suite::$name(&mut *subject.device, &subject.kernels) }
            } )*
        }
    };
}

ops! {
    poison_is_the_references,
    poison_stays_inside,
    digests_are_the_references,
    draws_are_the_references,
    widening_is_exact,
    first_differences_are_found,
    errors_are_the_references,
    comparisons_are_the_references,
    sweeps_copy,
}

kernels! {
    memory_is_accounted_for,
    too_much_memory_is_refused_and_costs_nothing,
    a_kernel_writes_its_output_and_nothing_else,
    a_kernel_that_leaves_its_output_is_seen,
    impossible_launches_are_refused_and_cost_nothing,
    what_is_no_kernel_does_not_load,
    steps_follow_one_another,
    more_work_takes_more_time,
    bandwidth_is_plausible,
}
