//! The metered door to language models.

pub mod dialect;
pub mod sse;
pub mod usage;
