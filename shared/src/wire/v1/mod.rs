//! Version 1, frozen. No field is added, removed or moved; enums gain variants at their end only. No attribute of serde stands here: bincode
//! writes what it says and cannot read it (`a_frozen_type_has_no_attributes` checks that).

mod control;
mod identity;
mod pulse;
mod report;
mod task;
mod text;

pub(super) use control::Control;
pub(super) use pulse::Pulse;
pub(super) use report::Report;
pub(super) use task::Task;

/// Sources of this version, for the test that watches over them.
#[cfg(test)]
pub(super) const SOURCES: [&str; 6] = [
    include_str!("control.rs"),
    include_str!("identity.rs"),
    include_str!("pulse.rs"),
    include_str!("report.rs"),
    include_str!("task.rs"),
    include_str!("text.rs"),
];
