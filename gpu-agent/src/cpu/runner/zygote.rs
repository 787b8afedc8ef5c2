//! The parent's handle on a zygote process (see `child/serve.rs` for the other side).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kernelopt_shared::stop::Stop;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cpu::child::Reexec;
use crate::cpu::waiting::readable;
use crate::cpu::wire::{Ending, Reply, Request, Start, packet_pair, receive_json, send_json};
use crate::host::processors_for;

/// How long a zygote may take to load its libraries.
const LOADING: Duration = Duration::from_secs(60);
/// How long it may take to answer anything else.
const ANSWERING: Duration = Duration::from_secs(10);
/// Stack of OpenMP's threads: glibc's usual default, fixed so that it does not depend on the caller's shell.
const OPENMP_STACK: &str = "8M";

/// What a zygote is started with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ZygoteOptions {
    /// How to run this program as a child.
    pub reexec: Reexec,
    /// Libraries that kernels need and do not bring, by path, in this order: torch's own `libgomp.so.1`, then `libtorch_cpu.so`
    /// for its vector functions (`Sleef_*`; another build of Sleef gives other bits: Debian's 3.5.1 differs from torch 2.11's for 4 % of
    /// all arguments of `erff`). The compiler's run time is added.
    pub preload: Vec<PathBuf>,
    /// Threads of an OpenMP region that does not say how many, and most that a candidate may keep.
    pub threads: u32,
    /// Run candidates where the kernel has no landlock. What is then open is reading files while a library is being loaded.
    pub permit_weak_sandbox: bool,
}

/// Forks processes for candidates. Starts its helper process when it is first needed, and again should it die.
#[derive(Debug)]
pub struct Zygote {
    options: ZygoteOptions,
    processors: Vec<usize>,
    helper: Mutex<Slot>,
    stop: Stop,
}

/// The helper process, if any, and how many there have been.
#[derive(Debug, Default)]
struct Slot {
    helper: Option<Helper>,
    generation: u64,
}

/// A process that a zygote forked: its number is good for one generation only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    pub(super) pid: i32,
    generation: u64,
}

impl Zygote {
    /// A handle; the helper process starts with the first candidate, or with [`Zygote::warm_up`].
    pub fn new(options: ZygoteOptions) -> Self {
        let processors = processors_for(options.threads as usize);
        Self { options, processors, helper: Mutex::default(), stop: Stop::default() }
    }

    /// The same; waiting for a candidate ends soon after `stop` is asked, as if the candidate hung: whoever asked knows better.
    pub fn ends_with(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    /// True once nobody wants an answer any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.asked()
    }

    /// Processors that the threads of its processes are bound to, one each; none where there are too few.
    pub(super) fn processors(&self) -> &[usize] {
        &self.processors
    }

    /// What it was made with.
    pub fn options(&self) -> &ZygoteOptions {
        &self.options
    }

    /// Starts the helper process and loads its libraries now, so that the first candidate does not wait for it.
    pub fn warm_up(&self) -> io::Result<()> {
        self.running(&mut self.lock()).map(drop)
    }

