//! The metered door to language models.

pub mod breaker;
pub mod dialect;
pub mod sse;
pub mod upstream;
pub mod usage;
