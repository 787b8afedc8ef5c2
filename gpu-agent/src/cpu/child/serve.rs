//! The zygote. It loads the libraries that kernels link against once (libtorch_cpu takes a quarter of a second), and forks a
//! process with all of them in place for each candidate (one to three milliseconds). So every candidate also finds the same
//! libraries at the same addresses as the baseline.
//!
//! It never runs a candidate's code and does nothing but answer its socket; when that closes, it ends, and its children with it.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use super::worker;
use crate::cpu::sandbox::CONTROL_FD;
use crate::cpu::wire::{Ending, Reply, Request, Start, receive_json, send_json};

/// Loaded after the caller's own libraries, so that a candidate's library finds everything in memory and opens no file.
const RUNTIME: [&str; 4] = ["libgomp.so.1", "libstdc++.so.6", "libgcc_s.so.1", "libm.so.6"];
/// The zygote's own descriptors lie from here on, out of the way of those that a worker gives meaning to.
const LEAST_FREE_FD: i32 = CONTROL_FD + 1;

/// `serve LIBRARIES...` with the parent's socket as standard input.
pub(super) fn serve(libraries: impl Iterator<Item = OsString>) -> Result<(), String> {
    let socket = take_stdin().map_err(|e| format!("serve: standard input: {e}"))?;
    let loaded = preload(libraries.map(PathBuf::from).chain(RUNTIME.map(PathBuf::from)));
    let hello = loaded.and_then(|()| one_thread()).map_or_else(|detail| Reply::Failed { detail }, |()| Reply::Hello);
    let ready = matches!(hello, Reply::Hello);
    send_json(socket.as_fd(), &hello, &[]).map_err(|e| e.to_string())?;
    if ready {
        converse(&socket).map_err(|e| e.to_string())?;
    }
    // Not `exit`: the destructors of the libraries have nothing to do for us.
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(0) }
}

/// Answers requests until the parent goes.
fn converse(socket: &OwnedFd) -> io::Result<()> {
    while let Some((request, descriptors)) = receive_json(socket.as_fd())? {
        send_json(socket.as_fd(), &answer(request, descriptors), &[])?;
    }
    Ok(())
}

/// The parent's socket, with /dev/null in its place.
fn take_stdin() -> nix::Result<OwnedFd> {
    // SAFETY: descriptor 0 is open as long as this function runs.
    let stdin = unsafe { BorrowedFd::borrow_raw(0) };
    let socket = fcntl(stdin, FcntlArg::F_DUPFD_CLOEXEC(LEAST_FREE_FD))?;
    // SAFETY: fcntl has just made this descriptor.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // Kept open for good, since it may have got the number CONTROL_FD itself.
    let null = nix::fcntl::open(c"/dev/null", nix::fcntl::OFlag::O_RDONLY, nix::sys::stat::Mode::empty())?.into_raw_fd();
    // Descriptors 0 and CONTROL_FD are taken from now on, so that those received with a request get higher numbers.
    for number in [0, CONTROL_FD] {
        // SAFETY: nobody owns these numbers.
        Errno::result(unsafe { libc::dup2(null, number) })?;
    }
    Ok(socket)
}

/// Loads libraries for good, visible to all that are loaded later.
fn preload(libraries: impl Iterator<Item = PathBuf>) -> Result<(), String> {
    for path in libraries {
        // SAFETY: these libraries are the caller's choice: the compiler's run time and torch's, whose constructors are trusted.
        let library = unsafe { Library::open(Some(&path), RTLD_LAZY | RTLD_GLOBAL) }.map_err(|e| e.to_string())?;
        std::mem::forget(library);
    }
    Ok(())
}

/// A process with several threads must not fork: locks held by the others would never be released.
fn one_thread() -> Result<(), String> {
    let threads = fs::read_dir("/proc/self/task").map_err(|e| format!("/proc/self/task: {e}"))?.count();
    if threads == 1 { Ok(()) } else { Err(format!("the preloaded libraries started {} threads", threads - 1)) }
}

fn answer(request: Request, descriptors: Vec<OwnedFd>) -> Reply {
    let result = match request {
        Request::Start(start) => fork_worker(*start, descriptors),
        Request::Settle { pid } => settle(pid),
        Request::Reap { pid } => reap(pid),
    };
    result.unwrap_or_else(|detail| Reply::Failed { detail })
}

fn fork_worker(start: Start, descriptors: Vec<OwnedFd>) -> Result<Reply, String> {
    let [arena, control, output] = <[OwnedFd; 3]>::try_from(descriptors).map_err(|d| format!("{} descriptors instead of 3", d.len()))?;
    // Paths are checked here, where it can be said; a worker has only its control socket.
    CString::new(start.library.as_os_str().as_encoded_bytes()).map_err(|e| e.to_string())?;
    let parent = nix::unistd::getpid();
    // SAFETY: this process has one thread (`one_thread`), so the child may do anything.
    match unsafe { fork() }.map_err(|e| format!("fork: {e}"))? {
        ForkResult::Child => worker::work(start, parent, arena, control, output),
        ForkResult::Parent { child } => Ok(Reply::Started { pid: child.as_raw() }),
    }
}

/// Waits until the process is stopped as a whole, or dead; it is left to be collected.
fn settle(pid: i32) -> Result<Reply, String> {
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::Pid(Pid::from_raw(pid)), flags) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(format!("waiting for process {pid}: {error}")),
            Ok(status) => return Ok(Reply::Settled { alive: matches!(status, WaitStatus::Stopped(..)) }),
        }
    }
}

fn reap(pid: i32) -> Result<Reply, String> {
    loop {
        match waitpid(Pid::from_raw(pid), None) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(format!("collecting process {pid}: {error}")),
            Ok(WaitStatus::Exited(_, status)) => return Ok(Reply::Reaped(Ending::Exited(status))),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(Reply::Reaped(Ending::Signaled(signal as i32))),
            Ok(_) => {}
        }
    }
}
