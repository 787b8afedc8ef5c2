//! Python as a child process: the parts that need torch.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kernelopt_shared::exit::ExitCode;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::task::{AgentError, GraphProfile};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Environment variable that names the interpreter.
pub const PYTHON_VARIABLE: &str = "KERNELOPT_PYTHON";
/// Greatest answer that is read, in bytes.
const MAX_ANSWER_BYTES: u64 = 256 << 20;
/// How much of what Python wrote to stderr an error repeats, in bytes.
const STDERR_TAIL_BYTES: usize = 2000;

/// Longest test of the interpreter.
const CANARY_LIMIT: Duration = Duration::from_secs(150);
/// Longest profile.
const PROFILE_LIMIT: Duration = Duration::from_secs(1200);

/// What `python -m kernelopt profile` prints.
#[derive(Deserialize)]
struct Profile {
    graphs: Vec<GraphProfile>,
}

/// What `python -m kernelopt canary` prints.
#[derive(Deserialize)]
struct Canary {
    right: bool,
}

/// An interpreter that has torch and the `kernelopt` package.
#[derive(Clone, Debug)]
pub struct Python {
    interpreter: PathBuf,
    /// UUID of the only GPU that it sees; none for those that this process sees.
    gpu: Option<String>,
}

impl Python {
    /// The interpreter named by [`PYTHON_VARIABLE`]; else that of the virtual environment in force or in the working
    /// folder; else `python3`.
    pub fn find() -> Self {
        let named = std::env::var_os(PYTHON_VARIABLE).map(PathBuf::from);
        let active = std::env::var_os("VIRTUAL_ENV").map(|root| Path::new(&root).join("bin/python"));
        let local = Some(PathBuf::from(".venv/bin/python"));
        let present = [active, local].into_iter().flatten().find(|path| path.exists());
        Self { interpreter: named.or(present).unwrap_or_else(|| "python3".into()), gpu: None }
    }

    /// The same with one GPU in sight, which is its `cuda:0`: what a bundle's tensors name.
    pub fn on_gpu(self, uuid: &str) -> Self {
        Self { gpu: Some(uuid.to_owned()), ..self }
    }

    /// The interpreter's path.
    pub fn interpreter(&self) -> &Path {
        &self.interpreter
    }

    /// Measures the model in `bundle` as compiled: `python -m kernelopt profile`.
    ///
    /// # Errors
    /// As [`Python::json`].
    pub fn profile(&self, bundle: &Path, stop: &Stop) -> Result<Vec<GraphProfile>, AgentError> {
        let profile: Profile = self.json(&["profile".as_ref(), bundle.as_os_str()], PROFILE_LIMIT, stop)?;
        Ok(profile.graphs)
    }

    /// Has it compile something small for `cpu` or `cuda`: `python -m kernelopt canary`.
    ///
    /// # Errors
    /// As [`Python::json`]; a compiled function that computes something else is an error too.
    pub fn canary(&self, device: &str, stop: &Stop) -> Result<(), AgentError> {
        let sung: Canary = self.json(&["canary".as_ref(), "--device".as_ref(), device.as_ref()], CANARY_LIMIT, stop)?;
        if sung.right { Ok(()) } else { Err(AgentError::Internal("a compiled function is wrong".into())) }
    }

    /// Runs `python -m kernelopt ARGS...` and decodes the JSON that it prints.
    ///
    /// # Errors
    /// It cannot be started, ends with a failure, takes longer than `limit`, or prints something else; [`AgentError::Stopped`]
    /// when `stop` is asked, within a tenth of a second.
    pub fn json<T: DeserializeOwned>(&self, args: &[&std::ffi::OsStr], limit: Duration, stop: &Stop) -> Result<T, AgentError> {
        let doing = format!("{} -m kernelopt {}", self.interpreter.display(), args.first().map_or("".into(), |a| a.to_string_lossy()));
        let io = |source| AgentError::Io { doing: doing.clone(), source };
        let (mut stdout, mut stderr) = (tempfile::tempfile().map_err(io)?, tempfile::tempfile().map_err(io)?);
        let child = Command::new(&self.interpreter)
            .args(["-m", "kernelopt"])
            .args(args)
            .envs(self.gpu.iter().map(|uuid| ("CUDA_VISIBLE_DEVICES", uuid)))
            .stdin(Stdio::null())
            .stdout(stdout.try_clone().map_err(io)?)
            .stderr(stderr.try_clone().map_err(io)?)
            .spawn()
            .map_err(|source| AgentError::Environment {
                what: format!("{}: {source}", self.interpreter.display()),
                remedy: format!("Set {PYTHON_VARIABLE} to a Python that has torch, or run `kernelopt doctor`."),
            })?;
        let status = wait(child, limit, stop, &doing)?;
        if stop.asked() || status.code() == Some(ExitCode::Interrupted as i32) {
            // Ctrl-C in a terminal reaches Python as well, and it may end first.
            return Err(AgentError::Stopped);
        }
        if !status.success() {
            let tail = tail_of(&mut stderr).map_err(io)?;
            return Err(AgentError::Environment {
                what: format!("{doing} ended with {status}:\n{tail}"),
                remedy: "Run `kernelopt doctor` to see whether this Python has what is needed.".into(),
            });
        }
        let answer = read_bounded(&mut stdout).map_err(io)?;
        serde_json::from_str(&answer).map_err(|e| AgentError::Internal(format!("{doing} printed no answer that can be read: {e}")))
    }
}

/// A child that is killed when it is not waited for.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait(child: Child, limit: Duration, stop: &Stop, doing: &str) -> Result<std::process::ExitStatus, AgentError> {
    let mut child = KillOnDrop(child);
    let started = Instant::now();
    loop {
        if let Some(status) = child.0.try_wait().map_err(|source| AgentError::Io { doing: doing.into(), source })? {
            return Ok(status);
        }
        if stop.asked() {
            return Err(AgentError::Stopped);
        }
        if started.elapsed() > limit {
            return Err(AgentError::Internal(format!("{doing} did not end within {} s", limit.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn read_bounded(file: &mut File) -> std::io::Result<String> {
    file.rewind()?;
    let mut text = String::new();
    file.take(MAX_ANSWER_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn tail_of(file: &mut File) -> std::io::Result<String> {
    let length = file.metadata()?.len();
    file.seek(std::io::SeekFrom::Start(length.saturating_sub(STDERR_TAIL_BYTES as u64)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}
