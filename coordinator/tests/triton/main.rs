//! The `schedule` proposer for Triton: its kernels on the meanings of real ones, its search, and the text for the optimised file.
//!
//! What needs a Python with torch and triton is ignored by default; it needs no GPU:
//! `KERNELOPT_PYTHON=.venv/bin/python cargo nextest run -p kernelopt-coordinator --test triton --run-ignored all`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod candidates;
mod fixtures;
mod python;
mod render;
mod running;
mod search;
mod split;
mod text;
