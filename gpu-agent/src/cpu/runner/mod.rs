//! One candidate in one sandboxed process, seen from the parent.
//!
//! A runner is *stopped* (SIGSTOP, every thread) except inside [`Runner::measure`]. That is what makes its answers worth
//! something although it shares memory with the referee:
//!
//! - What is in the arena when `measure` returns is what was there a few microseconds after the answer: work that was handed to another
//!   thread, or an answer sent before the work, shows as outputs that are not there.
//! - Nothing is computed, cached or tampered with while the referee fills inputs and compares outputs.
//! - Threads of OpenMP that spin for their next region cannot disturb the measurement of another candidate.
//!
//! The clock is the parent's: from the command written to the answer read. A command carries a fresh nonce; an answer without
//! it, or more than one answer, is [`Fault::Forged`]. The nonce is no secret from a candidate that searches its own memory, and need not
//! be: an early answer only stops the process before the work is done.

mod output;
mod places;
mod plan;
mod zygote;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{MsgFlags, recv, send};

pub use super::fault::Fault;
pub use plan::{ArgumentPlan, Limits, Plan};
pub use zygote::{Zygote, ZygoteOptions};

use super::arena::Arena;
use super::entropy::random_bytes;
use super::pidfd::PidFd;
use super::sandbox;
use super::waiting::{poll_timeout, readable};
use super::wire::{Ending, MAX_LAUNCHES, MAX_REPORT_BYTES, Report, ReportKind, disturbance, encode_command, packet_pair};
use output::Output;
use places::Places;
use zygote::Ticket;

/// How long a killed process may take to be gone.
const DYING: Duration = Duration::from_secs(10);
/// Time between two looks for a stop.
const STOP_LOOK: Duration = Duration::from_millis(100);
/// Threads that a smaller team left over need a moment to end; how often to look again, and how long apart.
const THREAD_LOOKS: u32 = 5;
const THREAD_PAUSE: Duration = Duration::from_millis(2);

/// A candidate's process.
#[derive(Debug)]
pub struct Runner {
    zygote: Arc<Zygote>,
    ticket: Ticket,
    process: PidFd,
    control: OwnedFd,
    output: Output,
    stat: File,
    places: Places,
    slots: u32,
    limits: Limits,
    /// The candidate's library is in the process, or may be.
    walled: bool,
    /// The zygote has collected it, and its number may belong to another.
    collected: bool,
    ended: Option<Fault>,
}

impl Runner {
    /// Starts a process on `arena`, loads the library in it and stops it. One arena serves one candidate: a second process on it
    /// would see the first one's outputs.
    pub fn start(zygote: &Arc<Zygote>, plan: &Plan, arena: &Arena) -> Result<Self, Fault> {
        let nonce = fresh_nonce().map_err(ours("nonce"))?;
        let start = plan.start(arena, nonce, zygote.options().permit_weak_sandbox)?;
        let (control, their_control) = packet_pair().map_err(ours("control socket"))?;
        let (output, their_output) = Output::pipe().map_err(ours("output pipe"))?;
        let descriptors = [arena.memory(), their_control.as_fd(), their_output.as_fd()];
        let ticket = zygote.fork(start, descriptors).map_err(ours("zygote"))?;
        drop((their_control, their_output));
        // The zygote collects a process only when asked to, so the number is still this process's.
        let handles = PidFd::open(ticket.pid).and_then(|process| Ok((process, File::open(format!("/proc/{}/stat", ticket.pid))?)));
        let (process, stat) = handles.map_err(|error| {
            zygote.abandon(ticket);
            ours("process")(error)
        })?;
        let (zygote, slots, limits) = (Arc::clone(zygote), arena.slots(), plan.limits);
        let mut runner = Self {
            zygote,
            ticket,
            process,
            control,
            output,
            stat,
            places: Places::default(),
            slots,
            limits,
            walled: false,
            collected: false,
            ended: None,
        };
        runner.expect(ReportKind::Walled, nonce, limits.start)?;
        runner.walled = true;
        runner.expect(ReportKind::Ready, nonce, limits.start)?;
        runner.stop()?;
        Ok(runner)
    }

    /// Launches the kernel once per slot, in this order, and returns how long it took, from the command written to the answer read.
    pub fn run(&mut self, slots: &[u32], timeout: Duration) -> Result<Duration, Fault> {
        self.measure(&[], slots, timeout)
    }

    /// Launches `warm` untimed and at once afterwards `timed` by the clock. Each may take `timeout` and has at most [`MAX_LAUNCHES`]
    /// launches; an empty one is a round trip. After a fault, every further call returns that fault.
    ///
    /// While warm, a candidate sees the whole arena. One that keeps what it finds there is fast when timed on the same values,
    /// so timed slots should get theirs after the last untimed launch: `run`, refill, `run`.
    pub fn measure(&mut self, warm: &[u32], timed: &[u32], timeout: Duration) -> Result<Duration, Fault> {
        if let Some(fault) = &self.ended {
            return Err(fault.clone());
        }
        self.check_slots(warm)?;
        self.check_slots(timed)?;
        self.process.signal(libc::SIGCONT).map_err(ours("SIGCONT"))?;
        self.command(warm, timeout)?;
        let elapsed = self.command(timed, timeout)?;
        self.stop()?;
        Ok(elapsed)
    }

