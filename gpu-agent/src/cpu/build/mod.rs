//! Source to shared library: screened, compiled in a confined process with bounds on everything, kept by content.
//!
//! ```text
//! CACHE/
//!   ab/abcdef....so       library of one translation unit under one toolchain
//!   prefix-0123..../      Inductor's prefix header, precompiled (prefix-0123.....lock while one process is at it)
//!   work-XXXXXX/          a build under way; its own temporary files; gone afterwards
//! ```
//!
//! Files appear whole or not at all (rename), so several processes may share one cache.

mod compile;
mod entry;
mod lexer;
mod prefix;
mod screen;
mod toolchain;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kernelopt_shared::digest::Digest;
use kernelopt_shared::meaning::Argument;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::verdict::Verdict;

pub use entry::SignatureError;
pub use screen::{MAX_SOURCE_BYTES, Refusal, screen};
pub use toolchain::{OUTPUT, SOURCE, Toolchain, ToolchainError};

use super::child::Reexec;
use super::child::confine::{Confine, NOT_STARTED};
use compile::{Outcome, Stream};

/// Text of the compiler that a verdict carries, in bytes.
const QUOTED_BYTES: usize = 4 << 10;

/// Bounds on one run of the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildLimits {
    /// Longest that it may take.
    pub wall: Duration,
    /// Processor time of each of its processes, in seconds.
    pub cpu_seconds: u64,
    /// Address space of each of its processes, in bytes.
    pub memory_bytes: u64,
    /// Largest file that it may write, in bytes.
    pub file_bytes: u64,
}

impl Default for BuildLimits {
    fn default() -> Self {
        Self { wall: Duration::from_secs(60), cpu_seconds: 60, memory_bytes: 4 << 30, file_bytes: 256 << 20 }
    }
}

/// What a builder is made with.
#[derive(Clone, Debug)]
pub struct BuilderOptions {
    /// How to run this program as a child, to confine the compiler.
    pub reexec: Reexec,
    /// Compiler and command.
    pub toolchain: Toolchain,
    /// Folder for libraries; made if it is not there.
    pub cache: PathBuf,
    /// Bounds.
    pub limits: BuildLimits,
    /// Compile where the kernel has no landlock, and so cannot keep the compiler from writing elsewhere.
    pub permit_weak_sandbox: bool,
}

/// Builds candidates. Safe to share between threads.
#[derive(Debug)]
pub struct Builder {
    options: BuilderOptions,
    stop: Stop,
}

/// A library that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// Absolute path; the file never changes.
    pub library: PathBuf,
    /// True where nothing had to be compiled.
    pub cached: bool,
    /// Time that building took.
    pub elapsed: Duration,
}

/// Why there is no library.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The source breaks a rule.
    #[error("refused before compiling: {0}")]
    Refused(#[from] Refusal),
    /// The compiler said no.
    #[error("{0}")]
    Compiler(String),
    /// The compiler took too long, or too much.
    #[error("the compiler was stopped: {0}")]
    Stopped(String),
    /// The target's signature is not one that can be called.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The compiler could not be started.
    #[error("the compiler could not be started: {0}")]
    NotStarted(String),
    /// The cache folder.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
}

impl BuildError {
    /// The verdict on the candidate; none where the error is not its own.
    pub fn verdict(&self) -> Option<Verdict> {
        let reason = self.to_string();
        match self {
            Self::Refused(_) => Some(Verdict::Rejected { reason }),
            Self::Compiler(_) | Self::Stopped(_) => Some(Verdict::BuildFailed { reason }),
            Self::Signature(_) | Self::NotStarted(_) | Self::Io { .. } => None,
        }
    }
}

impl Builder {
    /// Opens the cache, making its folder.
    pub fn new(options: BuilderOptions) -> Result<Self, BuildError> {
        let made = fs::create_dir_all(&options.cache).and_then(|()| options.cache.canonicalize());
        let cache = made.map_err(|source| BuildError::Io { path: options.cache.clone(), source })?;
        Ok(Self { options: BuilderOptions { cache, ..options }, stop: Stop::default() })
    }

