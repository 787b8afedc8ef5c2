//! Work for an agent, and what comes back.
//!
//! [`Agent`] is the role that the coordinator sees. The embedded composition hands it a device of this process; a fleet
//! hands it one that talks to a broker.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::candidate::Candidate;
use crate::exit::{ExitCode, UserError};
use crate::target::Target;
use crate::verdict::Outcome;

/// Does the work that needs a device. Calls block; a stop asked for elsewhere ends them with [`AgentError::Stopped`].
pub trait Agent {
    /// Measures the model as compiled: each kernel's share inside `call`, and the device's memory bandwidth.
    fn profile(&mut self, bundle: &Path) -> Result<ModelProfile, AgentError>;

    /// Candidates that it likes to be given at a time: enough to keep its builders busy, few enough that the next ones can learn
    /// from their verdicts.
    fn batch(&self) -> usize {
        4
    }

    /// Builds `candidates` ahead of their evaluation, on all cores. A build that fails is not an error here: its
    /// evaluation will say so. May return before they are built; returns the wall time that it took.
    fn build(&mut self, target: &Target, candidates: &[Candidate]) -> Result<Duration, AgentError>;

    /// What begins builds while this agent is at something else; none where building disturbs measuring, as on a CPU.
    fn ahead(&self) -> Option<Arc<dyn BuildAhead>> {
        None
    }

    /// Judges one candidate.
    fn evaluate(&mut self, work: &Evaluate<'_>) -> Result<Outcome, AgentError>;

    /// Compares the whole optimised model in the folder `optimized` with the original.
    fn check_model(&mut self, bundle: &Path, optimized: &Path, seed: u64) -> Result<ModelCheck, AgentError>;
}

/// Begins builds beside an agent's own work, from any thread.
pub trait BuildAhead: Send + Sync {
    /// Begins to build a candidate and returns at once. A build that fails is not an error here: its evaluation will say so.
    fn begin(&self, target: &Target, candidate: &Candidate) -> Result<(), AgentError>;
}

/// How much to spend on an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// A short look: few input sets, few blocks. Rejects what is wrong or clearly slower.
    Screen,
    /// All input regimes, long measurement.
    Full,
    /// `Full` from scratch: fresh processes, new seeds.
    Confirm,
}

/// Judge one candidate against a target's baseline.
#[derive(Clone, Copy, Debug)]
pub struct Evaluate<'a> {
    /// The target.
    pub target: &'a Target,
    /// The candidate.
    pub candidate: &'a Candidate,
    /// How much to spend.
    pub depth: Depth,
    /// Seed of inputs, orders and draws.
    pub seed: u64,
}

/// The model as compiled, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelProfile {
    /// One row per graph.
    pub graphs: Vec<GraphProfile>,
    /// Memory bandwidth of the device.
    pub bandwidth: BandwidthCurve,
    /// Device and environment, for people.
    pub device: String,
}

/// One graph, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphProfile {
    /// Number of the graph.
    pub index: u32,
    /// Calls of the graph in one call of the model.
    pub calls_per_run: u32,
    /// Samples of one whole call, nothing instrumented, in microseconds.
    pub call_us: Vec<f64>,
    /// Kernels by name.
    pub kernels: BTreeMap<String, KernelProfile>,
}

/// One kernel inside `call`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelProfile {
    /// Launches per call of the graph.
    pub launches: u32,
    /// Samples: time of all its launches in one call, in microseconds.
    pub us: Vec<f64>,
}

/// Bandwidth of a plain copy by working set: `(bytes touched, bytes per microsecond read plus written)`, least first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BandwidthCurve(pub Vec<(u64, f64)>);

impl BandwidthCurve {
    /// Least time in microseconds to move `bytes`, by the best bandwidth measured at a working set of that size or larger.
    /// `None` where nothing was measured.
    pub fn least_us(&self, bytes: u64) -> Option<f64> {
        let reachable = self.0.iter().filter(|(size, _)| *size >= bytes).map(|(_, bandwidth)| *bandwidth);
        let best = reachable.fold(0.0, f64::max);
        let best = if best > 0.0 { best } else { self.0.last()?.1 };
        (best > 0.0).then(|| bytes as f64 / best)
    }
}

/// Raw comparison of two whole models. The decision is the coordinator's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelCheck {
    /// One row per input set.
    pub input_sets: Vec<InputSetCheck>,
}

/// One input set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputSetCheck {
    /// `captured`, `activations x4`, ...
    pub name: String,
    /// Every output of every graph.
    pub outputs: Vec<OutputCheck>,
    /// What is wrong besides single outputs, in sentences.
    pub faults: Vec<String>,
    /// Paired samples of one model call in microseconds: `(original, optimised)`.
    pub pairs_us: Vec<(f64, f64)>,
    /// The same of the original and a second load of the original, in the same rounds: noise.
    #[serde(default)]
    pub control_us: Vec<(f64, f64)>,
}

/// One output against float64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputCheck {
    /// Graph number.
    pub graph: u32,
    /// Position in the graph's outputs.
    pub index: u32,
    /// Greatest absolute error of the original; none where there is no float64 reference.
    pub max_error_baseline: Option<f64>,
    /// Greatest absolute error of the optimised; none where there is no reference.
    pub max_error_optimized: Option<f64>,
    /// Greatest magnitude of the reference.
    pub scale: f64,
    /// Unit roundoff of the output's type; zero for integers.
    pub unit_roundoff: f64,
    /// True when layout, NaN, infinities and integers are those of the original.
    pub same_class: bool,
}

/// Why an agent could not do its work; the candidate is not to blame.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation")]
pub enum AgentError {
    #[error("stopped")]
    Stopped,
    #[error("{what}")]
    Environment { what: String, remedy: String },
    #[error("the compiler's own code for {kernel} {what}")]
    Baseline { kernel: String, what: String },
    #[error("{doing}: {source}")]
    Io { doing: String, source: std::io::Error },
    #[error("{0}")]
    Internal(String),
}

impl UserError for AgentError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Stopped => ExitCode::Interrupted,
            Self::Environment { .. } => ExitCode::Environment,
            Self::Baseline { .. } | Self::Io { .. } | Self::Internal(_) => ExitCode::Failure,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Environment { remedy, .. } => Some(remedy.clone()),
            Self::Baseline { .. } => Some("Capture the model again on this machine.".into()),
            _ => None,
        }
    }
}
