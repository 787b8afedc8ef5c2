//! The metered door to language models.

pub mod attempt;
pub mod batch;
pub mod breaker;
pub mod cache;
pub mod client;
pub mod dialect;
pub mod embedded;
pub mod estimate;
mod flight;
pub mod gateway;
pub mod http;
mod kept;
pub mod limit;
pub mod names;
pub mod price;
pub mod queue;
mod record;
pub mod relay;
pub mod settings;
pub mod sse;
pub mod upstream;
pub mod usage;
