//! Builders against real compilers. They need a Python with torch and triton; without one each test says so and passes.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod bench;
mod cuda;
mod hostile;
mod triton;
