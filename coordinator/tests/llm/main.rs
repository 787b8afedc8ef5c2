//! A language model as a proposer: jobs on a bundle whose model and referee are scripted, and everything that an answer may be.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod answers;
mod files;
mod money;
mod prompts;
mod rig;
mod search;
