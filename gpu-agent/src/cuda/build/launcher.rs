//! `builder WALLS PROGRAM ARGUMENTS...`: becomes a worker's Python, behind walls.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use serde::{Deserialize, Serialize};

use crate::cpu::sandbox::files::{self, FilesError};
use crate::cpu::sandbox::{limits, outward};

/// What a worker may see and use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Walls {
    /// The only folder that it may write below, and where it runs.
    pub folder: PathBuf,
    /// What it may read and execute.
    pub readable: Vec<PathBuf>,
    /// Private writable memory of each of its processes, in bytes.
    pub memory_bytes: u64,
    /// Largest file that it may write, in bytes.
    pub file_bytes: u64,
    /// Go on where the kernel has no landlock.
    pub permit_weak: bool,
}

/// Address space that is reserved or mapped from files, per byte of private memory.
const RESERVED_PER_BYTE: u64 = 4;
const OPEN_FILES: u64 = 256;

/// Puts up the walls and executes the program.
///
/// # Errors
/// A wall cannot be put up, or the program not be started; there is no way back.
pub(crate) fn become_worker(mut words: impl Iterator<Item = OsString>) -> Result<(), String> {
    let usage = "builder WALLS PROGRAM ARGUMENTS...";
    let walls = words.next().ok_or(usage)?;
    let walls: Walls = serde_json::from_slice(walls.as_encoded_bytes()).map_err(|e| format!("{usage}: {e}"))?;
    let program = words.next().ok_or(usage)?;
    put_up(&walls)?;
    let error = Command::new(&program).args(words).current_dir(&walls.folder).exec();
    Err(format!("{}: {error}", Path::new(&program).display()))
}

fn put_up(walls: &Walls) -> Result<(), String> {
    let bounds = [
        (Resource::RLIMIT_DATA, walls.memory_bytes),
        (Resource::RLIMIT_AS, walls.memory_bytes.saturating_mul(RESERVED_PER_BYTE)),
        (Resource::RLIMIT_FSIZE, walls.file_bytes),
        (Resource::RLIMIT_NOFILE, OPEN_FILES),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_MEMLOCK, 0),
    ];
    for (resource, limit) in bounds {
        setrlimit(resource, limit, limit).map_err(|e| format!("{resource:?}: {e}"))?;
    }
    // Whoever a build leaves behind becomes the worker's child, and is noticed.
    prctl::set_child_subreaper(true).map_err(|e| e.to_string())?;
    prctl::set_no_new_privs().map_err(|e| e.to_string())?;
    limits::drop_capabilities().map_err(|e: io::Error| format!("capabilities: {e}"))?;
    match files::read_below_write_below(&walls.readable, &walls.folder) {
        Err(FilesError::NotEnforced) if walls.permit_weak => {}
        other => other.map_err(|e| e.to_string())?,
    }
    outward::refuse_outward_calls().map_err(|e| e.to_string())
}