    /// Time that its threads have waited for a processor so far, all together: while it is timed, others kept them from
    /// running. `None` where the kernel does not count it.
    pub fn run_delay(&self) -> Option<Duration> {
        places::run_delay(self.ticket.pid)
    }

    /// The fault that ended it, if any.
    pub fn fault(&self) -> Option<&Fault> {
        self.ended.as_ref()
    }

    fn check_slots(&self, slots: &[u32]) -> Result<(), Fault> {
        match slots.iter().find(|&&slot| slot >= self.slots) {
            Some(slot) => Err(Fault::Sandbox { detail: format!("slot {slot} of an arena with {}", self.slots) }),
            None if slots.len() > MAX_LAUNCHES => {
                Err(Fault::Sandbox { detail: format!("{} launches in one command; at most {MAX_LAUNCHES}", slots.len()) })
            }
            None => Ok(()),
        }
    }

    /// One command and its answer, by the clock.
    fn command(&mut self, slots: &[u32], timeout: Duration) -> Result<Duration, Fault> {
        let nonce = fresh_nonce().map_err(ours("nonce"))?;
        let bytes = encode_command(nonce, slots);
        let began = Instant::now();
        match send(self.control.as_raw_fd(), &bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
            // The process is gone; what became of it is learnt below.
            Ok(_) | Err(Errno::EPIPE | Errno::ECONNRESET) => {}
            // Commands go out one by one, so a full socket means that nobody takes them.
            Err(Errno::EAGAIN) => return Err(self.end(Fault::Hung { waited: Duration::ZERO })),
            Err(error) => return Err(self.end(ours("command")(error.into()))),
        }
        let value = self.expect(ReportKind::Done, nonce, timeout)?;
        let elapsed = began.elapsed();
        match value {
            0 => Ok(elapsed),
            changed => Err(self.end(Fault::Disturbed { detail: describe_disturbance(changed) })),
        }
    }

    /// Waits for one report of this kind with this nonce, and returns its value.
    fn expect(&mut self, kind: ReportKind, nonce: u64, patience: Duration) -> Result<u64, Fault> {
        let report = match self.next_report(patience) {
            Ok(report) => report,
            Err(fault) => return Err(self.end(fault)),
        };
        if report.kind == kind && report.nonce == nonce {
            return Ok(report.value);
        }
        let fault = self.fault_of(&report);
        Err(self.end(fault))
    }

    /// Waits for whatever comes first: a report, too much output, the end of the process, the end of patience.
    fn next_report(&mut self, patience: Duration) -> Result<Report, Fault> {
        let began = Instant::now();
        loop {
            let waited = began.elapsed();
            let left = patience.saturating_sub(waited);
            let ready = self.wait(left.min(STOP_LOOK)).map_err(ours("poll"))?;
            if ready.control {
                match self.receive()? {
                    Some(report) => return Ok(report),
                    None => return Err(self.obituary()),
                }
            }
            if ready.output {
                self.output.drain();
                if self.output.seen_bytes() > self.limits.output_bytes {
                    return Err(Fault::OutputFlood { seen_bytes: self.limits.output_bytes });
                }
            }
            if ready.dead {
                return Err(self.obituary());
            }
            if left.is_zero() || self.zygote.is_stopped() {
                return Err(Fault::Hung { waited });
            }
        }
    }

