//! Does a build worker start behind its walls, and can it build for the GPU?

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use kernelopt_gpu_agent::cuda::build::{BuildError, Builder, BuilderOptions, Kind, Order};
use kernelopt_shared::exit::UserError;
use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::Expr;
use kernelopt_shared::target::Language;

use super::{Check, Places};

/// Most that a try may leave in its cache, in bytes.
const CACHE_BYTES: u64 = 1 << 30;
/// In CUDA C++, for NVRTC.
const CUDA: &str = "extern \"C\" __global__ void one(float* out) { out[0] = 1.0f; }\n";
/// The same for triton.
const TRITON: &str = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef one(out):\n    tl.store(out, 1.0)\n";

/// Builds a kernel in each language for `architecture`, in one worker and without what was built before. Every step of it has a time limit.
pub(super) fn check(places: &Places, architecture: u32) -> Check {
    let started = Instant::now();
    match build(places, architecture) {
        Ok(()) => {
            let seconds = started.elapsed().as_secs_f64();
            Check::ok(
                "builder",
                format!("behind its walls, Triton and CUDA (NVRTC) kernels build for sm_{architecture}; {seconds:.0} s with its start"),
            )
        }
        Err((doing, error)) => {
            let remedy = error.remedy().unwrap_or_else(|| "See what is said of the sandbox, python and torch above.".into());
            Check::missing("builder", format!("{doing}: {error}"), remedy)
        }
    }
}

fn build(places: &Places, architecture: u32) -> Result<(), (&'static str, BuildError)> {
    let starting = |error| ("starting a worker", error);
    let io = |source| starting(BuildError::Io { path: std::env::temp_dir(), source });
    let cache = tempfile::tempdir().map_err(io)?;
    let options = BuilderOptions {
        reexec: places.reexec.clone(),
        python: places.python.clone(),
        cache: cache.path().to_owned(),
        cache_bytes: CACHE_BYTES,
        workers: 1,
        architecture,
        limits: Default::default(),
        permit_weak_sandbox: false,
    };
    let builder = Builder::new(options).map_err(starting)?;
    builder.warm_up().map_err(starting)?;
    builder.build_module(CUDA).map_err(|error| ("building a CUDA kernel", error))?;
    let launch = Launch {
        entry: "one".into(),
        grid: [1, 1, 1].map(Expr::Int),
        constants: BTreeMap::new(),
        divisible_by_16: BTreeSet::new(),
        num_warps: 1,
        num_stages: 1,
        arguments: Vec::new(),
    };
    let order = Order { language: Language::Triton, source: TRITON, signature: &[("out", "*fp32")], launch: &launch, kind: Kind::Kernel };
    builder.build(&order).map(drop).map_err(|error| ("building a Triton kernel", error))
}

#[cfg(test)]
mod tests {
    use kernelopt_gpu_agent::cpu::child::Reexec;

    use super::super::check::Status;
    use super::*;

    #[test]
    fn a_python_that_cannot_build_is_told_of_with_a_remedy() {
        let reexec = Reexec { program: "/no/such/program".into(), words: Vec::new() };
        let places = Places { python: "/no/such/python".into(), cache: std::env::temp_dir(), reexec };
        let check = check(&places, 90);
        assert_eq!(check.status, Status::Missing);
        assert!(check.detail.starts_with("starting a worker: /no/such/python") && check.remedy.is_some(), "{}", check.detail);
    }
}
