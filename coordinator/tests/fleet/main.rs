//! The coordinator's core against simulated agents: nothing is lost, nothing counts twice, everybody gets a share.

mod crew;
mod rules;
mod scale;
