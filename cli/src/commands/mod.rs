//! One command a file.

pub mod inspect;
pub mod report;
pub mod tune;
pub mod verify;

use std::path::PathBuf;

use kernelopt_gpu_agent::python::Python;
use kernelopt_shared::exit::ExitCode;

use crate::doctor;

/// `kernelopt doctor`.
pub fn doctor(json: bool) -> ExitCode {
    doctor::run(&doctor::Places { python: Python::find().interpreter().to_owned(), cache: cache_folder() }, json)
}

/// Where builds are kept: `$XDG_CACHE_HOME/kernelopt`, else `~/.cache/kernelopt`, else the temporary folder.
fn cache_folder() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    base.or(home).unwrap_or_else(std::env::temp_dir).join("kernelopt")
}
