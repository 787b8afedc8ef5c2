//! A child process that owns a device and can be killed at any time.
//!
//! A kernel that never ends cannot be stopped, and an illegal address poisons the context for good: either way the process has to go.
//! The parent therefore holds no context. It asks, waits until a deadline, and kills. One request is out at a time; what is asked and
//! answered is up to the caller.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use kernelopt_gpu_agent::{cpu::child::Reexec, cuda::process::{Process, serve}};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let reexec = Reexec { program: std::env::current_exe()?, words: vec!["runner".into()] };
//! // The parent:
//! let mut process = Process::start(&reexec, &["gpu"])?;
//! let answer: u32 = process.call(&"how many?", Duration::from_secs(5))?;
//! // The child, under `runner gpu`:
//! serve(|question: String, progress| {
//!     progress.note("counting");
//!     question.len() as u32
//! })?;
//! # Ok(()) }
//! ```

mod child;
mod frames;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use kernelopt_shared::stop::Stop;
use nix::sys::signal::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cpu::child::Reexec;
pub use child::{Progress, serve};
use frames::{Frames, Kind, decode};

/// How long a process may take to die after it closed its socket.
const DYING: Duration = Duration::from_secs(2);

/// How a call ended when it did not end with an answer. The process is gone then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Death {
    /// It did not answer in time and was killed.
    #[error("hung while {phase}: no answer in {:.1} s", .waited.as_secs_f64())]
    Hung {
        /// How long it had.
        waited: Duration,
        /// Its last note, or `starting`.
        phase: String,
    },
    /// It ended by itself.
    #[error("died while {phase}: {}", describe(*.status))]
    Crashed {
        /// How.
        status: ExitStatus,
        /// Its last note, or `starting`.
        phase: String,
    },
    /// It could not be talked to, and was killed.
    #[error("gave no proper answer while {phase}: {detail}")]
    Protocol {
        /// What was wrong.
        detail: String,
        /// Its last note, or `starting`.
        phase: String,
    },
}

impl Death {
    /// What the process was doing.
    pub fn phase(&self) -> &str {
        match self {
            Self::Hung { phase, .. } | Self::Crashed { phase, .. } | Self::Protocol { phase, .. } => phase,
        }
    }
}

/// `signal SIGSEGV`, `exit status 1`.
fn describe(status: ExitStatus) -> String {
    match status.signal().map(Signal::try_from) {
        Some(Ok(signal)) => format!("signal {signal}"),
        _ => status.to_string().replace(": ", " "),
    }
}

/// A child process, killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    frames: Frames,
    /// How it died, if it did.
    death: Option<Death>,
}

impl Process {
    /// Starts this program again with `words`, which must lead it to [`serve`]. Its output is thrown away but for stderr, which is ours.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(reexec: &Reexec, words: &[&str]) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&reexec.program);
        command
            .args(&reexec.words)
            .args(words)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            // Its own group: Ctrl-C in a terminal is for the parent, which decides what becomes of its children.
            .process_group(0);
        let child = command.spawn().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", reexec.program.display())))?;
        // The command still holds the child's end; with it open here, a dead child would look like a slow one.
        drop(command);
        Ok(Self { child, frames: Frames::new(ours)?, death: None })
    }

    /// The same; a call that is waited for ends, with the process, soon after `stop` is asked.
    pub fn ends_with(mut self, stop: Stop) -> Self {
        self.frames.ends_with(stop);
        self
    }

    /// Number of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it died, if it did.
    pub const fn death(&self) -> Option<&Death> {
        self.death.as_ref()
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// How the process died: after that every call ends in the same way.
    pub fn call<Req: Serialize, Res: DeserializeOwned>(&mut self, request: &Req, patience: Duration) -> Result<Res, Death> {
        self.call_with(request, patience, |_| {})
    }

    /// The same; `progress` hears every note.
    ///
    /// # Errors
    /// As [`Process::call`].
    pub fn call_with<Req: Serialize, Res: DeserializeOwned>(
        &mut self,
        request: &Req,
        patience: Duration,
        progress: impl FnMut(&str),
    ) -> Result<Res, Death> {
        if let Some(death) = &self.death {
            return Err(death.clone());
        }
        let mut phase = "starting".to_owned();
        let answer = self.converse(request, Instant::now() + patience, &mut phase, progress);
        answer.map_err(|error| {
            let death = self.bury(&error, patience, phase);
            self.death.insert(death).clone()
        })
    }

    fn converse<Req: Serialize, Res: DeserializeOwned>(
        &mut self,
        request: &Req,
        deadline: Instant,
        phase: &mut String,
        mut progress: impl FnMut(&str),
    ) -> io::Result<Res> {
        self.frames.send(request, Some(deadline))?;
        loop {
            let (kind, body) = self.frames.receive(Some(deadline))?.ok_or(io::ErrorKind::BrokenPipe)?;
            match kind {
                Kind::Message => return decode(&body),
                Kind::Note => {
                    *phase = String::from_utf8_lossy(&body).into_owned();
                    progress(phase);
                }
            }
        }
    }

    /// Makes sure that the process is gone, and says how it went.
    fn bury(&mut self, error: &io::Error, waited: Duration, phase: String) -> Death {
        let closed = matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
        let crashed = if closed { self.wait_for_end() } else { None };
        self.kill();
        match crashed {
            Some(status) => Death::Crashed { status, phase },
            None if error.kind() == io::ErrorKind::TimedOut => Death::Hung { waited, phase },
            None => Death::Protocol { detail: error.to_string(), phase },
        }
    }

    /// A process that closed its socket is dying; a moment later it has a status.
    fn wait_for_end(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + DYING;
        let mut pause = Duration::from_micros(100);
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        None
    }

    /// Ends the process now.
    fn kill(&mut self) {
        // One that is dead already is no failure. A driver gives back a dead process's device memory before it can be collected. One
        // that hangs inside the driver cannot be collected; init does so should it ever end.
        let _ = self.child.kill();
        let _ = self.wait_for_end();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
