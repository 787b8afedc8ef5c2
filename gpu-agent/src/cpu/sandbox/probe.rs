//! What the sandbox really enforces on this machine, found by trying: each forbidden thing is attempted in a process of its own.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use serde::{Deserialize, Serialize};

use super::limits::Bounds;
use super::{CONTROL_FD, Confinement, enter, files, tighten, trap};
use crate::cpu::child::Reexec;
use crate::cpu::wire::{MAX_REPORT_BYTES, Report, ReportKind, packet_pair};

/// What holds here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// Version of the kernel's landlock; none where it is absent.
    pub landlock_version: Option<u32>,
    /// One line per thing that a candidate must not be able to do.
    pub walls: Vec<Wall>,
}

/// One thing that a candidate must not be able to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wall {
    /// `read a file`, `open a socket`, ...
    pub attempt: String,
    /// True where the attempt failed.
    pub holds: bool,
    /// How it failed, or that it did not.
    pub detail: String,
}

impl Enforcement {
    /// True where candidates can be run safely.
    pub fn complete(&self) -> bool {
        self.walls.iter().all(|wall| wall.holds)
    }
}

/// The check itself could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SelfCheckError {
    /// The helper process did not start, or said something else.
    #[error("{}: {detail}", program.display())]
    Helper {
        /// Executable that was run.
        program: PathBuf,
        /// What happened.
        detail: String,
    },
}

/// Tries every wall in fresh processes; takes a few milliseconds.
pub fn self_check(reexec: &Reexec) -> Result<Enforcement, SelfCheckError> {
    let failed = |detail: String| SelfCheckError::Helper { program: reexec.program.clone(), detail };
    let output = reexec.command("probe").stdin(Stdio::null()).stderr(Stdio::null()).output().map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("the sandbox probe ended with {}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| failed(format!("the sandbox probe's answer: {e}")))
}

/// The helper's side of [`self_check`].
pub(in crate::cpu) fn probe() -> io::Result<Enforcement> {
    let walls = ATTEMPTS.iter().map(|attempt| attempt.make()).collect::<io::Result<_>>()?;
    Ok(Enforcement { landlock_version: files::kernel_version(), walls })
}

/// One thing to try.
struct Attempt {
    name: &'static str,
    /// Once the library is loaded, rather than while the loader works.
    tightened: bool,
    /// True where it worked.
    act: fn() -> bool,
}

const ATTEMPTS: &[Attempt] = &[
    Attempt { name: "read a file while loading", tightened: false, act: || open("/etc/passwd", libc::O_RDONLY) },
    Attempt { name: "write a file while loading", tightened: false, act: || open("/dev/null", libc::O_WRONLY) },
    Attempt { name: "open a socket while loading", tightened: false, act: socket },
    Attempt { name: "start a process while loading", tightened: false, act: start_process },
    Attempt { name: "open a file", tightened: true, act: || open("/dev/null", libc::O_RDONLY) },
    Attempt { name: "open a socket", tightened: true, act: socket },
    Attempt { name: "start a process", tightened: true, act: start_process },
    Attempt { name: "signal another process", tightened: true, act: signal_parent },
    Attempt { name: "catch signals", tightened: true, act: catch_signals },
    Attempt { name: "make memory executable", tightened: true, act: executable_memory },
];

fn open(path: &str, flags: libc::c_int) -> bool {
    // SAFETY: the path is a terminated string that outlives the call.
    CString::new(path).is_ok_and(|path| unsafe { libc::open(path.as_ptr(), flags) >= 0 })
}

fn socket() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) >= 0 }
}

fn start_process() -> bool {
    // SAFETY: this process has one thread; the new one, should there be one, leaves at once.
    match unsafe { libc::fork() } {
        // SAFETY: _exit has no preconditions.
        0 => unsafe { libc::_exit(0) },
        pid => pid > 0,
    }
}

fn signal_parent() -> bool {
    // SAFETY: no pointers, and signal zero only asks.
    unsafe { libc::kill(libc::getppid(), 0) == 0 }
}

fn catch_signals() -> bool {
    // SAFETY: ignoring a signal installs no function.
    unsafe { libc::signal(libc::SIGSYS, libc::SIG_IGN) != libc::SIG_ERR }
}

fn executable_memory() -> bool {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses the place, so no mapping is replaced.
    unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) != libc::MAP_FAILED }
}

/// Exit statuses of an attempt's process.
const WORKED: i32 = 0;
const REFUSED: i32 = 1;
const UNPREPARED: i32 = 2;

impl Attempt {
    fn make(&self) -> io::Result<Wall> {
        let (ours, theirs) = packet_pair()?;
        // SAFETY: the helper has one thread, so the child may do anything.
        match unsafe { fork()? } {
            ForkResult::Child => self.run(theirs),
            ForkResult::Parent { child } => {
                drop(theirs);
                let status = waitpid(child, None)?;
                let (holds, detail) = conclude(status, last_words(&ours));
                Ok(Wall { attempt: self.name.into(), holds, detail })
            }
        }
    }

    fn run(&self, control: OwnedFd) -> ! {
        let prepared = self.prepare(control).is_ok();
        let status = match prepared {
            false => UNPREPARED,
            true if (self.act)() => WORKED,
            true => REFUSED,
        };
        // SAFETY: _exit has no preconditions.
        unsafe { libc::_exit(status) }
    }

    fn prepare(&self, control: OwnedFd) -> Result<(), super::SandboxError> {
        // SAFETY: descriptor 3 of this process is ours to replace; dup2 closes what was there.
        if unsafe { libc::dup2(control.as_raw_fd(), CONTROL_FD) } < 0 {
            return Err(io::Error::last_os_error().into());
        }
        let bounds = Bounds { memory_bytes: 64 << 20, stack_bytes: 8 << 20, cpu_seconds: 10 };
        let parent = nix::unistd::getppid().as_raw();
        // The stand-in for a library is a file that is there on every machine.
        enter(&Confinement { library: Path::new("/proc/self/exe"), bounds, parent, permit_weak: true })?;
        if self.tightened { tighten() } else { Ok(()) }
    }
}

fn last_words(socket: &OwnedFd) -> Option<Report> {
    let mut bytes = [0u8; MAX_REPORT_BYTES];
    let borrowed: BorrowedFd<'_> = std::os::fd::AsFd::as_fd(socket);
    let len = nix::sys::socket::recv(borrowed.as_raw_fd(), &mut bytes, nix::sys::socket::MsgFlags::MSG_DONTWAIT).ok()?;
    Report::decode(&bytes[..len]).ok()
}

fn conclude(status: WaitStatus, words: Option<Report>) -> (bool, String) {
    match (status, words) {
        (WaitStatus::Exited(_, trap::REPORTED), Some(Report { kind: ReportKind::Forbidden, value, .. })) => {
            (true, format!("the call {} ends the process", super::syscall_name(value)))
        }
        (WaitStatus::Exited(_, REFUSED), _) => (true, "refused".into()),
        (WaitStatus::Exited(_, WORKED), _) => (false, "it works: nothing forbids it here".into()),
        (other, _) => (false, format!("the sandbox cannot be set up ({other:?})")),
    }
}
