//! One command a file.

pub mod agent;
pub mod bench;
pub mod coordinator;
mod device;
pub mod gateway;
pub mod inspect;
pub mod remote;
pub mod report;
pub mod tune;
pub mod verify;

use std::path::PathBuf;

use kernelopt_gpu_agent::cpu::child::Reexec;
use kernelopt_gpu_agent::python::Python;
use kernelopt_shared::exit::ExitCode;

use crate::failure::Failure;
use crate::{CommandResult, RUNNER, doctor};

/// `kernelopt doctor`.
pub fn doctor(json: bool) -> CommandResult {
    let places = doctor::Places { python: Python::find().interpreter().to_owned(), cache: cache_folder(), reexec: reexec()? };
    Ok(doctor::run(&places, json))
}

/// This program, to be started again as the runner.
fn reexec() -> Result<Reexec, Failure> {
    let program = std::env::current_exe()
        .map_err(|e| Failure::new(ExitCode::Failure, format!("this program's own path: {e}"), "Start it by its full path."))?;
    Ok(Reexec { program, words: vec![RUNNER.into()] })
}

/// Lets this process have as many connections as the host permits at all: the usual first limit, 1024 files, is that of 512 callers at an
/// upstream.
fn permit_connections() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    // Where it cannot be had, connections wait until others end.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// The runtime of what talks to others.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(ExitCode::Environment, format!("threads: {e}"), "Look at the limits of the process (ulimit -u)."))
}

/// Where builds are kept: `$XDG_CACHE_HOME/kernelopt`, else `~/.cache/kernelopt`, else the temporary folder.
fn cache_folder() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    base.or(home).unwrap_or_else(std::env::temp_dir).join("kernelopt")
}
