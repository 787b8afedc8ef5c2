//! A language model as a proposer.
//!
//! ```text
//! exchanges + verdicts ──► dialogue ──► what is fresh, what wants a repair, what is out
//!                             │
//!          prompt ◄───────────┴──► answer ──► rules ──► candidate
//! ```
//!
//! The proposer is a pure function of its scene: questions go out as events of the job, answers come back as events, and what an answer
//! holds is read anew whenever it is looked at. Nothing that a model says is run here: it is text, bounded, read strictly, and judged by
//! agents like any other candidate.
//!
//! | file | noun |
//! |---|---|
//! | `proposer` | what is offered or asked next |
//! | `dialogue` | a target's exchanges as rounds of lineages |
//! | `name` | the ids of questions, in which a lineage is spelt |
//! | `prompt`, `facts`, `prompts/` | what a model is told; each role is one file |
//! | `answer`, `rules` | what it said, read strictly, before anything is built |
//! | `recorded`, `batch`, `lines` | models that are files |
//! | `account` | what was asked and what came of it, for the result |

mod account;
mod answer;
pub mod batch;
mod dialogue;
mod facts;
mod lines;
mod name;
mod prompt;
mod proposer;
pub mod recorded;
mod rules;

pub use account::account;
pub use answer::{Reading, Refusal, read};
pub use batch::Batch;
pub use name::{Part, question_id};
pub use proposer::LlmProposer;
pub use recorded::Recorded;

/// Name of the proposer that asks a gateway, as in a candidate's origin.
pub const LLM: &str = "llm";
/// The same where questions go out as a file.
pub const BATCH: &str = "batch";
/// The same where answers are on record.
pub const REPLAY: &str = "replay";
