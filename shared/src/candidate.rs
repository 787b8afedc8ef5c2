//! The candidate contract: source and launch plan offered for a target. Data only.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::launch::Launch;
use crate::target::Language;

/// Source offered in place of a target's generated code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Language of `source`.
    pub language: Language,
    /// One translation unit. C++: it defines `extern "C" void kernel(...)` with the target's own arguments; flags travel
    /// inside as `#pragma GCC optimize`, since the optimised file is built by the compiler's own command.
    ///
    /// Triton: a module of `@triton.jit` functions and constants, one of which [`Launch::entry`] names; its runtime
    /// parameters are the target's arguments, in order, followed by `tl.constexpr` ones. The baseline is the compiler's own
    /// text, decorator included; builders look at its `@triton.jit` function only.
    /// CUDA C++: it defines `extern "C" __global__ void ENTRY(...)` with the target's arguments.
    pub source: String,
    /// How it is launched; none for C++, which is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// What it claims to keep; the default is the baseline's own precision.
    #[serde(default)]
    pub precision: Precision,
    /// Where it comes from.
    pub origin: Origin,
}

/// A promise about arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// As exact as the baseline: same element types, no fast-math, no narrower arithmetic.
    #[default]
    Baseline,
}

/// Who made a candidate, and from what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Proposer: `baseline`, `schedule`, `replay`, ...
    pub proposer: String,
    /// What it tried, for people: `rows per thread 1, two-pass, exp inlined`.
    pub note: String,
    /// Candidate that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Digest>,
    /// Round of the search in which it was proposed, from zero.
    #[serde(default)]
    pub round: u32,
}

impl Candidate {
    /// Identity: language, source, launch and precision. The origin is not part of it, so one source is measured once.
    pub fn id(&self) -> Digest {
        let launch = self.launch.as_ref().map(|launch| format!("{launch:?}")).unwrap_or_default();
        let precision = format!("{:?}", self.precision);
        let parts = [self.language.name(), &self.source, &precision, &launch];
        Digest::of(parts.into_iter().filter(|part| !part.is_empty()).map(str::as_bytes))
    }
}
