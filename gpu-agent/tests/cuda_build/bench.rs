//! What the tests share: a builder, launches, kernels of captured files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use kernelopt_gpu_agent::cpu::child::Reexec;
use kernelopt_gpu_agent::cuda::build::{BuildLimits, Builder, BuilderOptions, Kind, Order};
use kernelopt_gpu_agent::python::Python;
use kernelopt_shared::launch::Launch;
use kernelopt_shared::meaning::Expr;
use kernelopt_shared::target::Language;

/// A builder over a fresh cache, or none where this machine has no triton. `KERNELOPT_REQUIRE_TRITON` makes that an error.
pub fn builder(workers: usize, limits: BuildLimits) -> Option<(tempfile::TempDir, Builder)> {
    let python = LazyLock::force(&PYTHON).clone()?;
    let folder = tempfile::tempdir().unwrap();
    let builder = Builder::new(options(python, folder.path(), workers, limits)).unwrap();
    Some((folder, builder))
}

pub fn options(python: PathBuf, folder: &Path, workers: usize, limits: BuildLimits) -> BuilderOptions {
    BuilderOptions {
        reexec: Reexec { program: env!("CARGO_BIN_EXE_kernelopt-runner").into(), words: Vec::new() },
        python,
        cache: folder.join("cache"),
        cache_bytes: 1 << 30,
        workers,
        architecture: 90,
        limits,
        permit_weak_sandbox: false,
    }
}

static PYTHON: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    // A test runs in the package's folder; a clone's environment lies in the workspace's.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let found = Python::find().interpreter().to_owned();
    let python = if found.components().count() > 1 && found.is_relative() { root.join(found) } else { found };
    let local = root.join(".venv/bin/python");
    let candidates = [python, local];
    let usable = candidates.iter().find(|python| {
        let probe = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('torch', 'triton', 'kernelopt'))))";
        Command::new(python).args(["-c", probe]).output().is_ok_and(|done| done.status.success())
    });
    if usable.is_none() {
        assert!(std::env::var_os("KERNELOPT_REQUIRE_TRITON").is_none(), "no Python with torch, triton and kernelopt");
        eprintln!("SKIPPED: no Python with torch, triton and kernelopt; run `make venv` and set KERNELOPT_PYTHON and PYTHONPATH");
    }
    usable.cloned()
});

/// A launch of one program.
pub fn launch(entry: &str, constants: &[(&str, i64)]) -> Launch {
    Launch {
        entry: entry.into(),
        grid: [Expr::Int(1), Expr::Int(1), Expr::Int(1)],
        constants: constants.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect::<BTreeMap<_, _>>(),
        divisible_by_16: BTreeSet::new(),
        num_warps: 4,
        num_stages: 1,
        arguments: Vec::new(),
    }
}

pub fn triton<'a>(source: &'a str, signature: &'a [(&'a str, &'a str)], launch: &'a Launch) -> Order<'a> {
    Order { language: Language::Triton, source, signature, launch, kind: Kind::Kernel }
}

/// The compiler's text of the first kernel in a captured file whose name has `part`.
pub fn captured(file: &str, part: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/captures").join(file).join("output_code_0.py");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let sources = text.split("= async_compile.triton('").skip(1);
    let source = sources.filter(|rest| rest.split('\'').next().unwrap().contains(part)).map(|rest| rest.split("'''").nth(1).unwrap());
    source.map(str::to_owned).next().unwrap_or_else(|| panic!("no {part} in {}", path.display()))
}

/// Name of the kernel's function.
pub fn entry_of(source: &str) -> &str {
    source.rsplit("\ndef ").next().unwrap().split('(').next().unwrap()
}

pub const COPY: &str = "
import triton
import triton.language as tl

@triton.jit
def copy(source, target, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(source + index, index < n)
    tl.store(target + index, value, index < n)
";
pub const COPIES: &[(&str, &str)] = &[("in_ptr0", "*bf16"), ("out_ptr0", "*fp32"), ("xnumel", "i32")];
