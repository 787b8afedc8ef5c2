//! The metered door to language models.

pub mod breaker;
pub mod dialect;
pub mod estimate;
pub mod limit;
pub mod names;
pub mod price;
pub mod queue;
pub mod settings;
pub mod sse;
pub mod upstream;
pub mod usage;
