//! `result.json`: the contract that others build on. Fields are only added, never renamed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// Version of the schema of `result.json`.
pub const RESULT_SCHEMA_VERSION: u32 = 1;

/// Outcome of one `tune`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneResult {
    /// [`RESULT_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Digest of the bundle that was tuned.
    pub bundle: Digest,
    /// Device, for people: processor and threads, or GPU.
    pub device: String,
    /// Versions of what took part (`kernelopt`, `torch`, `compiler`, ...).
    pub versions: BTreeMap<String, String>,
    /// The whole model.
    pub model: ModelResult,
    /// One row per target, greatest share first.
    pub targets: Vec<TargetResult>,
    /// Kernels that were left alone, with the reason.
    pub untouched: Vec<Untouched>,
    /// What was spent.
    pub budget: BudgetSpent,
    /// Candidates that were not right, by verdict kind.
    pub rejected: BTreeMap<String, u64>,
}

/// Verdict on the whole model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelVerdict {
    /// The optimised files are faster and right.
    Improved,
    /// The compiler's own code stands, byte for byte.
    Kept,
}

/// The whole model, original against optimised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelResult {
    /// Improved or kept.
    pub verdict: ModelVerdict,
    /// Why, in a sentence.
    pub reason: String,
    /// Median time of one call of every graph, original, in microseconds.
    pub baseline_us: f64,
    /// The same of what stands in `optimized/`.
    pub optimized_us: f64,
    /// Baseline over optimised.
    pub speedup: f64,
    /// 95 % bootstrap interval of `speedup`.
    pub ci95: [f64; 2],
    /// Input sets on which outputs were compared.
    pub inputs_checked: u32,
    /// Greatest error of an output, relative to the size of that output, against float64.
    pub max_error: f64,
    /// The same of the original.
    pub baseline_max_error: f64,
    /// Kernels and the rest, before and after, in microseconds per model call: `[name, before, after]`.
    pub parts: Vec<(String, f64, f64)>,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetResult {
    /// Kernel name.
    pub name: String,
    /// Graph number.
    pub graph: u32,
    /// Hash of its meaning.
    pub fingerprint: Digest,
    /// Share of model time before, measured inside `call`.
    pub share: f64,
    /// Baseline time of one launch under the referee, in microseconds.
    pub baseline_us: f64,
    /// Best confirmed time, or the baseline's.
    pub best_us: f64,
    /// Confirmed speed-up, one where the baseline stands.
    pub speedup: f64,
    /// Its 95 % interval.
    pub ci95: [f64; 2],
    /// Least time by the bytes that must move over the best time; zero where unknown.
    pub roofline_fraction: f64,
    /// The same for the baseline.
    pub baseline_roofline_fraction: f64,
    /// Verdicts by kind.
    pub verdict_counts: BTreeMap<String, u64>,
    /// The confirmed winner; none where the baseline stands.
    pub winner: Option<Winner>,
}

/// A confirmed winner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Winner {
    /// Candidate digest.
    pub candidate: Digest,
    /// Who proposed it.
    pub proposer: String,
    /// What it does, for people.
    pub note: String,
}

/// A kernel that is no target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Untouched {
    /// Kernel name.
    pub name: String,
    /// Graph number.
    pub graph: u32,
    /// Why.
    pub reason: String,
}

/// What a job spent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BudgetSpent {
    /// Wall time in seconds, over all resumed runs.
    pub seconds: f64,
    /// Candidates judged.
    pub candidates: u64,
    /// Language-model tokens.
    pub tokens: u64,
    /// Language-model cost.
    pub cost_usd: f64,
    /// Share of wall time in building, verifying and measuring.
    pub share: BTreeMap<String, f64>,
    /// What language models were asked; none where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language_model: Option<ModelUse>,
}

/// What language models were asked, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelUse {
    /// Questions that were put.
    pub questions: u64,
    /// Those that were answered.
    pub answers: u64,
    /// Answers to questions for a kernel that held none, or one that breaks a rule.
    pub no_kernel: u64,
    /// Candidates that came of the others.
    pub candidates: u64,
    /// Tokens of prompts, those that were read from a provider's cache included.
    pub input_tokens: u64,
    /// Tokens that were read from a provider's cache.
    pub cached_input_tokens: u64,
    /// Tokens of answers.
    pub output_tokens: u64,
    /// Questions without an answer, by the kind of reason.
    pub unanswered: BTreeMap<String, u64>,
    /// The last of those reasons, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_problem: Option<String>,
}
