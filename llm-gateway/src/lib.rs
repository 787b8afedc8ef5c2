//! The metered door to language models.

pub mod cache;
pub mod estimate;
pub mod limit;
pub mod names;
pub mod price;
pub mod queue;
pub mod settings;
pub mod usage;
