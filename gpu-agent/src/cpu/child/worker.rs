//! A candidate's own process: maps the arena, walls itself in, loads the library and launches the kernel on command.
//!
//! Nothing that it says is trusted. It holds no clock, no expected output and no result; the parent stops it after every answer
//! and looks at the arena itself.

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use memmap2::{MmapOptions, MmapRaw};
use nix::unistd::Pid;

use crate::cpu::fpenv::FloatMode;
use crate::cpu::sandbox::limits::Bounds;
use crate::cpu::sandbox::{CONTROL_FD, Confinement, enter, tighten, trap};
use crate::cpu::wire::{MAX_COMMAND_BYTES, Report, ReportKind, Start, decode_command, disturbance};

/// The builder's trampoline: pointer arguments and integer arguments, each in the order of the signature.
type Entry = unsafe extern "C" fn(*const *mut c_void, *const i64);
/// `omp_get_max_threads` (OpenMP 3.2.3).
type MaxThreads = unsafe extern "C" fn() -> libc::c_int;

/// Runs in the forked child; never returns.
pub(super) fn work(start: Start, parent: Pid, arena: OwnedFd, control: OwnedFd, output: OwnedFd) -> ! {
    let status = match prepare(&start, parent, arena, control, output) {
        Ok(worker) => worker.serve(&start),
        Err(Refusal { kind, detail }) => {
            // A parent that is gone cannot be told.
            let _ = send(&Report::with_text(kind, &detail));
            trap::REPORTED
        }
    };
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(status) }
}

/// Why the worker cannot work.
struct Refusal {
    kind: ReportKind,
    detail: String,
}

/// A failure of ours.
fn ours(what: &'static str) -> impl Fn(io::Error) -> Refusal {
    move |error| Refusal { kind: ReportKind::SandboxFailed, detail: format!("{what}: {error}") }
}

/// Everything up to the first command. The order matters: descriptors, memory, limits, walls, then the untrusted library.
fn prepare(start: &Start, parent: Pid, arena: OwnedFd, control: OwnedFd, output: OwnedFd) -> Result<Worker, Refusal> {
    place_descriptors(control, output).map_err(ours("descriptors"))?;
    let map = MmapOptions::new().len(start.arena_bytes).populate().map_raw(&arena).map_err(ours("arena"))?;
    drop(arena);
    close_others().map_err(ours("descriptors"))?;
    let pointers = pointer_table(start, &map);
    let max_threads = openmp_threads();
    report_failed_allocations();
    trap::exit_at_once().map_err(ours("exit"))?;
    let mode = FloatMode::current().flushing(start.flush_denormal);
    mode.apply();
    let bounds = Bounds { memory_bytes: start.memory_bytes, stack_bytes: start.stack_bytes, cpu_seconds: start.cpu_seconds };
    let permit_weak = start.permit_weak_sandbox;
    let confinement = Confinement { library: &start.library, bounds, parent: parent.as_raw(), permit_weak };
    let walls = |e: crate::cpu::sandbox::SandboxError| Refusal { kind: ReportKind::SandboxFailed, detail: e.to_string() };
    enter(&confinement).map_err(walls)?;
    send(&Report::head(ReportKind::Walled, start.nonce, 0)).map_err(ours("control socket"))?;
    let entry = load(start)?;
    tighten().map_err(walls)?;
    Ok(Worker { map, pointers, entry, mode, max_threads })
}

