//! A target: one generated kernel with everything needed to search it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::meaning::Meaning;
use crate::meaning::traffic::Traffic;

/// Language of generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// C++ with OpenMP, for CPUs.
    Cpp,
    /// Triton, for GPUs.
    Triton,
    /// CUDA C++, for NVIDIA GPUs.
    Cuda,
}

impl Language {
    /// Extension of a file of it, without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Cpp => "cpp",
            Self::Triton => "py",
            Self::Cuda => "cu",
        }
    }

    /// Lower-case name, as serialised.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpp => "cpp",
            Self::Triton => "triton",
            Self::Cuda => "cuda",
        }
    }
}

/// One generated kernel, its exact shapes and its call sites.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Name in the compiler's file; unique within a graph.
    pub kernel: String,
    /// Number of the graph (`output_code_N.py`).
    pub graph: u32,
    /// Hash of meaning and precision contract.
    pub fingerprint: Digest,
    /// What it computes.
    pub meaning: Meaning,
    /// The compiler's own code, through the same door as any candidate.
    pub baseline: crate::candidate::Candidate,
    /// Output arguments that the graph never reads after any launch: a candidate need not write them.
    pub scratch: BTreeSet<String>,
    /// Launches per call of the graph.
    pub calls: u32,
    /// Bytes that must move per launch.
    pub traffic: Traffic,
    /// What the arguments held at capture, by argument name; the referee draws from it.
    #[serde(default)]
    pub distributions: BTreeMap<String, Distribution>,
}

impl Target {
    /// Name across graphs, `graph 0: cpp_fused_add_1`, as people see it.
    pub fn label(&self) -> String {
        format!("{}/{}", self.graph, self.kernel)
    }

    /// Arguments that the compiler fixed in its code, with their values: a size that is always one is passed, but is a constant
    /// of the kernel. They must be constants of every candidate's [`Launch`](crate::launch::Launch) too, since their type,
    /// `constexpr`, is none that a launch can pass.
    pub fn fixed_arguments(&self) -> BTreeMap<String, i64> {
        let constants = self.baseline.launch.iter().flat_map(|launch| &launch.constants);
        let is_argument = |name: &str| self.meaning.arguments.iter().any(|argument| argument.name == name);
        constants.filter(|(name, _)| is_argument(name)).map(|(name, value)| (name.clone(), *value)).collect()
    }
}

/// The values of one argument at capture: order statistics, so that any of the real world's shapes can be drawn again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Equally spaced quantiles of the finite values, least first, greatest last; at least two.
    pub quantiles: Vec<f64>,
    /// Share of exact zeros, NaN not counted.
    pub zero_share: f64,
    /// Share of NaN.
    pub nan_share: f64,
}