    /// Forks a process. Descriptors: arena, control socket, output pipe.
    pub(super) fn fork(&self, start: Start, descriptors: [BorrowedFd<'_>; 3]) -> io::Result<Ticket> {
        let mut slot = self.lock();
        let helper = self.running(&mut slot)?;
        match helper.ask(&Request::Start(Box::new(start)), &descriptors) {
            Ok(Reply::Started { pid }) => Ok(Ticket { pid, generation: slot.generation }),
            other => Err(unexpected(&mut slot, other)),
        }
    }

    /// Waits until the process is stopped; false when it is dead instead.
    pub(super) fn settle(&self, ticket: Ticket) -> io::Result<bool> {
        match self.ask_about(ticket, &Request::Settle { pid: ticket.pid })? {
            (Ok(Reply::Settled { alive }), _) => Ok(alive),
            (other, mut slot) => Err(unexpected(&mut slot, other)),
        }
    }

    /// Collects a process that is dead.
    pub(super) fn reap(&self, ticket: Ticket) -> io::Result<Ending> {
        match self.ask_about(ticket, &Request::Reap { pid: ticket.pid })? {
            (Ok(Reply::Reaped(ending)), _) => Ok(ending),
            (other, mut slot) => Err(unexpected(&mut slot, other)),
        }
    }

    /// Ends a process that could not be taken charge of.
    pub(super) fn abandon(&self, ticket: Ticket) {
        // Not collected yet, so the number is still its own. What fails here fails because the process or the zygote is gone.
        let _ = kill(Pid::from_raw(ticket.pid), Signal::SIGKILL);
        let _ = self.reap(ticket);
    }

    fn ask_about(&self, ticket: Ticket, request: &Request) -> io::Result<(io::Result<Reply>, MutexGuard<'_, Slot>)> {
        let mut slot = self.lock();
        let current = slot.generation == ticket.generation;
        match slot.helper.as_mut().filter(|_| current) {
            Some(helper) => Ok((helper.ask(request, &[]), slot)),
            None => Err(io::Error::other("the zygote ended")),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        // A panic elsewhere leaves no half-made state behind: a helper is there and answers, or it is thrown away.
        self.helper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The helper, started if need be.
    fn running<'a>(&self, slot: &'a mut Slot) -> io::Result<&'a mut Helper> {
        if slot.helper.as_mut().is_none_or(|helper| !helper.alive()) {
            slot.helper = None;
            slot.generation += 1;
            slot.helper = Some(Helper::start(&self.options)?);
        }
        slot.helper.as_mut().ok_or_else(|| io::Error::other("no zygote"))
    }
}

/// The error of a conversation that went wrong. A helper that can no longer be talked to is thrown away, and its children with it.
fn unexpected(slot: &mut Slot, reply: io::Result<Reply>) -> io::Error {
    match reply {
        Ok(Reply::Failed { detail }) => io::Error::other(detail),
        Ok(other) => {
            slot.helper = None;
            io::Error::other(format!("the zygote answered {other:?}"))
        }
        Err(error) => {
            slot.helper = None;
            error
        }
    }
}

/// A zygote's process and socket.
#[derive(Debug)]
struct Helper {
    process: Child,
    socket: OwnedFd,
}

impl Helper {
    fn start(options: &ZygoteOptions) -> io::Result<Self> {
        let (ours, theirs) = packet_pair()?;
        let mut command = options.reexec.command("serve");
        command
            .args(&options.preload)
            .env_clear()
            .env("OMP_NUM_THREADS", options.threads.to_string())
            .env("OMP_DYNAMIC", "false")
            .env("OMP_STACKSIZE", OPENMP_STACK)
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            // Its own group: Ctrl-C in a terminal is for the parent, which decides what becomes of its children.
            .process_group(0);
        let describe = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", options.reexec.program.display()));
        let process = command.spawn().map_err(describe)?;
        // The command still holds the child's end; with it open here, a dead helper would look like a slow one.
        drop(command);
        let mut helper = Self { process, socket: ours };
        match helper.receive(LOADING).map_err(describe)? {
            Reply::Hello => Ok(helper),
            Reply::Failed { detail } => Err(io::Error::other(detail)),
            other => Err(io::Error::other(format!("the zygote began with {other:?}"))),
        }
    }

    fn alive(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    fn ask(&mut self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<Reply> {
        send_json(self.socket.as_fd(), request, descriptors)?;
        self.receive(ANSWERING)
    }

    fn receive(&mut self, patience: Duration) -> io::Result<Reply> {
        if !readable(self.socket.as_fd(), patience)? {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("the zygote did not answer within {} s", patience.as_secs())));
        }
        match receive_json(self.socket.as_fd())? {
            Some((reply, _)) => Ok(reply),
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the zygote ended")),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Its children have asked the kernel to be killed when it dies. Neither call can fail in a way that could be mended here.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
