//! The child side of the runner as a program of its own, for the tests of this crate: `kernelopt runner` is the same.

use std::process::ExitCode;

fn main() -> ExitCode {
    kernelopt_gpu_agent::cpu::child::child_main(std::env::args_os().skip(1))
}
