//! Other programs, run for a bounded time.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Most that is read of what a program prints, in bytes.
const MOST_OUTPUT_BYTES: u64 = 1 << 20;

/// How long a killed program may take to be gone.
const DYING: Duration = Duration::from_secs(2);

/// What a program did.
pub(super) struct Done {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Runs `command` without input. A program that takes longer than `limit` is killed, which is an error of kind `TimedOut`.
pub(super) fn run(command: &mut Command, limit: Duration) -> io::Result<Done> {
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut child = command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?).spawn()?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() > limit {
            child.kill()?;
            // Not for ever: one that a driver holds in the kernel cannot even be killed.
            let killed = Instant::now();
            while child.try_wait()?.is_none() && killed.elapsed() < DYING {
                std::thread::sleep(Duration::from_millis(5));
            }
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", limit.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ok(Done { status, stdout: text(&mut stdout)?, stderr: text(&mut stderr)? })
}

fn text(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(MOST_OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_come_back() {
        let done = run(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]), Duration::from_secs(10)).unwrap();
        assert_eq!((done.stdout.as_str(), done.stderr.as_str(), done.status.code()), ("out\n", "err\n", Some(3)));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let started = Instant::now();
        let error = run(Command::new("sleep").arg("60"), Duration::from_millis(50)).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}
