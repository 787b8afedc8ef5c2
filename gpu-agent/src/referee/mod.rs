//! The referee: owns inputs, expected outputs, clocks and the decision (DESIGN sections 7 and 8; `docs/referee.md`).
//!
//! [`regime`] draws inputs, [`case`] prepares memory, [`expected`] knows what must come out, [`tolerance`] how near, [`contest`] times, [`samples`] say what it means, [`session`] keeps
//! what one target needs, [`judge`] decides. A candidate sees none of it: it runs in a process of [`crate::cpu`].

mod case;
mod contest;
mod expected;
mod judge;
mod player;
mod regime;
mod samples;
mod session;
mod tolerance;
pub(crate) mod values;

pub use judge::Judge;
pub use regime::Regime;
pub use samples::{Effort, Samples};
pub use session::Session;
pub use tolerance::{Errors, Tolerance};
