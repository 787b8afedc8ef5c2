//! The `schedule` proposer: its code on the meanings of real kernels, its functions, its search.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod compiler;
mod functions;
mod harness;
mod kernels;
mod naive;
mod plans;
mod search;
