//! The gateway over real sockets, against an upstream that does as it is told.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod plain;
mod rig;
mod upstream;
