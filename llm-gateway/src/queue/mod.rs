//! Who may send now: a queue that is fair between jobs, before limits that are never passed.
//!
//! | module | noun |
//! |---|---|
//! | [`drr`] | whose turn it is, pure: deficit round robin by reserved tokens |
//! | [`Admission`] | the queue and the books together: [`Ask`] in, [`Permit`] or [`Refused`] out |
//! | [`Permit`] | a reservation that settles itself, whatever becomes of its holder |

mod admission;
mod ask;
mod choice;
pub mod drr;
mod permit;
mod standing;
mod state;

pub use self::admission::{Admission, LimitsError};
pub use self::ask::{Ask, HIGHEST, Headers, LOWEST, Refused, RefusedKind, Seen};
pub use self::permit::{Permit, Settled};
pub use self::standing::{Open, Standing};
