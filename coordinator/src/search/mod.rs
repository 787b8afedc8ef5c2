//! The search: proposers make candidates, verdicts come back, the frontier moves.

pub mod proposer;
