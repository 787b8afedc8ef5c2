//! Last words: what a candidate's process says when it is stopped by its own sandbox. Everything here may run inside a signal handler
//! of a process whose memory the candidate has spoilt: no allocation, no locks, constants only.

use std::io;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::CONTROL_FD;
use crate::cpu::wire::{Report, ReportKind};

/// Exit status of a process that said why on the control socket.
pub(in crate::cpu) const REPORTED: i32 = 113;

/// Makes refused system calls say their number before the process ends, and memory faults end it at once: the handlers that Rust
/// installs for them make calls that are refused.
pub(in crate::cpu) fn report_forbidden_calls() -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGSEGV, Signal::SIGBUS] {
        // SAFETY: the default action is no handler at all.
        unsafe { sigaction(signal, &default)? };
    }
    let action = SigAction::new(SigHandler::SigAction(on_refused_call), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler calls only write and _exit, which are safe in one (signal-safety(7)).
    unsafe { sigaction(Signal::SIGSYS, &action)? };
    Ok(())
}

/// Makes `exit` end the process at once with its status, instead of running the destructors of everything that is loaded.
pub(in crate::cpu) fn exit_at_once() -> io::Result<()> {
    unsafe extern "C" {
        fn on_exit(function: extern "C" fn(libc::c_int, *mut libc::c_void), argument: *mut libc::c_void) -> libc::c_int;
    }
    extern "C" fn leave(status: libc::c_int, _: *mut libc::c_void) {
        // SAFETY: _exit has no preconditions.
        unsafe { libc::_exit(status) }
    }
    // SAFETY: the function lives as long as the process.
    if unsafe { on_exit(leave, std::ptr::null_mut()) } == 0 { Ok(()) } else { Err(io::Error::other("on_exit")) }
}

/// For `std::set_new_handler`: an allocation of the candidate's failed.
pub(in crate::cpu) extern "C" fn on_out_of_memory() {
    say(ReportKind::OutOfMemory, 0)
}

extern "C" fn on_refused_call(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    const SYSCALL_OFFSET_BYTES: usize = 24; // si_syscall of a 64-bit siginfo_t (sigaction(2)); libc has no accessor
    // SAFETY: the kernel passes a whole siginfo_t, and for SIGSYS this field is filled in.
    let number = unsafe { info.cast::<u8>().add(SYSCALL_OFFSET_BYTES).cast::<libc::c_int>().read_unaligned() };
    say(ReportKind::Forbidden, u64::try_from(number).unwrap_or(u64::MAX))
}

/// Sends a report and ends the process.
fn say(kind: ReportKind, value: u64) -> ! {
    let bytes = Report::head(kind, 0, value);
    // SAFETY: the pointer and length are those of a live array; _exit does not return.
    unsafe {
        libc::write(CONTROL_FD, bytes.as_ptr().cast(), bytes.len());
        libc::_exit(REPORTED)
    }
}
