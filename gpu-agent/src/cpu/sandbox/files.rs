//! What a process may see of the file system (landlock).

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};

/// The newest rights that we ask for; older kernels enforce those that they know.
const RIGHTS: ABI = ABI::V6;

/// Landlock could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilesError {
    /// The kernel has no landlock, or it is switched off.
    #[error("the kernel does not enforce landlock")]
    NotEnforced,
    /// A rule was refused.
    #[error("landlock: {0}")]
    Ruleset(#[from] landlock::RulesetError),
    /// A path of a rule cannot be opened.
    #[error("landlock: {0}")]
    Path(#[from] landlock::PathFdError),
}

/// From now on this thread and its children see one file, read-only, and no network.
pub(in crate::cpu) fn see_only(file: &Path) -> Result<(), FilesError> {
    let rule = PathBeneath::new(PathFd::new(file)?, AccessFs::ReadFile | AccessFs::Execute);
    enforced(ruleset()?.add_rule(rule)?.restrict_self()?)
}

/// From now on this thread and its children write below one folder only, and have no network. Reading stays free: compilers, their
/// libraries and headers lie in too many places to name.
pub(in crate::cpu) fn write_only_below(folder: &Path) -> Result<(), FilesError> {
    let readable = PathBeneath::new(PathFd::new("/")?, AccessFs::from_read(RIGHTS));
    let writable = PathBeneath::new(PathFd::new(folder)?, AccessFs::from_all(RIGHTS));
    let null = PathBeneath::new(PathFd::new("/dev/null")?, AccessFs::ReadFile | AccessFs::WriteFile);
    enforced(ruleset()?.add_rule(readable)?.add_rule(writable)?.add_rule(null)?.restrict_self()?)
}

/// From now on this thread and its children read and execute below the given places, write below one folder, and have no network.
/// Places that are not there are left out.
pub(crate) fn read_below_write_below(readable: &[PathBuf], folder: &Path) -> Result<(), FilesError> {
    let writable = PathBeneath::new(PathFd::new(folder)?, AccessFs::from_all(RIGHTS));
    let null = PathBeneath::new(PathFd::new("/dev/null")?, AccessFs::ReadFile | AccessFs::WriteFile);
    let rules = path_beneath_rules(readable, AccessFs::from_read(RIGHTS));
    enforced(ruleset()?.add_rules(rules)?.add_rule(writable)?.add_rule(null)?.restrict_self()?)
}

/// Everything forbidden that the kernel can forbid: files, TCP, abstract sockets and signals to others.
fn ruleset() -> Result<RulesetCreated, landlock::RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(RIGHTS))?
        .handle_access(AccessNet::from_all(RIGHTS))?
        .scope(Scope::from_all(RIGHTS))?
        .create()
}

fn enforced(status: RestrictionStatus) -> Result<(), FilesError> {
    if status.ruleset == RulesetStatus::NotEnforced { Err(FilesError::NotEnforced) } else { Ok(()) }
}

/// Version of landlock in the kernel; none where it is absent or switched off.
pub(in crate::cpu) fn kernel_version() -> Option<u32> {
    const VERSION: libc::c_uint = 1; // LANDLOCK_CREATE_RULESET_VERSION
    // SAFETY: with this flag the call takes no attributes and only returns a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION) };
    u32::try_from(version).ok().filter(|&v| v > 0)
}
