//! The walls around a candidate's process, and around a compiler's.
//!
//! | wall | candidate | compiler | build worker |
//! |---|---|---|---|
//! | landlock | its own library, read-only; no TCP, no signals outward | reads everywhere, writes below its own folder; no TCP | reads Python and the system's libraries, writes below its own folder; no TCP, no signals outward |
//! | seccomp | threads, memory, time, its control socket (`filter.rs`) | - | no sockets, no namespaces, no other processes' memory (`outward.rs`) |
//! | limits | memory, processor time, stack, no files, no core (`limits.rs`) | memory, processor time, file size | memory, file size; each build also processor time |
//! | privileges | none: no capabilities, none to gain | none to gain | none: no capabilities, none to gain |
//! | parent | dies with it | dies with it | ends with its stream of orders |
//!
//! Each wall is put up by the process itself before it meets anything untrusted, and none can be taken down.

pub(crate) mod files;
pub(in crate::cpu) mod filter;
pub(crate) mod limits;
pub(crate) mod outward;
mod probe;
mod syscalls;
pub(in crate::cpu) mod trap;

use std::io;
use std::path::Path;

use nix::sys::prctl;
use nix::unistd::setsid;

pub(in crate::cpu) use probe::probe;
pub use probe::{Enforcement, SelfCheckError, Wall, self_check};
pub(in crate::cpu) use syscalls::name as syscall_name;

use files::FilesError;
use filter::{FilterError, Stage};
use limits::Bounds;

/// Descriptor of a candidate's control socket.
pub(in crate::cpu) const CONTROL_FD: i32 = 3;

/// A wall could not be put up.
#[derive(Debug, thiserror::Error)]
pub(in crate::cpu) enum SandboxError {
    /// No system call filter.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// No landlock.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// A limit or attribute.
    #[error("limits: {0}")]
    Io(#[from] io::Error),
}

/// What a candidate's process is allowed.
#[derive(Debug)]
pub(in crate::cpu) struct Confinement<'a> {
    /// The one file that it may read.
    pub library: &'a Path,
    /// How much it may use.
    pub bounds: Bounds,
    /// Process that it must not outlive.
    pub parent: libc::pid_t,
    /// Go on where the kernel has no landlock; the system call filter holds by itself once the library is loaded.
    pub permit_weak: bool,
}

/// Puts up every wall that holds while the candidate's library is loaded. One-way.
pub(in crate::cpu) fn enter(confinement: &Confinement<'_>) -> Result<(), SandboxError> {
    limits::die_with(confinement.parent)?;
    setsid().map_err(io::Error::from)?;
    limits::bound(confinement.bounds)?;
    prctl::set_no_new_privs().map_err(io::Error::from)?;
    limits::drop_capabilities()?;
    trap::report_forbidden_calls()?;
    match files::see_only(confinement.library) {
        Err(FilesError::NotEnforced) if confinement.permit_weak => {}
        other => other?,
    }
    Ok(filter::install(Stage::Loading)?)
}

/// Takes away what only the loader needed. One-way.
pub(in crate::cpu) fn tighten() -> Result<(), SandboxError> {
    Ok(filter::install(Stage::Running)?)
}