/// Control socket to its number, output pipe to stdout and stderr.
fn place_descriptors(control: OwnedFd, output: OwnedFd) -> io::Result<()> {
    for (from, to) in [(&output, 1), (&output, 2), (&control, CONTROL_FD)] {
        // SAFETY: numbers up to CONTROL_FD are this process's own to give; nothing owns them, since the zygote receives
        // descriptors above (`serve::LEAST_FREE_FD`).
        if unsafe { libc::dup2(from.as_raw_fd(), to) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Closes everything above the control socket, the zygote's socket among it.
fn close_others() -> io::Result<()> {
    let first = CONTROL_FD as libc::c_uint + 1;
    // SAFETY: whoever owned these descriptors is not used again in this process, which ends with `_exit`.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Pointer arguments of every slot, one slot after the other.
fn pointer_table(start: &Start, map: &MmapRaw) -> Vec<*mut c_void> {
    let base = map.as_mut_ptr();
    let offsets = (0..start.slots as usize).flat_map(|slot| start.pointers.iter().map(move |offset| slot * start.stride_bytes + offset));
    // The parent checked that every offset lies in the arena.
    offsets.map(|offset| base.wrapping_add(offset).cast()).collect()
}

/// The dynamic symbol of that name among everything preloaded; null where there is none.
fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a terminated string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

fn openmp_threads() -> Option<MaxThreads> {
    let address = symbol(c"omp_get_max_threads");
    // SAFETY: this is the signature that OpenMP gives to the name; null is `None`.
    unsafe { std::mem::transmute::<*mut c_void, Option<MaxThreads>>(address) }
}

/// `std::set_new_handler`, where libstdc++ is there.
fn report_failed_allocations() {
    type SetNewHandler = unsafe extern "C" fn(extern "C" fn()) -> *mut c_void;
    let address = symbol(c"_ZSt15set_new_handlerPFvvE");
    // SAFETY: the mangled name fixes the signature; null is `None`.
    let set = unsafe { std::mem::transmute::<*mut c_void, Option<SetNewHandler>>(address) };
    if let Some(set) = set {
        // SAFETY: the handler lives as long as the process.
        unsafe { set(trap::on_out_of_memory) };
    }
}

/// Loads the candidate's library. Its constructors run here, behind the first wall.
fn load(start: &Start) -> Result<Entry, Refusal> {
    let refused = |error: libloading::Error| {
        let text = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        Refusal { kind: ReportKind::LoadFailed, detail: String::from_utf8_lossy(&text.as_bytes()[..text.len().min(1000)]).into_owned() }
    };
    debug_assert!(start.library.as_os_str().as_bytes().contains(&b'/'), "a bare name would be searched for");
    // SAFETY: the library is untrusted; that is what the walls are for.
    let library = unsafe { Library::open(Some(&start.library), RTLD_NOW | RTLD_LOCAL) }.map_err(refused)?;
    // SAFETY: the builder's trampoline has this signature, and nothing else is built with the name.
    let entry = unsafe { library.get::<Entry>(c"kernelopt_entry") }.map_err(refused)?;
    let entry = *entry;
    std::mem::forget(library);
    Ok(entry)
}

struct Worker {
    map: MmapRaw,
    pointers: Vec<*mut c_void>,
    entry: Entry,
    mode: FloatMode,
    max_threads: Option<MaxThreads>,
}

impl Worker {
    /// Answers commands until the parent goes; returns an exit status.
    fn serve(&self, start: &Start) -> i32 {
        let threads = self.openmp();
        let mut buffer = vec![0u8; MAX_COMMAND_BYTES];
        let mut answer = Report::head(ReportKind::Ready, start.nonce, 0);
        loop {
            if send(&answer).is_err() {
                return 0;
            }
            let Some(len) = receive(&mut buffer) else { return 0 };
            let Some((nonce, slots)) = decode_command(&buffer[..len]) else { return 0 };
            slots.for_each(|slot| self.launch(slot, start));
            let mut disturbed = 0;
            if FloatMode::current() != self.mode {
                disturbed |= disturbance::FLOAT_MODE;
            }
            if self.openmp() != threads {
                disturbed |= disturbance::OPENMP_THREADS;
            }
            answer = Report::head(ReportKind::Done, nonce, disturbed);
        }
    }

    fn launch(&self, slot: u32, start: &Start) {
        let first = slot as usize * start.pointers.len();
        debug_assert!(first + start.pointers.len() <= self.pointers.len() && self.map.len() == start.arena_bytes);
        // SAFETY: the parent sends slots of the arena only, so the pointers are those of one slot. What the candidate does with them
        // is its own affair: this process holds nothing else.
        unsafe { (self.entry)(self.pointers.as_ptr().add(first), start.integers.as_ptr()) }
    }

    /// Threads of the next parallel region; -1 without OpenMP.
    fn openmp(&self) -> libc::c_int {
        // SAFETY: takes nothing and reads a setting.
        self.max_threads.map_or(-1, |read| unsafe { read() })
    }
}

fn send(bytes: &[u8]) -> io::Result<()> {
    loop {
        // SAFETY: pointer and length describe a live slice.
        let sent = unsafe { libc::write(CONTROL_FD, bytes.as_ptr().cast(), bytes.len()) };
        if sent >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// One message; none at the end of the stream.
fn receive(buffer: &mut [u8]) -> Option<usize> {
    loop {
        // SAFETY: pointer and length describe a live slice.
        let len = unsafe { libc::read(CONTROL_FD, buffer.as_mut_ptr().cast(), buffer.len()) };
        match usize::try_from(len) {
            Ok(0) => return None,
            Ok(len) => return Some(len),
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}
