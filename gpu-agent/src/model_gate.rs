//! The whole-model gate: what `python -m kernelopt gate` writes, as a [`ModelCheck`].

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::task::{AgentError, InputSetCheck, ModelCheck, OutputCheck};
use serde::Deserialize;

use crate::python::Python;

/// Longest check.
const LIMIT: Duration = Duration::from_secs(1200);

/// Compares the files in `optimized` with the bundle, timing both for `seconds` in all.
///
/// # Errors
/// Python cannot do it: a file does not load, say.
pub fn check(python: &Python, bundle: &Path, optimized: &Path, seconds: u32, seed: u64, stop: &Stop) -> Result<ModelCheck, AgentError> {
    let (seed, seconds) = (seed.to_string(), seconds.to_string());
    let options = [OsStr::new("--seed"), seed.as_ref(), "--seconds".as_ref(), seconds.as_ref()];
    let args = [&[OsStr::new("gate"), bundle.as_os_str(), "--optimized".as_ref(), optimized.as_os_str()], &options[..]].concat();
    let evidence: Evidence = python.json(&args, LIMIT, stop)?;
    Ok(ModelCheck { input_sets: evidence.input_sets.into_iter().map(InputSet::into_check).collect() })
}

#[derive(Deserialize)]
struct Evidence {
    input_sets: Vec<InputSet>,
}

#[derive(Deserialize)]
struct InputSet {
    name: String,
    outputs: Vec<Output>,
    repeatable: Repeatable,
    inputs_intact: bool,
    missing: Vec<Missing>,
    pairs_us: Vec<(f64, f64)>,
    #[serde(default)]
    control_us: Vec<(f64, f64)>,
    #[serde(default)]
    faults: Vec<String>,
}

#[derive(Deserialize)]
struct Repeatable {
    baseline: bool,
    optimized: bool,
}

/// A graph that could not be run in double precision.
#[derive(Deserialize)]
struct Missing {
    graph: u32,
    reason: String,
}

#[derive(Deserialize)]
struct Output {
    graph: u32,
    index: u32,
    dtype: Dtype,
    scale: f64,
    max_error_baseline: Option<f64>,
    max_error_optimized: Option<f64>,
    equal: bool,
    layout_equal: bool,
    nan_mismatch: bool,
}

impl InputSet {
    fn into_check(self) -> InputSetCheck {
        let mut faults = self.faults;
        faults.extend(self.missing.iter().map(|m| format!("graph {} has no float64 reference: {}", m.graph, m.reason)));
        if self.repeatable.baseline && !self.repeatable.optimized {
            faults.push("the optimised model does not repeat its own outputs, the original does".into());
        }
        if !self.inputs_intact {
            faults.push("an input was changed that the original leaves alone".into());
        }
        InputSetCheck {
            name: self.name,
            outputs: self.outputs.into_iter().map(Output::into_check).collect(),
            faults,
            pairs_us: self.pairs_us,
            control_us: self.control_us,
        }
    }
}

impl Output {
    fn into_check(self) -> OutputCheck {
        OutputCheck {
            graph: self.graph,
            index: self.index,
            max_error_baseline: self.max_error_baseline,
            max_error_optimized: self.max_error_optimized,
            scale: self.scale,
            unit_roundoff: self.dtype.unit_roundoff(),
            same_class: self.layout_equal && !self.nan_mismatch && (self.dtype.is_float() || self.equal),
        }
    }
}
