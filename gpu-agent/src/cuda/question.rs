//! A child that answers one question in JSON, in time. A driver may never come back from a call; the child that made it is given up then.

use std::io::{self, Read as _, Seek as _};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::cpu::child::Reexec;

/// Most that is read of an answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 1 << 20;
/// How long a child that was killed may take to be gone. One that the driver holds in the kernel cannot even be killed.
const DYING: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    /// It took too long and was killed.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// It ended without one.
    #[error("the process that asked ended with {0} and without an answer")]
    Ended(ExitStatus),
    /// It cannot be asked.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Runs this program in `mode` and decodes what it prints, within `limit`.
pub(super) fn ask<T: DeserializeOwned>(reexec: &Reexec, mode: &str, limit: Duration) -> Result<T, Unanswered> {
    let mut answer = tempfile::tempfile()?;
    // What a driver says on stderr by itself is no help to anybody: our own words follow.
    let command = &mut reexec.command(mode);
    let mut child = command.stdin(Stdio::null()).stdout(answer.try_clone()?).stderr(Stdio::null()).spawn()?;
    let Some(status) = wait(&mut child, limit)? else {
        child.kill()?;
        wait(&mut child, DYING)?;
        return Err(Unanswered::Silent(limit));
    };
    answer.rewind()?;
    let mut bytes = Vec::new();
    answer.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes)?;
    serde_json::from_slice(&bytes).map_err(|_| Unanswered::Ended(status))
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        match child.try_wait()? {
            None if started.elapsed() < limit => std::thread::sleep(PAUSE),
            ended => return Ok(ended),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell in the place of this program; the mode is its `$0`.
    fn shell(script: &str) -> Reexec {
        Reexec { program: "sh".into(), words: vec!["-c".into(), script.into()] }
    }

    #[test]
    fn an_answer_is_decoded_and_silence_has_an_end() {
        let limit = Duration::from_secs(20);
        assert_eq!(ask::<Vec<u32>>(&shell("echo '[1, 2]'"), "gpus", limit).unwrap(), [1, 2]);
        assert!(matches!(ask::<u32>(&shell("exit 3"), "gpus", limit), Err(Unanswered::Ended(status)) if status.code() == Some(3)));
        assert!(matches!(ask::<u32>(&shell("exec sleep 60"), "gpus", Duration::from_millis(50)), Err(Unanswered::Silent(_))));
        let none = Reexec { program: "/no/such/program".into(), words: Vec::new() };
        assert!(matches!(ask::<u32>(&none, "gpus", limit), Err(Unanswered::Io(_))));
    }
}
