//! `kernelopt doctor`: what this machine has, what is missing, and how to get it.

mod bytecode;
mod check;
mod command;
mod compiler;
mod gpu;
mod gpu_builder;
mod gpu_python;
mod gpu_use;
mod host;
mod python;
mod sandbox;
mod show;
mod storage;

use std::path::PathBuf;

use kernelopt_gpu_agent::cpu::child::Reexec;
use kernelopt_shared::exit::ExitCode;

pub use check::{Check, Status};

/// Where to look.
#[derive(Clone, Debug)]
pub struct Places {
    /// The Python that has torch.
    pub python: PathBuf,
    /// Where builds are kept.
    pub cache: PathBuf,
    /// This program, as the runner.
    pub reexec: Reexec,
}

/// Checks the machine and prints what was found: a list for people, or a JSON array. [`ExitCode::Environment`] where
/// something necessary is missing.
pub fn run(places: &Places, json: bool) -> ExitCode {
    let checks = checks(places);
    if json {
        match serde_json::to_string_pretty(&checks) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("error: {error}"),
        }
    } else {
        print!("{}", show::list(&checks, show::Style::of_stdout()));
    }
    exit_code(&checks)
}

/// Every check, in the order in which people read them. A new one is a line here.
fn checks(places: &Places) -> Vec<Check> {
    let mut checks = vec![host::system(), host::processor(), host::memory()];
    checks.extend(compiler::checks());
    checks.extend(python::checks(&places.python));
    checks.push(sandbox::check(&places.reexec));
    checks.push(host::denormals());
    checks.push(host::frequency());
    checks.push(host::load());
    checks.push(host::neighbours());
    checks.extend(storage::checks(&places.cache));
    checks.extend(gpu::checks(places));
    checks
}

fn exit_code(checks: &[Check]) -> ExitCode {
    if checks.iter().any(|check| check.status == Status::Missing) { ExitCode::Environment } else { ExitCode::Success }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_necessary_and_missing_fails() {
        let (ok, warn, missing) = (Check::ok("a", "x"), Check::warn("b", "y", "z"), Check::missing("c", "y", "z"));
        assert_eq!(exit_code(&[ok.clone(), warn.clone()]), ExitCode::Success);
        assert_eq!(exit_code(&[ok, warn, missing]), ExitCode::Environment);
    }

    #[test]
    fn a_machine_without_python_is_told_so_and_every_other_check_still_runs() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places {
            python: folder.path().join("python"),
            cache: folder.path().join("cache"),
            reexec: Reexec { program: folder.path().join("none"), words: Vec::new() },
        };
        let checks = checks(&places);
        let python = checks.iter().find(|check| check.name == "python").unwrap();
        assert_eq!(python.status, Status::Missing);
        assert!(python.remedy.is_some());
        for name in ["system", "processor", "memory", "compiler", "denormals", "frequency", "load", "neighbours", "cache", "disk", "driver"]
        {
            assert_eq!(checks.iter().filter(|check| check.name == name).count(), 1, "{name}");
        }
        assert_eq!(exit_code(&checks), ExitCode::Environment);
        let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(&checks).unwrap()).unwrap();
        assert!(json.as_array().unwrap().iter().all(|check| check["status"].is_string() && check["detail"].is_string()));
    }
}
