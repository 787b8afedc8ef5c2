//! C++ candidates on a processor: built, then run in sandboxed child processes over shared memory.
//!
//! This is the part of the referee that a candidate must not be able to touch. It is mechanism only; what inputs are drawn,
//! what is right and what is faster is decided above it.
//!
//! | module | noun |
//! |---|---|
//! | [`build`] | source to shared library, bounded and cached |
//! | [`arena`] | shared memory for arguments, in several copies, with guard zones |
//! | [`runner`] | one candidate in one process; the parent holds the clock |
//! | [`sandbox`] | the walls around it, and a check that they hold here |
//! | [`fault`] | what can go wrong with it, and the verdict that follows |
//! | [`child`] | this program's side as a child process |

pub mod arena;
pub mod build;
pub mod child;
mod entropy;
pub mod fault;
mod fpenv;
mod pidfd;
pub mod runner;
pub mod sandbox;
mod waiting;
mod wire;

pub use wire::MAX_LAUNCHES;
