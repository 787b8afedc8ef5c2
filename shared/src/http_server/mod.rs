//! What every HTTP server of the program has in common: how it listens, how long it waits for whom, how it ends, and names of requests.
//!
//! Routes, keys and errors are each server's own.

mod patience;
pub mod request_id;
mod serve;

pub use request_id::RequestIds;
pub use serve::{Terms, serve};
