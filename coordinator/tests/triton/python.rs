//! Jobs for `check.py`.

use std::process::Command;

use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::launch::{Launch, Scratch};
use kernelopt_shared::target::Target;
use serde_json::{Value, json};

/// Candidates of one target, as the script reads them; the grid is evaluated at the sizes of the capture.
pub fn job(name: &str, target: &Target, candidates: &[Candidate], regimes: &[&str]) -> Value {
    let size = |name: &str| {
        let argument = target.meaning.arguments.iter().find(|argument| argument.name == name)?;
        argument.value.as_ref()?.eval(&|symbol| target.meaning.symbols.get(symbol).copied())
    };
    let candidate = |candidate: &Candidate| {
        let launch = |launch: &Launch| {
            let mut value = json!(launch);
            value["grid"] = json!(launch.grid(&size).unwrap());
            value
        };
        let scratch = |scratch: &Scratch| {
            let mut value = json!(scratch);
            value["elements"] = json!(scratch.elements.eval(&size).unwrap());
            value
        };
        let launches: Vec<Value> = candidate.launches().map(launch).collect();
        let scratch: Vec<Value> = candidate.scratch.iter().map(scratch).collect();
        json!({
            "note": candidate.origin.note, "source": candidate.source, "launch": launches[0], "launches": launches, "scratch": scratch,
        })
    };
    let candidates: Vec<Value> = candidates.iter().map(candidate).collect();
    json!({
        "name": name, "kernel": target.kernel, "meaning": target.meaning, "scratch": target.scratch,
        "regimes": regimes, "candidates": candidates,
    })
}

/// Runs `check.py`, and gives what it said.
///
/// # Errors
/// Where some candidate failed.
pub fn check(mode: &str, jobs: &[Value]) -> Result<String, String> {
    let python = std::env::var("KERNELOPT_PYTHON").expect("KERNELOPT_PYTHON names a Python with torch and triton");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.json");
    std::fs::write(&path, serde_json::to_vec(jobs).unwrap()).unwrap();
    let script = format!("{}/tests/triton/check.py", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(python).arg(script).arg(mode).arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(said) } else { Err(format!("{said}\n{}", String::from_utf8_lossy(&output.stderr))) }
}
