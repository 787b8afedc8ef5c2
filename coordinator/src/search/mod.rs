//! The search: proposers make candidates, verdicts come back, the frontier moves.
//!
//! [`state`] folds the journal, [`plan`] says what to do next, [`rank`] says where time can be won. None of them acts:
//! [`crate::tune`] does.

pub mod plan;
pub mod proposer;
pub mod rank;
pub mod replay;
pub mod state;
