//! What can go wrong with a candidate's process, and the verdict that each fault stands for.

use std::fmt;
use std::time::Duration;

use kernelopt_shared::verdict::Verdict;
use nix::sys::signal::Signal;

/// Why a runner gave no answer that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A signal killed it.
    Crashed {
        /// Number of the signal.
        signal: i32,
        /// The last that it printed, cut.
        said: String,
    },
    /// It exited by itself; a status of zero is no better than another.
    Exited {
        /// Exit status.
        status: i32,
        /// The last that it printed, cut.
        said: String,
    },
    /// It did not answer in time.
    Hung {
        /// How long the parent waited.
        waited: Duration,
    },
    /// It made a system call that a kernel has no business making.
    Forbidden {
        /// Name of the call; `unknown` where the process died without saying.
        syscall: String,
    },
    /// It printed more than is read.
    OutputFlood {
        /// Bytes seen before the parent ended it.
        seen_bytes: usize,
    },
    /// It answered out of turn, with a wrong nonce, or with something that is no answer.
    Forged {
        /// What was wrong.
        detail: String,
    },
    /// It asked for more memory than a candidate gets.
    OutOfMemory {
        /// What it may allocate, in bytes.
        limit_bytes: u64,
    },
    /// It keeps more threads than the model's own kernels do.
    TooManyThreads {
        /// Threads seen after the launch.
        found: u32,
        /// Threads allowed.
        allowed: u32,
    },
    /// It changed a mode of the process that the rest of the model relies on.
    Disturbed {
        /// Which.
        detail: String,
    },
    /// The dynamic loader refused the library.
    LoadFailed {
        /// The loader's words.
        detail: String,
    },
    /// Not the candidate's fault but ours or the machine's: no verdict follows.
    Sandbox {
        /// What happened.
        detail: String,
    },
}

impl Fault {
    /// The verdict on the candidate; none where the fault is not its own.
    pub fn verdict(&self) -> Option<Verdict> {
        let reason = self.to_string();
        match self {
            Self::Crashed { .. } | Self::Exited { .. } | Self::OutOfMemory { .. } => Some(Verdict::Crashed { reason }),
            Self::Hung { waited } => Some(Verdict::Hung { waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX) }),
            Self::Forbidden { .. }
            | Self::OutputFlood { .. }
            | Self::Forged { .. }
            | Self::TooManyThreads { .. }
            | Self::Disturbed { .. } => Some(Verdict::Rejected { reason }),
            Self::LoadFailed { .. } => Some(Verdict::BuildFailed { reason }),
            Self::Sandbox { .. } => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crashed { signal, said } => match Signal::try_from(*signal) {
                Ok(known) => write!(f, "signal {signal} ({}){}", known.as_str(), Quoted(said)),
                Err(_) => write!(f, "signal {signal}{}", Quoted(said)),
            },
            Self::Exited { status, said } => write!(f, "exit status {status} in the middle of a run{}", Quoted(said)),
            Self::Hung { waited } => write!(f, "no answer after {:.1} s", waited.as_secs_f64()),
            Self::Forbidden { syscall } => write!(f, "forbidden system call: {syscall}"),
            Self::OutputFlood { seen_bytes } => write!(f, "printed more than {seen_bytes} bytes"),
            Self::Forged { detail } => write!(f, "forged answer: {detail}"),
            Self::OutOfMemory { limit_bytes } => write!(f, "out of memory: a candidate may allocate {} MiB", limit_bytes >> 20),
            Self::TooManyThreads { found, allowed } => write!(f, "{found} threads, {allowed} allowed"),
            Self::Disturbed { detail } => write!(f, "left the process changed: {detail}"),
            Self::LoadFailed { detail } => write!(f, "the library does not load: {detail}"),
            Self::Sandbox { detail } => write!(f, "the runner failed: {detail}"),
        }
    }
}

impl std::error::Error for Fault {}

/// `: "text"`, or nothing.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {:?}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_read_well_and_judge() {
        let crash = Fault::Crashed { signal: 11, said: String::new() };
        assert_eq!(crash.to_string(), "signal 11 (SIGSEGV)");
        assert_eq!(crash.verdict().unwrap().kind(), "crashed");
        let exit = Fault::Exited { status: 0, said: "bye\n".into() };
        assert_eq!(exit.to_string(), "exit status 0 in the middle of a run: \"bye\\n\"");
        assert_eq!(exit.verdict().unwrap().kind(), "crashed");
        assert_eq!(Fault::Hung { waited: Duration::from_millis(1500) }.verdict(), Some(Verdict::Hung { waited_ms: 1500 }));
        assert_eq!(Fault::Forbidden { syscall: "socket".into() }.verdict().unwrap().kind(), "rejected");
        assert_eq!(Fault::Sandbox { detail: "x".into() }.verdict(), None);
    }
}
