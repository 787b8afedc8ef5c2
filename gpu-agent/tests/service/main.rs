//! The agent service over the broker in memory: a coordinator's end that counts, and devices that do as a script says.
//!
//! Only the device is scripted. Broker, messages, threads, locks and clocks are those of the product. Numbers in brackets are the rows
//! of the table of failures that a fleet must survive (issue 4).

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cancel;
mod desk;
mod doubt;
mod faults;
mod leave;
mod life;
mod limits;
mod real;
mod rig;
mod script;
mod shelf;
