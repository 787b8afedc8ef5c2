//! The coordinator: compiled model to graph to targets to search to tasks, and the journal of it all.

pub mod columns;
pub mod fleet;
pub mod http;
pub mod inductor;
pub mod inspect;
pub mod job;
pub mod journal;
pub mod llm;
pub mod report;
pub mod schedule;
pub mod search;
pub mod service;
pub mod tune;
