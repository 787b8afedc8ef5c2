//! Messages as bytes, from outside: golden files of every version, and any message and any bytes.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod golden;
mod properties;
mod samples;
