//! The metered door to language models.

pub mod sse;
