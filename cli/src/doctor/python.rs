//! The Python side: interpreter, torch and its companions, our own package.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::bytecode::{self, Lack};
use super::check::Check;
use super::command;

/// Importing torch from a cold disk takes up to a minute.
const LIMIT: Duration = Duration::from_secs(180);
const CHOOSE: &str = "Run `make venv` in a clone, or set KERNELOPT_PYTHON to a Python that has torch.";

/// Prints one JSON object and imports nothing that could fail before it.
const PROBE: &str = r#"
import importlib.metadata as metadata, importlib.util, json, os, sys, sysconfig, time
answer = {"version": sys.version.split()[0], "supported": sys.version_info[:2] >= (3, 11), "packages": {}}
answer["headers"] = os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
for name in ("torch", "numpy", "safetensors"):
    try:
        answer["packages"][name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
def places():
    for name in ("torch", "triton", "sympy", "numpy", "mpmath", "safetensors"):
        spec = importlib.util.find_spec(name)
        if spec and spec.origin and spec.submodule_search_locations:
            yield name, spec.origin
def lack():
    found = dict(places())
    if "torch" not in found:
        return None
    kept = importlib.util.cache_from_source(found["torch"])
    place = os.path.dirname(kept)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    writable = os.access(place, os.W_OK)
    if os.path.exists(kept) or writable and not sys.dont_write_bytecode:
        return None
    why = "PYTHONDONTWRITEBYTECODE is set" if writable else f"{place} cannot be written"
    return {"why": why, "writable": writable, "folders": [os.path.dirname(origin) for origin in found.values()]}
try:
    answer["bytecode"] = lack()
except Exception:
    answer["bytecode"] = None
def attempt(name, work):
    try:
        work()
        answer[name] = None
    except BaseException as error:
        answer[name] = f"{type(error).__name__}: {error}"
def package():
    import kernelopt
def torch():
    import torch
def tested():
    from kernelopt.torch_version import require_torch
    require_torch()
attempt("package_fault", package)
started = time.monotonic()
attempt("torch_fault", torch if answer["package_fault"] else tested)
if answer["bytecode"]:
    answer["bytecode"]["seconds"] = None if answer["torch_fault"] else time.monotonic() - started
print(json.dumps(answer))
"#;

/// What the probe answers.
#[derive(Debug, Deserialize)]
struct Answer {
    version: String,
    /// From 3.11 on.
    supported: bool,
    /// `Python.h` is there: generated C++ includes it.
    headers: bool,
    packages: BTreeMap<String, String>,
    /// Why `kernelopt` cannot be imported.
    package_fault: Option<String>,
    /// Why torch cannot be imported, or is not a release that the package knows.
    torch_fault: Option<String>,
    /// What torch lacks to be imported fast.
    bytecode: Option<Lack>,
}

/// Everything about the Python at `interpreter`.
pub(super) fn checks(interpreter: &Path) -> Vec<Check> {
    let name = interpreter.display();
    let done = match command::run(Command::new(interpreter).args(["-c", PROBE]), LIMIT) {
        Ok(done) => done,
        Err(error) => return vec![Check::missing("python", format!("{name}: {error}"), CHOOSE)],
    };
    // Libraries may print on import: the answer is the last line.
    match serde_json::from_str(done.stdout.lines().last().unwrap_or_default()) {
        Ok(answer) => judge(&name.to_string(), &answer),
        Err(_) => {
            let said = done.stderr.lines().last().unwrap_or("nothing");
            vec![Check::missing("python", format!("{name} is no usable Python ({}): {said}", done.status), CHOOSE)]
        }
    }
}

fn judge(name: &str, answer: &Answer) -> Vec<Check> {
    let python = format!("{} at {name}", answer.version);
    let interpreter = match (answer.supported, answer.headers) {
        (false, _) => Check::missing("python", python, "Use Python 3.11 or newer."),
        (true, false) => {
            let remedy = "Install its development files (Debian, Ubuntu: apt-get install python3-dev): generated C++ includes Python.h.";
            Check::missing("python", format!("{python}, without headers"), remedy)
        }
        (true, true) => Check::ok("python", python),
    };
    let package = match &answer.package_fault {
        None => Check::ok("package", "kernelopt can be imported"),
        Some(fault) => {
            let remedy = "Put the clone's python folder into PYTHONPATH, or install it: pip install ./python";
            Check::missing("package", format!("kernelopt cannot be imported: {fault}"), remedy)
        }
    };
    let bytecode = answer.bytecode.as_ref().map(|lack| bytecode::check(name, lack));
    let checks = [interpreter, torch(answer)].into_iter().chain(bytecode);
    checks.chain([companion(answer, "numpy"), companion(answer, "safetensors"), package]).collect()
}

fn torch(answer: &Answer) -> Check {
    let remedy = "Install the release that this version knows: pip install 'torch==2.11.*'";
    match (answer.packages.get("torch"), &answer.torch_fault) {
        (None, _) => Check::missing("torch", "not installed in this Python", remedy),
        (Some(version), Some(fault)) => Check::missing("torch", format!("{version}: {fault}"), remedy),
        (Some(version), None) if answer.package_fault.is_some() => Check::warn(
            "torch",
            format!("{version} can be imported"),
            "Whether this release is known is told once the package can be imported.",
        ),
        (Some(version), None) => Check::ok("torch", version.clone()),
    }
}

fn companion(answer: &Answer, name: &'static str) -> Check {
    match answer.packages.get(name) {
        Some(version) => Check::ok(name, version.clone()),
        None => Check::missing(name, "not installed in this Python", format!("pip install {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    fn good() -> Answer {
        let packages = ["torch", "numpy", "safetensors"].map(|name| (name.to_owned(), "1.0".to_owned())).into();
        Answer {
            version: "3.11.7".into(),
            supported: true,
            headers: true,
            packages,
            package_fault: None,
            torch_fault: None,
            bytecode: None,
        }
    }

    fn failing(answer: &Answer) -> Vec<&'static str> {
        let bad = |check: &Check| check.status == Status::Missing && check.remedy.is_some();
        judge("python3", answer).iter().filter(|check| bad(check)).map(|check| check.name).collect()
    }

    #[test]
    fn each_lack_is_named() {
        assert_eq!(failing(&good()), [""; 0]);
        assert_eq!(failing(&Answer { supported: false, ..good() }), ["python"]);
        assert_eq!(failing(&Answer { headers: false, ..good() }), ["python"]);
        assert_eq!(failing(&Answer { packages: BTreeMap::new(), ..good() }), ["torch", "numpy", "safetensors"]);
        assert_eq!(failing(&Answer { torch_fault: Some("torch 9.9 is not known".into()), ..good() }), ["torch"]);
        assert_eq!(failing(&Answer { package_fault: Some("ModuleNotFoundError".into()), ..good() }), ["package"]);
    }

    #[test]
    fn the_probe_runs_on_any_python() {
        if Command::new("python3").arg("--version").output().is_err() {
            return;
        }
        let checks = checks(Path::new("python3"));
        let names = checks.iter().map(|check| check.name).filter(|name| *name != "bytecode");
        assert_eq!(names.collect::<Vec<_>>(), ["python", "torch", "numpy", "safetensors", "package"]);
    }

    /// A torch of one line, with and without byte code, as root and as anyone.
    #[test]
    fn a_torch_without_byte_code_is_noticed_where_it_gets_none() {
        if Command::new("python3").arg("--version").output().is_err() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("torch");
        std::fs::create_dir(&package).unwrap();
        std::fs::write(package.join("__init__.py"), "x = 1\n").unwrap();
        let lack = |quiet: bool| {
            let mut command = Command::new("python3");
            command.env_remove("PYTHONDONTWRITEBYTECODE").env_remove("PYTHONPYCACHEPREFIX").env("PYTHONPATH", folder.path());
            if quiet {
                command.env("PYTHONDONTWRITEBYTECODE", "1");
            }
            let done = command::run(command.args(["-c", PROBE]), LIMIT).unwrap();
            serde_json::from_str::<Answer>(&done.stdout).unwrap().bytecode
        };
        let check = bytecode::check("python3", &lack(true).unwrap());
        assert!(check.detail.contains("PYTHONDONTWRITEBYTECODE") && check.remedy.unwrap().contains(&package.display().to_string()));
        // The import that this look takes writes it; then the variable does no harm.
        assert!(lack(false).is_none() && package.join("__pycache__").is_dir() && lack(true).is_none());
    }

    #[test]
    fn a_program_that_is_no_python_is_found_out() {
        let checks = checks(Path::new("false"));
        assert_eq!((checks[0].name, checks[0].status), ("python", Status::Missing));
    }
}
