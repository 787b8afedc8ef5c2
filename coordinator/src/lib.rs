//! The coordinator: compiled model to graph to targets to search to tasks, and the journal of it all.

pub mod columns;
pub mod http;
pub mod inductor;
pub mod inspect;
pub mod journal;
pub mod report;
pub mod schedule;
pub mod search;
pub mod tune;