    fn wait(&self, left: Duration) -> io::Result<Ready> {
        let mut fds = vec![PollFd::new(self.control.as_fd(), PollFlags::POLLIN), PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.output.descriptor().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        match poll(&mut fds, poll_timeout(left)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let any = |index: usize| fds.get(index).and_then(PollFd::revents).is_some_and(|events| !events.is_empty());
        Ok(Ready { control: any(0), dead: any(1), output: any(2) })
    }

    /// One message, if there is one; none also where the other end is closed.
    fn receive(&self) -> Result<Option<Report>, Fault> {
        let mut bytes = [0u8; MAX_REPORT_BYTES + 1];
        match recv(self.control.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
            Ok(0) | Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNRESET) => Ok(None),
            Ok(len) => Report::decode(&bytes[..len]).map(Some).map_err(|detail| Fault::Forged { detail }),
            Err(error) => Err(ours("answer")(error.into())),
        }
    }

    /// What a report means that is not the one waited for.
    fn fault_of(&self, report: &Report) -> Fault {
        match report.kind {
            ReportKind::Walled | ReportKind::Ready | ReportKind::Done => {
                Fault::Forged { detail: "an answer out of turn, or with a wrong nonce".into() }
            }
            ReportKind::LoadFailed => Fault::LoadFailed { detail: report.text.clone() },
            // A constructor that spoils the second wall, or says that we failed, does not get away with being nobody's fault.
            ReportKind::SandboxFailed if self.walled => Fault::Disturbed { detail: report.text.clone() },
            ReportKind::SandboxFailed => Fault::Sandbox { detail: report.text.clone() },
            ReportKind::Forbidden => Fault::Forbidden { syscall: sandbox::syscall_name(report.value) },
            ReportKind::OutOfMemory => Fault::OutOfMemory { limit_bytes: self.limits.memory_bytes },
        }
    }

    /// Stops every thread and waits until all are; then sees that nothing was said after the answer, and who is there.
    fn stop(&mut self) -> Result<(), Fault> {
        self.freeze()?;
        let said = match self.receive() {
            Ok(None) => {
                self.check_threads()?;
                self.places.bind(self.ticket.pid, self.zygote.processors());
                return Ok(());
            }
            Ok(Some(report)) if report.kind == ReportKind::Done => Fault::Forged { detail: "more than one answer".into() },
            Ok(Some(report)) => self.fault_of(&report),
            Err(fault) => fault,
        };
        Err(self.end(said))
    }

    fn freeze(&mut self) -> Result<(), Fault> {
        let stopped = self.process.signal(libc::SIGSTOP).and_then(|()| self.zygote.settle(self.ticket));
        match stopped {
            Ok(true) => Ok(()),
            Ok(false) => {
                let fault = self.obituary();
                Err(self.end(fault))
            }
            Err(error) => Err(self.end(ours("stop")(error))),
        }
    }

    fn check_threads(&mut self) -> Result<(), Fault> {
        let allowed = self.zygote.options().threads.max(1);
        let mut found = self.threads();
        for _ in 0..THREAD_LOOKS {
            if found <= allowed {
                return Ok(());
            }
            self.process.signal(libc::SIGCONT).map_err(ours("SIGCONT"))?;
            std::thread::sleep(THREAD_PAUSE);
            self.freeze()?;
            found = self.threads();
        }
        Err(self.end(Fault::TooManyThreads { found, allowed }))
    }

    /// Threads of the process now (proc_pid_stat(5), field 20); zero for a process that is gone.
    fn threads(&self) -> u32 {
        const FIELDS_AFTER_NAME: usize = 20 - 3;
        let mut text = [0u8; 1024];
        let len = self.stat.read_at(&mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..len]);
        let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        after_name.split_ascii_whitespace().nth(FIELDS_AFTER_NAME).and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// Why a process that is dead or about to be gave no answer: its own report if it left one, else how it ended.
    fn obituary(&mut self) -> Fault {
        while let Ok(Some(report)) = self.receive() {
            if !matches!(report.kind, ReportKind::Walled | ReportKind::Ready | ReportKind::Done) {
                return self.fault_of(&report);
            }
        }
        match readable(self.process.as_fd(), DYING) {
            Ok(true) => match self.collect() {
                Ok(ending) => self.fault_of_ending(ending),
                Err(error) => ours("zygote")(error),
            },
            // It closed its end of the socket and lives on: not possible behind the filter, so it was not there.
            Ok(false) => Fault::Forged { detail: "the control socket is closed".into() },
            Err(error) => ours("poll")(error),
        }
    }

    fn fault_of_ending(&mut self, ending: Ending) -> Fault {
        let said = self.output.last_words();
        match ending {
            Ending::Exited(status) => Fault::Exited { status, said },
            Ending::Signaled(libc::SIGSYS) => Fault::Forbidden { syscall: "unknown".into() },
            Ending::Signaled(signal) => Fault::Crashed { signal, said },
        }
    }

    /// Kills and collects the process; `fault` is what it is remembered by.
    fn end(&mut self, fault: Fault) -> Fault {
        if self.ended.is_none() {
            self.ended = Some(fault.clone());
            let gone = self.process.signal(libc::SIGKILL).and_then(|()| readable(self.process.as_fd(), DYING));
            if matches!(gone, Ok(true)) && !self.collected {
                // A zygote that is gone has left it to init.
                let _ = self.collect();
            }
        }
        fault
    }

    /// Has the zygote collect the dead process.
    fn collect(&mut self) -> io::Result<Ending> {
        self.collected = true;
        self.zygote.reap(self.ticket)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.end(Fault::Sandbox { detail: "the runner was dropped".into() });
    }
}

/// What there is to see.
struct Ready {
    control: bool,
    dead: bool,
    output: bool,
}

fn ours(what: &'static str) -> impl Fn(io::Error) -> Fault {
    move |error| Fault::Sandbox { detail: format!("{what}: {error}") }
}

fn fresh_nonce() -> io::Result<u64> {
    random_bytes().map(u64::from_le_bytes)
}

fn describe_disturbance(changed: u64) -> String {
    let known = [(disturbance::FLOAT_MODE, "the floating-point mode"), (disturbance::OPENMP_THREADS, "OpenMP's number of threads")];
    let named: Vec<&str> = known.iter().filter(|(bit, _)| changed & bit != 0).map(|(_, name)| *name).collect();
    if named.is_empty() { format!("mode {changed:#x}") } else { named.join(" and ") }
}
