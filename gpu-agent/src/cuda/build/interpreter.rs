//! The Python that workers run in: where its parts lie, and which they are.

use std::path::{Path, PathBuf};
use std::process::Command;

use kernelopt_shared::digest::Digest;
use serde::Deserialize;

use super::BuildError;
use crate::python::PYTHON_VARIABLE;

/// Prints one JSON object. Imports nothing of what it looks for: that takes seconds.
const PROBE: &str = r#"
import hashlib, importlib.metadata, importlib.util, json, os, sys, sysconfig
def folder(name):
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return os.path.realpath(places[0]) if places else None
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
places = {name: folder(name) for name in ("kernelopt", "torch", "triton", "nvidia", "numpy")}
parents = list(dict.fromkeys(os.path.dirname(place) for place in places.values() if place))
paths = sysconfig.get_paths()
own = {os.path.realpath(paths[name]) for name in ("purelib", "platlib")}
hashed = hashlib.sha256()
build = os.path.join(places["kernelopt"] or "", "build")
for name in sorted(os.listdir(build)) if os.path.isdir(build) else ():
    if name.endswith(".py"):
        hashed.update(open(os.path.join(build, name), "rb").read())
print(json.dumps({
    "version": sys.version,
    "packages": {name: version(name) for name in ("torch", "triton", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")},
    "places": places,
    "builder": hashed.hexdigest() if os.path.isdir(build) else None,
    "search": [parent for parent in parents if parent not in own],
    "readable": [sys.prefix, sys.exec_prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)),
                 paths["stdlib"], paths["platstdlib"], *own, *parents],
}))
"#;

/// Parts of the system that Python, its libraries and the compilers' programs read.
const SYSTEM: &[&str] =
    &["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"];

/// What was found out about an interpreter.
#[derive(Clone, Debug)]
pub(super) struct Interpreter {
    /// Executable.
    pub program: PathBuf,
    /// What a worker must be able to read.
    pub readable: Vec<PathBuf>,
    /// Folders for its `PYTHONPATH`.
    pub search: Vec<PathBuf>,
    /// Hash of everything that decides what a source becomes.
    pub identity: Digest,
}

#[derive(Deserialize)]
struct Answer {
    version: String,
    packages: serde_json::Value,
    places: Places,
    builder: Option<String>,
    search: Vec<PathBuf>,
    readable: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Places {
    kernelopt: Option<PathBuf>,
    torch: Option<PathBuf>,
    triton: Option<PathBuf>,
}

impl Interpreter {
    /// Asks the interpreter; takes a tenth of a second.
    ///
    /// # Errors
    /// [`BuildError::Environment`]: it does not run, or lacks what workers need.
    pub(super) fn ask(program: &Path) -> Result<Self, BuildError> {
        let name = program.display();
        let lacking = |what: String, remedy: &str| BuildError::Environment { what, remedy: remedy.into() };
        let choose = format!("Set {PYTHON_VARIABLE} to a Python that has torch, or run `kernelopt doctor`.");
        let done = Command::new(program).args(["-P", "-c", PROBE]).output().map_err(|e| lacking(format!("{name}: {e}"), &choose))?;
        let answer: Answer = serde_json::from_slice(&done.stdout)
            .map_err(|_| lacking(format!("{name} is no usable Python: {}", String::from_utf8_lossy(&done.stderr).trim()), &choose))?;
        let Some(builder) = answer.builder.filter(|_| answer.places.kernelopt.is_some()) else {
            let remedy = "Put the clone's python folder into PYTHONPATH, or install it: pip install ./python";
            return Err(lacking(format!("{name} cannot import kernelopt.build"), remedy));
        };
        if answer.places.torch.is_none() {
            return Err(lacking(format!("{name} has no torch"), "pip install 'torch==2.11.*'"));
        }
        if answer.places.triton.is_none() {
            return Err(lacking(
                format!("{name} has no triton"),
                "Install the release that torch 2.11 goes with: pip install triton==3.6.0",
            ));
        }
        let packages = answer.packages.to_string();
        let identity = Digest::of([answer.version.as_bytes(), packages.as_bytes(), builder.as_bytes()]);
        let libraries = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let libraries = std::env::split_paths(&libraries).filter(|folder| folder.is_absolute()).collect::<Vec<_>>();
        let readable = answer.readable.into_iter().chain(SYSTEM.iter().map(PathBuf::from)).chain(libraries).collect();
        Ok(Self { program: program.to_owned(), readable, search: answer.search, identity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_python_is_our_error_with_a_remedy() {
        for program in ["/no/such/python", "/bin/true"] {
            let error = Interpreter::ask(Path::new(program)).unwrap_err();
            assert!(
                matches!(&error, BuildError::Environment { what, remedy } if what.contains(program) && remedy.contains("doctor")),
                "{error}"
            );
            assert_eq!(error.verdict(), None);
        }
    }
}
