//! A server's process.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::{ServerError, keeper};

/// How often a state is looked at.
const POLL: Duration = Duration::from_millis(50);
/// How much of a server's output an error repeats.
const WORDS: usize = 4000;

/// A running server, with what it says kept in a file. Dropped, it is killed.
pub struct Process {
    server: &'static str,
    child: Child,
    words: PathBuf,
}

impl Process {
    /// Starts `command`; what it prints is appended to `words`.
    pub fn start(server: &'static str, mut command: Command, words: &Path) -> Result<Self, ServerError> {
        let open = || File::options().create(true).append(true).open(words);
        let (out, err) = open().and_then(|out| Ok((out.try_clone()?, out))).map_err(ServerError::io(words.display().to_string()))?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = keeper::spawn(command).map_err(ServerError::io(server))?;
        Ok(Self { server, child, words: words.into() })
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Waits until `ready` holds.
    pub fn wait_until(&mut self, longest: Duration, mut ready: impl FnMut() -> bool) -> Result<(), ServerError> {
        let started = Instant::now();
        while !ready() {
            if self.has_ended() {
                return Err(ServerError::Ended { server: self.server, words: self.last_words() });
            }
            if started.elapsed() > longest {
                return Err(ServerError::Silent { server: self.server, waited: longest, words: self.last_words() });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// The end of what it printed.
    fn last_words(&self) -> String {
        let text = fs::read(&self.words).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(WORDS)..]).into_owned()
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it and what it started, and waits for its end.
    pub fn kill9(mut self) {
        self.end();
    }

    /// Asks it to end in good order; kills it when it takes longer than `longest`. True where it went by itself.
    pub fn terminate(mut self, longest: Duration) -> bool {
        let asked = Instant::now();
        let _ = kill(self.pid(), Signal::SIGTERM);
        while !self.has_ended() && asked.elapsed() < longest {
            thread::sleep(POLL);
        }
        let by_itself = matches!(self.child.try_wait(), Ok(Some(status)) if status.signal() != Some(Signal::SIGKILL as i32));
        self.end();
        by_itself
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(self.pid(), signal);
    }

    fn end(&mut self) {
        // Once waited for, the id may be another's.
        if !self.has_ended() {
            let _ = killpg(self.pid(), Signal::SIGKILL);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a command of a server to its end: what it printed, or an error with it.
pub fn run(mut command: Command) -> Result<String, ServerError> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(ServerError::io(&name))?;
    let out = String::from_utf8_lossy(&done.stdout).into_owned();
    if done.status.success() {
        return Ok(out);
    }
    let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
    Err(ServerError::Command { command: format!("{name} {}", args.join(" ")), words: out + &String::from_utf8_lossy(&done.stderr) })
}

/// The first of `places` that exists, or the program in `$PATH`.
pub fn find(program: &'static str, package: &'static str, places: &[&str]) -> Result<PathBuf, ServerError> {
    let fixed = places.iter().map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let searched = std::env::split_paths(&path).map(|folder| folder.join(program));
    fixed.chain(searched).find(|path| path.is_file()).ok_or(ServerError::Missing { program, package })
}

/// Writes a server's file.
pub fn write(path: &Path, text: &str) -> Result<(), ServerError> {
    fs::write(path, text).map_err(|source: io::Error| ServerError::Io { what: path.display().to_string(), source })
}
