//! The side of this program that runs as a child: `kernelopt runner MODE`, hidden from people.
//!
//! | mode | process | trust |
//! |---|---|---|
//! | `serve` | zygote: loads the libraries that kernels need once, then forks one process per candidate | ours; never runs a candidate |
//! | (forked) | worker: one candidate, behind the sandbox | untrusted once the library is loaded |
//! | `confine` | becomes a compiler that writes only below one folder | ours, fed with untrusted source |
//! | `builder` | becomes a Python that builds GPU kernels and reads and writes little else | ours, fed with untrusted source |
//! | `gpu` | owns a GPU's context; runs candidates' machine code on it | ours |
//! | `gpus` | says which GPUs there are | ours |
//! | `nvml` | says what the GPUs are doing and who else uses them | ours |
//! | `probe` | tries every wall of the sandbox and says which hold | ours |

pub(crate) mod confine;
mod serve;
mod worker;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use super::sandbox;

/// How to run this program again as a child: the executable, and the words that lead it to [`child_main`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reexec {
    /// Executable.
    pub program: PathBuf,
    /// Words before the mode: `["runner"]` for `kernelopt`.
    pub words: Vec<String>,
}

impl Reexec {
    /// A command for one of [`child_main`]'s modes.
    pub(crate) fn command(&self, mode: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.words).arg(mode);
        command
    }
}

/// Runs a child's mode; `arguments` start with its name. Must be called while the process has one thread, as the first thing that
/// `main` does: a zygote forks.
pub fn child_main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let mode = arguments.next().unwrap_or_default();
    let result = match mode.to_str() {
        Some("serve") => serve::serve(arguments),
        Some("confine") => confine::confine(arguments),
        Some("builder") => crate::cuda::build::become_worker(arguments),
        Some("gpu") => crate::cuda::own_device(arguments),
        Some("gpus") => crate::cuda::list_devices(),
        Some("nvml") => crate::cuda::survey::print(),
        Some("probe") => probe(),
        _ => Err(format!("unknown mode {mode:?}; this command is for the program's own use")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(detail) => {
            // Nowhere else to say it; a closed stderr is no reason to fail differently.
            let _ = writeln!(std::io::stderr(), "runner: {detail}");
            ExitCode::from(confine::NOT_STARTED)
        }
    }
}

fn probe() -> Result<(), String> {
    let found = sandbox::probe().map_err(|e| e.to_string())?;
    serde_json::to_writer(std::io::stdout(), &found).map_err(|e| e.to_string())
}
