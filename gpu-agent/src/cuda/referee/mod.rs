//! The referee in the process that owns the device (DESIGN sections 7 and 8; `docs/referee.md`).
//!
//! [`plan`] knows what a target's arguments are, [`memory`] lays them out between guard zones ([`room`]), [`truth`] runs the float64
//! twin, [`session`] keeps what one target needs, [`player`] is what is launched, [`workspace`] its scratch, [`check`] compares,
//! [`contest`] times, [`judge`] decides.
//!
//! Inputs are functions of a seed, drawn on the device when they are needed. So the truth of a candidate's inputs is computed
//! *after* the candidate has run, in memory that was poisoned before: while it runs, there is no expected output on the device.

mod check;
mod contest;
mod element;
mod judge;
mod memory;
mod plan;
mod player;
mod room;
mod session;
mod truth;
mod workspace;

pub use judge::{Judgement, judge};
pub use session::Session;

use kernelopt_shared::verdict::Verdict;

use super::device::DeviceError;

/// Why an evaluation, or the opening of a target, ended early.
#[derive(Clone, Debug, PartialEq)]
pub enum Foul {
    /// The candidate is to blame.
    Candidate(Verdict),
    /// The candidate is, and wrote where it has nothing: what else it may have written is not known.
    Trespass(String),
    /// The compiler's own code is; how the sentence ends.
    Baseline(String),
    /// Nobody's code is.
    Device(DeviceError),
}

impl From<DeviceError> for Foul {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// What the failure of a candidate's load or launch says of it.
fn candidates_fault(error: DeviceError) -> Foul {
    match error {
        DeviceError::Refused(reason) => Foul::Candidate(Verdict::Rejected { reason: format!("the launch is refused: {reason}") }),
        DeviceError::Image(reason) => Foul::Candidate(Verdict::BuildFailed { reason: format!("the machine code does not load: {reason}") }),
        DeviceError::Fault(reason) => Foul::Candidate(Verdict::Crashed { reason }),
        error @ (DeviceError::OutOfMemory { .. } | DeviceError::Device(_)) => Foul::Device(error),
    }
}

/// What the failure of the compiler's own kernel, or of its twin, says.
fn baselines_fault(who: &'static str) -> impl Fn(DeviceError) -> Foul {
    move |error| match error {
        DeviceError::OutOfMemory { .. } | DeviceError::Device(_) => Foul::Device(error),
        error => Foul::Baseline(format!("does not run{who}: {error}")),
    }
}
