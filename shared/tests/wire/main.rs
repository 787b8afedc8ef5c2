//! Messages as bytes, from outside: golden files of every version, and any message and any bytes.

mod golden;
mod properties;
mod samples;
