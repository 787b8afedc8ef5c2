//! Does torch reach the GPU, with the triton that it was tested with?

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::check::Check;
use super::command;

/// torch from a cold disk and a first context: up to a minute each.
const LIMIT: Duration = Duration::from_secs(180);
/// Release of triton that the builders and the schedules were tested with.
const TESTED_TRITON: &str = "3.6";
const TRITON_REMEDY: &str = "Install the release that torch 2.11 goes with: pip install triton==3.6.0";

/// Prints one JSON object. Adds one to one on the GPU: a torch whose CUDA the driver does not know, or that has no code for the GPU, fails.
const PROBE: &str = r#"
import importlib.metadata as metadata, json, os, shutil
answer = {"torch": None, "cuda": None, "fault": None, "triton": None}
try:
    answer["triton"] = metadata.version("triton")
except metadata.PackageNotFoundError:
    pass
answer["c_compiler"] = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
try:
    import torch
    answer["torch"], answer["cuda"] = torch.__version__, torch.version.cuda
    if answer["cuda"] is not None and (torch.ones(1, device="cuda") + 1).item() != 2:
        answer["fault"] = "one and one are not two on the GPU"
except BaseException as error:
    answer["fault"] = (str(error).strip().splitlines() or [type(error).__name__])[0]
print(json.dumps(answer))
"#;

/// What the probe answers.
#[derive(Clone, Debug, Deserialize)]
struct Answer {
    torch: Option<String>,
    /// Version of CUDA that torch was built for; none for a build without.
    cuda: Option<String>,
    /// Why nothing can be computed on the GPU.
    fault: Option<String>,
    triton: Option<String>,
    /// What triton builds its launchers with.
    c_compiler: Option<String>,
}

/// Everything that the Python at `interpreter` needs for a GPU. That torch itself is there and known is said elsewhere.
pub(super) fn checks(interpreter: &Path) -> Vec<Check> {
    match command::run(Command::new(interpreter).args(["-c", PROBE]), LIMIT) {
        Ok(done) => match serde_json::from_str(done.stdout.lines().last().unwrap_or_default()) {
            Ok(answer) => judge(&answer),
            Err(_) => vec![no_answer(&format!("Python ended with {}", done.status))],
        },
        Err(error) => vec![no_answer(&error.to_string())],
    }
}

fn no_answer(why: &str) -> Check {
    Check::missing(
        "cuda",
        format!("torch could not be tried on the GPU: {why}"),
        "See what is said of python and torch above, and whether nvidia-smi answers.",
    )
}

fn judge(answer: &Answer) -> Vec<Check> {
    // Without torch there is nothing to add to what is said of it above.
    let cuda = answer.torch.as_ref().map(|torch| cuda(torch, answer));
    cuda.into_iter().chain([triton(answer)]).collect()
}

fn cuda(torch: &str, answer: &Answer) -> Check {
    let Some(cuda) = &answer.cuda else {
        let remedy = "Install a build with CUDA: pip install 'torch==2.11.*' (the one on PyPI has it).";
        return Check::missing("cuda", format!("torch {torch} was built without CUDA"), remedy);
    };
    match &answer.fault {
        None => Check::ok("cuda", format!("torch {torch} computes on the GPU, with CUDA {cuda}")),
        Some(fault) => {
            let remedy = if fault.contains("out of memory") || fault.contains("busy or unavailable") {
                "Free the GPU: what is said of sharing above, or nvidia-smi, tells who uses it."
            } else {
                "Update the driver, or install the build of torch 2.11 for an older CUDA (https://pytorch.org/get-started/previous-versions/)."
            };
            Check::missing("cuda", format!("torch {torch}, built for CUDA {cuda}: {fault}"), remedy)
        }
    }
}

fn triton(answer: &Answer) -> Check {
    let Some(version) = &answer.triton else { return Check::missing("triton", "not installed in this Python", TRITON_REMEDY) };
    if answer.c_compiler.is_none() {
        let remedy = "Install one (Debian, Ubuntu: apt-get install gcc), or name it in CC.";
        return Check::missing("triton", format!("{version}, and no C compiler to build its launchers with"), remedy);
    }
    let tested = version.strip_prefix(TESTED_TRITON).is_some_and(|rest| rest.starts_with('.'));
    if tested {
        Check::ok("triton", version.clone())
    } else {
        Check::warn("triton", format!("{version}; {TESTED_TRITON} was tested"), TRITON_REMEDY)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    fn good() -> Answer {
        let text = |text: &str| Some(text.to_owned());
        Answer { torch: text("2.11.0+cu130"), cuda: text("13.0"), fault: None, triton: text("3.6.0"), c_compiler: text("/usr/bin/gcc") }
    }

    fn statuses(answer: &Answer) -> Vec<(&'static str, Status)> {
        judge(answer).iter().map(|check| (check.name, check.status)).collect()
    }

    #[test]
    fn each_lack_is_named() {
        assert_eq!(statuses(&good()), [("cuda", Status::Ok), ("triton", Status::Ok)]);
        assert_eq!(statuses(&Answer { cuda: None, ..good() })[0], ("cuda", Status::Missing));
        assert_eq!(statuses(&Answer { fault: Some("no kernel image".into()), ..good() })[0], ("cuda", Status::Missing));
        let remedy_of = |fault: &str| judge(&Answer { fault: Some(fault.into()), ..good() })[0].remedy.clone().unwrap();
        assert!(remedy_of("CUDA out of memory. Tried to allocate 2 MiB").starts_with("Free the GPU"));
        assert!(remedy_of("no kernel image is available").starts_with("Update the driver"));
        assert_eq!(statuses(&Answer { triton: None, ..good() })[1], ("triton", Status::Missing));
        assert_eq!(statuses(&Answer { triton: Some("3.60.0".into()), ..good() })[1], ("triton", Status::Warn));
        assert_eq!(statuses(&Answer { c_compiler: None, ..good() })[1], ("triton", Status::Missing));
        assert_eq!(statuses(&Answer { torch: None, ..good() }), [("triton", Status::Ok)]);
    }

    #[test]
    fn a_python_without_torch_answers_all_the_same() {
        if Command::new("python3").arg("--version").output().is_err() {
            return;
        }
        // -S hides what is installed beside Python itself.
        let done = command::run(Command::new("python3").args(["-S", "-c", PROBE]), LIMIT).unwrap();
        let answer: Answer = serde_json::from_str(&done.stdout).unwrap();
        assert!(answer.fault.is_some_and(|fault| fault.contains("torch")) && answer.torch.is_none() && answer.triton.is_none());
        assert_eq!(checks(Path::new("false"))[0].status, Status::Missing);
    }
}
