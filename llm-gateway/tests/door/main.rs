//! The gateway over real sockets, against an upstream that does as it is told.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod batches;
mod cache;
mod failures;
mod limits;
mod models;
mod plain;
mod reload;
mod rig;
mod secrets;
mod streams;
mod upstream;
