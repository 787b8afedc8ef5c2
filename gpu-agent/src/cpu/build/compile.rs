//! One run of a compiler, bounded in time and text.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use kernelopt_shared::stop::Stop;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::cpu::pidfd::PidFd;
use crate::cpu::waiting::poll_timeout;

/// Time between two looks for a stop.
const STOP_LOOK: Duration = Duration::from_millis(100);
/// Text kept of one run, in bytes.
const KEPT_BYTES: usize = 256 << 10;

/// Which stream is read; the other goes to /dev/null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// stdout.
    Output,
    /// stderr.
    Errors,
}

/// How a run ended.
#[derive(Debug)]
pub(super) struct Outcome {
    /// None where it took too long, or a stop was asked for, and it was killed.
    pub status: Option<ExitStatus>,
    /// The beginning of what it printed.
    pub text: String,
}

/// Runs a command in a process group of its own, which is gone when this returns.
pub(super) fn run(command: &mut Command, patience: Duration, stream: Stream, stop: &Stop) -> io::Result<Outcome> {
    let (reader, writer) = io::pipe()?;
    let (output, errors) = match stream {
        Stream::Output => (writer.into(), Stdio::null()),
        Stream::Errors => (Stdio::null(), writer.into()),
    };
    let child = command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0).spawn()?;
    // The command still holds the writing end, which would keep the pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut group = Group { leader: child, collected: false };
    let process = PidFd::open(group.number()?.as_raw())?;
    let mut text = Vec::new();
    let in_time = watch(&process, &mut File::from(OwnedFd::from(reader)), &mut text, patience, stop)?;
    let status = group.end()?;
    Ok(Outcome { status: in_time.then_some(status), text: String::from_utf8_lossy(&text).into_owned() })
}

/// Reads until the pipe is closed and the process dead; false when the time is over or a stop asked for.
fn watch(process: &PidFd, pipe: &mut File, text: &mut Vec<u8>, patience: Duration, stop: &Stop) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    let mut open = true;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = vec![PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        if open {
            fds.push(PollFd::new(pipe.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, poll_timeout(left.min(STOP_LOOK))) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |index: usize| fds.get(index).and_then(PollFd::revents).is_some_and(|events| !events.is_empty());
        let (dead, readable) = (ready(0), ready(1));
        if readable {
            let mut chunk = [0u8; 8192];
            let len = pipe.read(&mut chunk)?;
            open = len > 0;
            text.extend_from_slice(&chunk[..len.min(KEPT_BYTES - text.len().min(KEPT_BYTES))]);
        } else if dead {
            return Ok(true);
        } else if left.is_zero() || stop.asked() {
            return Ok(false);
        }
    }
}

/// A child and whatever it started.
struct Group {
    leader: Child,
    collected: bool,
}

impl Group {
    fn number(&self) -> io::Result<Pid> {
        i32::try_from(self.leader.id()).map(Pid::from_raw).map_err(io::Error::other)
    }

    /// Kills what is left of the group and collects its leader. Until then the group's number is nobody else's.
    fn end(&mut self) -> io::Result<ExitStatus> {
        self.collected = true;
        match killpg(self.number()?, Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => self.leader.wait(),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.collected {
            // Only after an error that is already on its way to the caller.
            let _ = self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, patience: Duration) -> Outcome {
        run(Command::new("sh").args(["-c", script]), patience, Stream::Errors, &Stop::default()).unwrap()
    }

    #[test]
    fn status_and_text_come_back() {
        let outcome = shell("echo out; echo err >&2; exit 3", Duration::from_secs(20));
        assert_eq!((outcome.status.unwrap().code(), outcome.text.as_str()), (Some(3), "err\n"));
    }

    #[test]
    fn a_slow_group_is_killed_whole() {
        let began = Instant::now();
        let outcome = shell("sleep 60 & echo $! >&2; sleep 60", Duration::from_millis(300));
        assert!(outcome.status.is_none() && began.elapsed() < Duration::from_secs(20));
        let grandchild: i32 = outcome.text.trim().parse().unwrap();
        // Killed; until init has collected it, it is a zombie.
        let state = || std::fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !state().is_empty() && !state().contains(") Z ") && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(state().is_empty() || state().contains(") Z "), "{}", state());
    }

    #[test]
    fn a_stop_ends_it() {
        let stop = Stop::default();
        stop.ask();
        let began = Instant::now();
        let outcome = run(Command::new("sleep").arg("60"), Duration::from_secs(60), Stream::Errors, &stop).unwrap();
        assert!(outcome.status.is_none() && began.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_flood_of_text_is_cut() {
        let outcome = shell("head -c 1000000 /dev/zero | tr '\\0' x >&2", Duration::from_secs(60));
        assert!(outcome.status.unwrap().success());
        assert_eq!(outcome.text.len(), KEPT_BYTES);
    }
}
