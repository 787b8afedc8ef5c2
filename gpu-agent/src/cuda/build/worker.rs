//! One warm Python process, and the pool of them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::interpreter::Interpreter;
use super::launcher::Walls;
use super::wire::{self, Answer, Hello, Request};
use super::{BuildError, BuildLimits};
use crate::cpu::child::Reexec;

/// Importing torch from a cold disk takes up to a minute.
const STARTING: Duration = Duration::from_secs(180);
/// What an answer may take beyond the build itself.
const GRACE: Duration = Duration::from_secs(10);
/// How much of what a worker wrote to stderr an error repeats, in bytes.
const STDERR_TAIL_BYTES: u64 = 2000;

/// What workers are started with.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub reexec: Reexec,
    pub interpreter: Interpreter,
    pub limits: BuildLimits,
    /// What they compile for first, to be warm.
    pub architecture: u32,
    pub permit_weak_sandbox: bool,
    /// Parent of the scratch folders.
    pub scratch: PathBuf,
}

/// A process that answers orders. Dropped, it ends, and with it everything that its builds have left.
#[derive(Debug)]
pub(super) struct Worker {
    process: Child,
    stream: UnixStream,
    stderr: File,
    lacks_triton: Option<String>,
    _scratch: tempfile::TempDir,
}

impl Worker {
    fn start(setup: &Setup) -> Result<Self, BuildError> {
        let io = |source| BuildError::Io { path: setup.scratch.clone(), source };
        let scratch = tempfile::Builder::new().prefix("worker-").tempdir_in(&setup.scratch).map_err(io)?;
        let (stream, theirs) = UnixStream::pair().map_err(io)?;
        let stderr = tempfile::tempfile().map_err(io)?;
        let mut command = command(setup, &scratch)?;
        let theirs = OwnedFd::from(theirs);
        command.stdin(theirs.try_clone().map_err(io)?).stdout(theirs).stderr(stderr.try_clone().map_err(io)?);
        let program = setup.reexec.program.display();
        let process = command.spawn().map_err(|e| BuildError::Worker(format!("{program}: {e}")))?;
        // The command still holds the worker's end; with it open here, a dead worker would look like a slow one.
        drop(command);
        let mut worker = Self { process, stream, stderr, lacks_triton: None, _scratch: scratch };
        match wire::receive::<Hello>(&worker.stream, Instant::now() + STARTING) {
            Ok((hello, _)) => worker.lacks_triton = hello.lacks_triton,
            Err(error) => return Err(BuildError::Worker(format!("the build worker does not start: {error}: {}", worker.last_words()))),
        }
        Ok(worker)
    }

    /// Why this one cannot compile Triton.
    pub(super) fn lacks_triton(&self) -> Option<&str> {
        self.lacks_triton.as_deref()
    }

