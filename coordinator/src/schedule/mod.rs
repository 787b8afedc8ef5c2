//! The `schedule` proposer: C++ or Triton for a target from its meaning, under a space of schedules. No language model, no
//! editing of the compiler's text.
//!
//! ```text
//! meaning --partition--> regions --rewrite--> regions --plan--> loop plans --emit--> C++
//!                                                              passes ------triton-> Triton and its launch
//! ```
//!
//! | module | noun |
//! |---|---|
//! | [`space`] | a schedule: what may be chosen |
//! | [`index`], [`loops`] | canonical index expressions; a node's loops brought to a region's |
//! | [`storage`], `symbols` | which names lie in one memory; sizes from arguments |
//! | [`graph`], [`region`], [`partition`] | values of nodes that share their rows; nodes grouped so |
//! | [`rewrite`], [`reduction`], [`simplify`], [`bounds`] | identities; reductions taken apart; what is known of a value's size |
//! | [`plan`], [`lanes`] | passes over a row, what is kept, lanes, threads; no language |
//! | [`emit`] | C++ |
//! | [`triton`] | Triton: its own space of schedules, and its emitter |
//! | [`ScheduleProposer`], [`portfolio`], [`neighbours`], `walk` | the search: where it begins and where it goes |

pub mod bounds;
pub mod emit;
pub mod graph;
pub mod index;
pub mod lanes;
pub mod loops;
pub mod partition;
pub mod plan;
mod portfolio;
mod proposer;
pub mod reduction;
pub mod region;
pub mod rewrite;
pub mod simplify;
pub mod space;
pub mod storage;
mod symbols;
pub mod triton;
mod walk;

use std::collections::BTreeSet;

use kernelopt_shared::meaning::Meaning;

pub use portfolio::{neighbours, portfolio};
pub use proposer::ScheduleProposer;
pub use space::Schedule;

/// Why a kernel has no code under a schedule. The proposer then offers less.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("no schedule: {0}")]
pub struct Unsupported(String);

impl Unsupported {
    /// With a reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// C++ for a meaning under a schedule; `scratch` names the arguments that need not be written.
///
/// # Errors
/// Where the meaning holds something that cannot be written, or the schedule does not suit it.
pub fn source(meaning: &Meaning, scratch: &BTreeSet<String>, schedule: &Schedule, team: emit::Team) -> Result<String, Unsupported> {
    let storage = storage::Storage::new(meaning);
    let regions = partition::regions(meaning, &storage, scratch, schedule)?;
    let plans: Vec<plan::RegionPlan> = regions
        .into_iter()
        .filter(|region| !region.stores.is_empty())
        .map(|region| plan::plan(rewrite::apply(&region, schedule.algebra), &storage, schedule))
        .collect::<Result<_, _>>()?;
    emit::kernel(meaning, &storage, &plans, schedule, team)
}