    /// The same; a compiler that runs is killed soon after `stop` is asked, and its build ends with [`BuildError::Stopped`].
    pub fn ends_with(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    /// What it was made with; the cache's path is absolute.
    pub fn options(&self) -> &BuilderOptions {
        &self.options
    }

    /// The library of `source`, whose `kernel` has the given signature; compiled unless it is in the cache.
    pub fn build(&self, source: &str, signature: &[Argument]) -> Result<Built, BuildError> {
        let began = Instant::now();
        screen(source)?;
        let unit = entry::compose(source, signature)?;
        let identity = self.options.toolchain.identity().to_string();
        let name = Digest::of([identity.as_bytes(), unit.as_bytes()]).to_string();
        let folder = self.options.cache.join(&name[..2]);
        let library = folder.join(format!("{name}.so"));
        let cached = library.is_file();
        if !cached {
            fs::create_dir_all(&folder).map_err(|source| BuildError::Io { path: folder, source })?;
            self.compile(&unit, &library)?;
        }
        Ok(Built { library, cached, elapsed: began.elapsed() })
    }

    fn compile(&self, unit: &str, library: &Path) -> Result<(), BuildError> {
        let prefix = self.prefix_header()?;
        let work = self.workshop()?;
        let io_error = |path: &Path| {
            let path = path.to_owned();
            move |source| BuildError::Io { path, source }
        };
        let (source, output) = (work.path().join("candidate.cpp"), work.path().join("candidate.so"));
        fs::write(&source, unit).map_err(io_error(&source))?;
        let words = self.options.toolchain.command(&source, &output, prefix.as_deref());
        self.run(&words, work.path(), self.options.limits)?;
        fs::rename(&output, library).map_err(io_error(library))
    }

    /// A fresh folder on the cache's own file system, so that results can be renamed out of it.
    fn workshop(&self) -> Result<tempfile::TempDir, BuildError> {
        let cache = &self.options.cache;
        tempfile::Builder::new().prefix("work-").tempdir_in(cache).map_err(|source| BuildError::Io { path: cache.clone(), source })
    }

    /// One confined run of the compiler.
    fn run(&self, words: &[String], folder: &Path, limits: BuildLimits) -> Result<(), BuildError> {
        let confine = Confine {
            folder: folder.to_owned(),
            memory_bytes: limits.memory_bytes,
            cpu_seconds: limits.cpu_seconds,
            file_bytes: limits.file_bytes,
            permit_weak: self.options.permit_weak_sandbox,
        };
        let mut command = self.options.reexec.command("confine");
        command.args(confine.words()).args(words).env_clear().env("LC_ALL", "C");
        command.envs(["PATH", "LD_LIBRARY_PATH"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        let outcome =
            compile::run(&mut command, limits.wall, Stream::Errors, &self.stop).map_err(|e| BuildError::NotStarted(e.to_string()))?;
        conclude(outcome, folder, limits)
    }
}

fn conclude(outcome: Outcome, folder: &Path, limits: BuildLimits) -> Result<(), BuildError> {
    let Some(status) = outcome.status else {
        return Err(BuildError::Stopped(format!("it took longer than {} s", limits.wall.as_secs())));
    };
    let text = quote(&outcome.text.replace(&format!("{}/", folder.display()), ""));
    match status.code() {
        Some(0) => Ok(()),
        Some(code) if code == i32::from(NOT_STARTED) => Err(BuildError::NotStarted(text)),
        // The driver's words for a compiler that ran into a limit.
        _ if ["Killed signal", "CPU time limit", "virtual memory exhausted", "out of memory", "File size limit"]
            .iter()
            .any(|w| text.contains(w)) =>
        {
            Err(BuildError::Stopped(text))
        }
        Some(_) => Err(BuildError::Compiler(text)),
        None => Err(BuildError::Stopped(format!("{status} {text}"))),
    }
}

/// At most [`QUOTED_BYTES`]: the errors where not everything fits.
fn quote(text: &str) -> String {
    let text = text.trim();
    if text.len() <= QUOTED_BYTES {
        return text.to_owned();
    }
    let mut quoted = String::new();
    for line in text.lines().filter(|line| line.contains("error")) {
        let line: String = line.chars().take(400).collect();
        if quoted.len() + line.len() + 1 > QUOTED_BYTES {
            break;
        }
        quoted.push_str(&line);
        quoted.push('\n');
    }
    if quoted.is_empty() { text.chars().take(QUOTED_BYTES / 4).collect() } else { quoted.trim_end().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_their_errors() {
        assert_eq!(quote(" short \n"), "short");
        let text = format!("{}x.cpp:3: error: no\n{}", "note: chatter\n".repeat(2000), "more\n".repeat(2000));
        assert_eq!(quote(&text), "x.cpp:3: error: no");
        let errors = "error: again\n".repeat(2000);
        assert!(quote(&errors).len() <= QUOTED_BYTES);
        assert!(!quote(&"é".repeat(5000)).is_empty());
    }
}