    /// One order. After an error the worker is of no further use.
    pub(super) fn ask(&mut self, request: &Request<'_>, wall: Duration) -> Result<(Answer, Vec<u8>), String> {
        let deadline = Instant::now() + wall + GRACE;
        let asked = wire::send(&self.stream, request, deadline).and_then(|()| wire::receive(&self.stream, deadline));
        asked.map_err(|error| format!("{error}: {}", self.last_words()))
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// The end of what it wrote to stderr.
    fn last_words(&mut self) -> String {
        let mut text = Vec::new();
        let length = self.stderr.metadata().map_or(0, |facts| facts.len());
        let start = io::SeekFrom::Start(length.saturating_sub(STDERR_TAIL_BYTES));
        // What cannot be read is left out: this only explains another error.
        let _ = self.stderr.seek(start).and_then(|_| self.stderr.by_ref().take(STDERR_TAIL_BYTES).read_to_end(&mut text));
        String::from_utf8_lossy(&text).trim().to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Not collected yet, so the group's number is still its own, and nobody in it can have left it.
        if let Ok(leader) = i32::try_from(self.process.id()) {
            let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
        }
        let _ = self.process.wait();
    }
}

fn command(setup: &Setup, scratch: &tempfile::TempDir) -> Result<std::process::Command, BuildError> {
    let walls = Walls {
        folder: scratch.path().to_owned(),
        readable: setup.interpreter.readable.clone(),
        memory_bytes: setup.limits.memory_bytes,
        file_bytes: setup.limits.file_bytes,
        permit_weak: setup.permit_weak_sandbox,
    };
    let walls = serde_json::to_string(&walls).map_err(|e| BuildError::Worker(e.to_string()))?;
    let search = std::env::join_paths(&setup.interpreter.search).map_err(|e| BuildError::Worker(e.to_string()))?;
    let mut command = setup.reexec.command("builder");
    command.arg(walls).arg(&setup.interpreter.program).args(["-P", "-m", "kernelopt.build"]);
    command.arg(scratch.path()).arg(setup.architecture.to_string());
    command.env_clear().envs(["PATH", "LD_LIBRARY_PATH"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.env("PYTHONPATH", search).envs(["HOME", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR"].map(|name| (name, scratch.path())));
    command.envs([
        // No device: nothing here may find one.
        ("CUDA_VISIBLE_DEVICES", ""),
        ("LC_ALL", "C.UTF-8"),
        // Libraries that start threads when they are imported would make forking unsafe.
        ("MKL_NUM_THREADS", "1"),
        ("OMP_NUM_THREADS", "1"),
        ("OPENBLAS_NUM_THREADS", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("PYTHONHASHSEED", "0"),
        ("USER", "builder"),
    ]);
    // Its own group: Ctrl-C in a terminal is for the agent, and the group is what is killed.
    command.process_group(0);
    Ok(command)
}

/// At most `most` workers; started when they are needed, kept warm.
#[derive(Debug)]
pub(super) struct Pool {
    setup: Setup,
    most: usize,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: VecDeque<Worker>,
    /// Workers that there are, busy or idle or being started.
    count: usize,
}

impl Pool {
    pub(super) fn new(setup: Setup, most: usize) -> Self {
        Self { setup, most: most.max(1), state: Mutex::default(), freed: Condvar::new() }
    }

    /// Runs `work` with a worker of its own; waits for one when all are busy. A worker that `work` found broken is thrown away.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Worker) -> (T, Condition)) -> Result<T, BuildError> {
        let mut place = Place { pool: self, worker: self.idle_worker() };
        if place.worker.is_none() {
            place.worker = Some(Worker::start(&self.setup)?);
        }
        let Some(worker) = place.worker.as_mut() else { return Err(BuildError::Worker("no worker".into())) };
        let (result, condition) = work(worker);
        if condition == Condition::Broken {
            place.worker = None;
        }
        Ok(result)
    }

    /// Starts workers until there are `most`, side by side.
    pub(super) fn warm_up(&self) -> Result<(), BuildError> {
        let missing = self.most - self.state().count.min(self.most);
        std::thread::scope(|scope| {
            let starts: Vec<_> = (0..missing).map(|_| scope.spawn(|| self.add())).collect();
            starts.into_iter().try_for_each(|start| start.join().unwrap_or_else(|_| Err(BuildError::Worker("a thread panicked".into()))))
        })
    }

    fn add(&self) -> Result<(), BuildError> {
        {
            let mut state = self.state();
            if state.count >= self.most {
                return Ok(());
            }
            state.count += 1;
        }
        let mut place = Place { pool: self, worker: None };
        place.worker = Some(Worker::start(&self.setup)?);
        Ok(())
    }

    /// An idle worker, or none together with the right to start one.
    fn idle_worker(&self) -> Option<Worker> {
        let mut state = self.state();
        loop {
            while let Some(mut worker) = state.idle.pop_back() {
                if worker.is_alive() {
                    return Some(worker);
                }
                state.count -= 1;
            }
            if state.count < self.most {
                state.count += 1;
                return None;
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves no half-made state behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It serves on.
    Well,
    /// It must not be used again.
    Broken,
}

/// A place in the pool, with its worker if there is one; given back however its holder ends.
struct Place<'a> {
    pool: &'a Pool,
    worker: Option<Worker>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        match self.worker.take() {
            Some(worker) => state.idle.push_back(worker),
            None => state.count -= 1,
        }
        drop(state);
        self.pool.freed.notify_one();
    }
}
