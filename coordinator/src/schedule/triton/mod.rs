//! Triton for a target from its meaning.
//!
//! A kernel is one `@triton.jit` function over a block of one or two dimensions: rows, and elements along a row. Values of the
//! row are scalars where a program has one row only. Sizes that the meaning knows are numbers in the text, so that bounds
//! are checked only where they cut a block.
//!
//! | module | noun |
//! |---|---|
//! | [`space`] | a schedule: what may be chosen |
//! | [`loops`] | how loops may be divided into rows and columns |
//! | [`block`] | the block of a program: sizes, masks |
//! | [`index`], [`function`] | index expressions and functions as text |
//! | `body`, `pass` | values, loads and stores; reductions, at once or in loops |
//! | `online` | maximum and sum of exponentials in one pass |
//! | `running` | mean and squared deviations in one pass |
//! | [`mod@split`] | rows in several parts, and a second launch that combines them |
//! | [`mod@kernel`] | the module and its launch |
//! | [`facts`], [`portfolio`](fn@portfolio), [`neighbours`], [`TritonSpace`] | what is known before, where the search begins, where it can go |

pub mod block;
mod body;
pub mod facts;
pub mod function;
pub mod index;
pub mod kernel;
pub mod loops;
mod online;
mod pass;
mod portfolio;
mod running;
mod search;
pub mod space;
pub mod split;
mod writer;

pub use kernel::{ENTRY, Kernel, kernel};
pub use portfolio::{neighbours, portfolio};
pub use search::TritonSpace;
pub use space::Schedule;
