//! Bounds on what a process may use, and what it may be.

use std::io;

use nix::sys::resource::{Resource, setrlimit};

/// Bounds on a candidate's process.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Bounds {
    /// What it may allocate beyond what is mapped now, in bytes.
    pub memory_bytes: u64,
    /// Stack of its main thread, in bytes.
    pub stack_bytes: u64,
    /// Processor time, in seconds.
    pub cpu_seconds: u64,
}

/// Address space that is reserved but not used, per byte that a candidate may allocate: heaps of threads, stacks, guard pages.
const RESERVED_PER_BYTE: u64 = 4;

/// Bounds this process for ever.
///
/// Private writable memory (RLIMIT_DATA) is the bound that bites; the address space is bounded more widely, since a heap or a
/// stack reserves far more than it uses. The number of processes is not bounded here (that limit does not bind
/// root): the system call filter allows none at all.
pub(in crate::cpu) fn bound(bounds: Bounds) -> io::Result<()> {
    let [size, .., data, _] = statm()?;
    let limits = [
        (Resource::RLIMIT_DATA, data.saturating_add(bounds.memory_bytes)),
        (Resource::RLIMIT_AS, size.saturating_add(bounds.memory_bytes.saturating_mul(RESERVED_PER_BYTE))),
        (Resource::RLIMIT_STACK, bounds.stack_bytes),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_NOFILE, 16),
        (Resource::RLIMIT_MEMLOCK, 0),
        (Resource::RLIMIT_MSGQUEUE, 0),
    ];
    for (resource, limit) in limits {
        setrlimit(resource, limit, limit)?;
    }
    // One more second at the hard limit: the soft one says SIGXCPU, which can be told from a kill.
    setrlimit(Resource::RLIMIT_CPU, bounds.cpu_seconds, bounds.cpu_seconds.saturating_add(1))?;
    Ok(())
}

/// `/proc/self/statm` in bytes: size, resident, shared, text, lib, data, dirty (proc(5)).
fn statm() -> io::Result<[u64; 7]> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    // SAFETY: sysconf has no preconditions.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).map_err(|_| io::Error::last_os_error())?;
    let mut fields = [0u64; 7];
    for (field, word) in fields.iter_mut().zip(text.split_ascii_whitespace()) {
        *field = word.parse::<u64>().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/self/statm: {e}")))? * page;
    }
    Ok(fields)
}

/// Gives up every capability, so that being root is worth nothing.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522; // _LINUX_CAPABILITY_VERSION_3
    let header = [VERSION_3, 0];
    let none = [0u32; 6];
    // SAFETY: header and data have the layout of version 3: two words, and two sets of three words.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ends with its parent: SIGKILL when the thread that forked this process is gone. `parent` is who that must still be.
pub(in crate::cpu) fn die_with(parent: libc::pid_t) -> io::Result<()> {
    // SAFETY: these calls touch only this process's own attributes.
    let (set, now) = unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0), libc::getppid()) };
    match set {
        0 if now == parent => Ok(()),
        0 => Err(io::Error::other("the parent is gone")),
        _ => Err(io::Error::last_os_error()),
    }
}
