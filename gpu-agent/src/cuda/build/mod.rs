//! Triton and CUDA source to machine code, in sandboxed Python workers that stay warm; on hosts with or without a GPU.
//!
//! | module | noun |
//! |---|---|
//! | `interpreter` | the Python that workers run in |
//! | `launcher` | this program's side as a child: the walls, then Python |
//! | `worker` | one warm process, and the pool of them |
//! | `wire` | what is said between us and a worker |
//! | `cache` | answers by content, on disk |
//! | [`image`] | what a cubin says of itself |
//! | [`occupancy()`] | blocks of a kernel on a multiprocessor |
//!
//! The source's own Python runs only in a worker, in a forked process of its own, and what comes back is bytes for a
//! device. They are looked at again here: a kernel whose parameters are not the target's would make the driver read past them.

mod cache;
mod error;
pub mod image;
mod interpreter;
mod launcher;
mod occupancy;
mod wire;
mod worker;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kernelopt_shared::digest::Digest;
use kernelopt_shared::launch::Launch;
use kernelopt_shared::target::Language;
use serde::{Deserialize, Serialize};

pub use error::BuildError;
pub(crate) use launcher::become_worker;
pub use occupancy::{Limiter, Occupancy, occupancy};

use crate::cpu::child::Reexec;
use crate::cuda::device::Binary;
use cache::Cache;
use image::Image;
use interpreter::Interpreter;
use occupancy::Multiprocessor;
use wire::{Answer, Facts, Fault, Request};
use worker::{Condition, Pool, Setup};

/// More than any version of Triton appends.
const MAX_HIDDEN_POINTERS: u32 = 8;
/// Triton's type of an argument that the compiler fixed ([`kernelopt_shared::target::Target::fixed_arguments`]).
const FIXED: &str = "constexpr";
/// Part of every key of the cache: raised when an answer means something else than before.
const CACHE_FORMAT: &[u8] = b"1";

/// Bounds on a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildLimits {
    /// Longest that one may take.
    pub wall: Duration,
    /// Processor time of each of its processes, in seconds.
    pub cpu_seconds: u64,
    /// Private memory of each of its processes, in bytes; torch alone takes 0.8 GB of it.
    pub memory_bytes: u64,
    /// Largest file that it may write, in bytes.
    pub file_bytes: u64,
}

impl Default for BuildLimits {
    fn default() -> Self {
        Self { wall: Duration::from_secs(60), cpu_seconds: 60, memory_bytes: 8 << 30, file_bytes: 128 << 20 }
    }
}

/// What a builder is made with.
#[derive(Clone, Debug)]
pub struct BuilderOptions {
    /// How to run this program as a child, to confine the workers.
    pub reexec: Reexec,
    /// A Python with torch, triton and the `kernelopt` package.
    pub python: PathBuf,
    /// Folder for machine code; made if it is not there.
    pub cache: PathBuf,
    /// Most that the cache may hold, in bytes.
    pub cache_bytes: u64,
    /// Workers at most: one per core. Each takes about 0.4 GB of memory.
    pub workers: usize,
    /// Compute capability of the device times ten, 90 for an H200. From 90 on, code is built for that architecture's own features (`sm_90a`).
    pub architecture: u32,
    /// Bounds.
    pub limits: BuildLimits,
    /// Build where the kernel has no landlock, and so cannot keep a worker from files.
    pub permit_weak_sandbox: bool,
}

/// What to build.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// Triton or CUDA.
    pub language: Language,
    /// The module; the compiler's own text will do as it stands in its file.
    pub source: &'a str,
    /// Name and Triton's type (`*bf16`, `i64`) of the target's arguments, in call order. One that [`Launch::constants`] has
    /// too is fixed in the code and no argument of the binary ([`Order::arguments`]).
    pub signature: &'a [(&'a str, &'a str)],
    /// Entry, constants and warps; the grid plays no part.
    pub launch: &'a Launch,
    /// The kernel itself, or its truth.
    pub kind: Kind,
}

impl<'a> Order<'a> {
    /// Arguments that the binary takes, in order: those of the signature that are not fixed by a constant.
    pub fn arguments(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let constants = &self.launch.constants;
        self.signature.iter().copied().filter(|(name, _)| !constants.contains_key(*name))
    }
}

/// Which of a source's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As it stands.
    Kernel,
    /// Its float64 twin.
    Twin {
        /// What the kernel rounds to narrower types on its way is rounded in the twin too: values that it reads back from its own
        /// stores, and casts. Stores that nothing reads back stay unrounded. Where [`TwinFacts::roundings`] is zero, both twins are one.
        rounded: bool,
    },
}

/// What is to be known of a twin beside its binary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TwinFacts {
    /// Arguments, by the signature's names, whose buffers are float64 in the twin: all float buffers that the kernel writes.
    pub widened: Vec<String>,
    /// Those of them that the kernel reads too: before a launch they must hold the old contents, widened.
    pub inouts: Vec<String>,
    /// Places at which the rounded twin rounds and the other does not.
    pub roundings: u32,
    /// Constants that it was built with: those of the order, or a smaller block of a looped reduction, on which no grid depends.
    pub constants: BTreeMap<String, i64>,
}

/// Machine code that is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Built {
    /// Ready to be loaded.
    pub binary: Binary,
    /// Of a twin only.
    pub twin: Option<TwinFacts>,
    /// Time that building took.
    pub elapsed: Duration,
    /// True where nothing had to be compiled.
    pub cached: bool,
}

/// Builds kernels. Safe to share between threads, whose orders are served side by side.
#[derive(Debug)]
pub struct Builder {
    options: BuilderOptions,
    identity: Digest,
    pool: Pool,
    cache: Cache,
    /// Keys that some thread is at.
    under_way: Mutex<HashSet<Digest>>,
    done: Condvar,
}

impl Builder {
    /// Opens the cache and looks at the interpreter; workers start with the first orders, or with [`Builder::warm_up`].
    ///
    /// # Errors
    /// The interpreter lacks something ([`BuildError::Environment`]), or the cache cannot be opened.
    pub fn new(options: BuilderOptions) -> Result<Self, BuildError> {
        let interpreter = Interpreter::ask(&options.python)?;
        let identity = interpreter.identity;
        let cache =
            Cache::open(&options.cache, options.cache_bytes).map_err(|source| BuildError::Io { path: options.cache.clone(), source })?;
        let setup = Setup {
            reexec: options.reexec.clone(),
            interpreter,
            limits: options.limits,
            architecture: options.architecture,
            permit_weak_sandbox: options.permit_weak_sandbox,
            scratch: std::env::temp_dir(),
        };
        let pool = Pool::new(setup, options.workers);
        Ok(Self { options, identity, pool, cache, under_way: Mutex::default(), done: Condvar::new() })
    }

    /// What it was made with.
    pub fn options(&self) -> &BuilderOptions {
        &self.options
    }

    /// Starts all workers now, side by side: seconds each, most of them torch's.
    ///
    /// # Errors
    /// One does not start.
    pub fn warm_up(&self) -> Result<(), BuildError> {
        self.pool.warm_up()
    }

    /// The machine code of an order; built unless it is in the cache. Waits for a worker where all are busy.
    ///
    /// # Errors
    /// The source's own faults have a [verdict](BuildError::verdict).
    pub fn build(&self, order: &Order<'_>) -> Result<Built, BuildError> {
        if order.language == Language::Cpp {
            return Err(BuildError::Compiler { line: None, reason: "C++ is not for this device".into() });
        }
        let began = Instant::now();
        let request = Request::of(order, self.options.architecture, self.options.limits.cpu_seconds, self.options.limits.wall);
        let (answer, cubin, cached) = self.answer(&request)?;
        let facts = self.accept(answer, order.kind)?;
        let binary = Binary {
            cubin,
            entry: facts.entry,
            shared_bytes: facts.shared_bytes,
            threads: facts.threads,
            hidden_pointers: facts.hidden_pointers,
            registers: facts.registers,
            spill_bytes: facts.spill_bytes,
        };
        check(&binary, order, self.options.architecture)?;
        Ok(Built { binary, twin: facts.twin, elapsed: began.elapsed(), cached })
    }

    /// A cubin of all kernels of a CUDA source, for our own device code.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn build_module(&self, source: &str) -> Result<Vec<u8>, BuildError> {
        let (constants, divisible) = Default::default();
        let request = Request {
            language: Language::Cuda.name(),
            source,
            architecture: self.options.architecture,
            kind: "module",
            cpu_seconds: self.options.limits.cpu_seconds,
            wall_seconds: self.options.limits.wall.as_secs_f64(),
            entry: "",
            signature: &[],
            constants: &constants,
            divisible_by_16: &divisible,
            num_warps: 1,
            num_stages: 1,
            rounded: false,
        };
        let (answer, cubin, _) = self.answer(&request)?;
        self.accept(answer, Kind::Kernel)?;
        Ok(cubin)
    }

    /// From the cache or from a worker; one thread at a time for one key.
    fn answer(&self, request: &Request<'_>) -> Result<(Answer, Vec<u8>, bool), BuildError> {
        let key = self.key(request)?;
        let _turn = self.turn(key);
        if let Some((answer, cubin)) = self.cache.get(key) {
            return Ok((answer, cubin, true));
        }
        let (answer, cubin) = self.ask(request)?;
        if answer.is_lasting()
            && let Err(error) = self.cache.put(key, &answer, &cubin)
        {
            // A full disk costs the next one its time, and this one nothing.
            tracing::warn!("{}: a build is not kept: {error}", self.options.cache.display());
        }
        Ok((answer, cubin, false))
    }

    /// A worker that dies or falls silent is replaced and asked once more: it may have died of the order before.
    fn ask(&self, request: &Request<'_>) -> Result<(Answer, Vec<u8>), BuildError> {
        let mut last = String::new();
        for _ in 0..2 {
            let asked = self.pool.with(|worker| {
                if request.language == Language::Triton.name()
                    && let Some(lack) = worker.lacks_triton()
                {
                    let fault = Fault { reason: lack.to_owned(), line: None };
                    return (Ok((Answer::Environment(fault), Vec::new())), Condition::Well);
                }
                let asked = worker.ask(request, self.options.limits.wall);
                let condition = if asked.is_ok() { Condition::Well } else { Condition::Broken };
                (asked, condition)
            })?;
            match asked {
                Ok(answer) => return Ok(answer),
                Err(reason) => last = reason,
            }
        }
        Err(BuildError::Stopped(format!("its worker ended twice: {last}")))
    }

    fn accept(&self, answer: Answer, kind: Kind) -> Result<Facts, BuildError> {
        let twin = matches!(kind, Kind::Twin { .. });
        match answer {
            Answer::Built(facts) => Ok(facts),
            Answer::Environment(fault) => Err(BuildError::Environment {
                what: fault.reason,
                remedy: "Install what is missing into the Python that KERNELOPT_PYTHON names; `kernelopt doctor` looks at it.".into(),
            }),
            // A source that trips the builder up is not worth a job.
            Answer::Internal(Fault { reason, line }) if !twin => Err(BuildError::Compiler { line, reason }),
            Answer::Internal(fault) => Err(BuildError::Worker(fault.reason)),
            Answer::Refused(Fault { reason, line }) => Err(BuildError::Refused { line, reason }),
            // A twin's own text is ours: that it does not compile is no fault of the kernel.
            Answer::Compiler(Fault { reason, line })
            | Answer::Crashed(Fault { reason, line })
            | Answer::Stopped(Fault { reason, line })
                if twin =>
            {
                Err(BuildError::Untwinned { line, reason })
            }
            Answer::Untwinned(Fault { reason, line }) => Err(BuildError::Untwinned { line, reason }),
            Answer::Compiler(Fault { reason, line }) | Answer::Crashed(Fault { reason, line }) => {
                Err(BuildError::Compiler { line, reason })
            }
            Answer::Stopped(fault) => Err(BuildError::Stopped(fault.reason)),
        }
    }

    fn key(&self, request: &Request<'_>) -> Result<Digest, BuildError> {
        let bounded = Request { cpu_seconds: 0, wall_seconds: 0.0, source: request.source, ..*request };
        let request = serde_json::to_vec(&bounded).map_err(|e| BuildError::Worker(e.to_string()))?;
        Ok(Digest::of([CACHE_FORMAT, self.identity.to_string().as_bytes(), &request]))
    }

    /// Waits until no other thread is at the key.
    fn turn(&self, key: Digest) -> Turn<'_> {
        // A panic elsewhere leaves a set that is whole.
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        while !under_way.insert(key) {
            under_way = self.done.wait(under_way).unwrap_or_else(PoisonError::into_inner);
        }
        Turn { builder: self, key }
    }
}

/// The right to work on a key.
struct Turn<'a> {
    builder: &'a Builder,
    key: Digest,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.builder.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        self.builder.done.notify_all();
    }
}

/// Can the binary be launched in the target's place?
fn check(binary: &Binary, order: &Order<'_>, architecture: u32) -> Result<(), BuildError> {
    let refuse = |reason: String| Err(BuildError::Compiler { line: None, reason });
    let image = match Image::read(&binary.cubin) {
        Ok(image) => image,
        Err(error) => return refuse(error.to_string()),
    };
    let Some(kernel) = image.kernels.get(&binary.entry) else { return refuse(format!("no kernel {} was made", binary.entry)) };
    let mut wanted = Vec::new();
    for (name, kind) in order.arguments() {
        match size_bytes(kind) {
            Some(bytes) => wanted.push((name, bytes)),
            None if kind == FIXED => {
                return refuse(format!("{name} is fixed by the compiler: the launch must have it among its constants"));
            }
            None => return refuse(format!("{name} has type {kind}, which no launch can pass")),
        }
    }
    if binary.hidden_pointers > MAX_HIDDEN_POINTERS {
        return refuse(format!("{} hidden pointers", binary.hidden_pointers));
    }
    wanted.extend((0..binary.hidden_pointers).map(|_| ("a hidden pointer", 8)));
    if kernel.parameters.len() != wanted.len() {
        return refuse(format!("{} takes {} arguments; the target has {}", binary.entry, kernel.parameters.len(), wanted.len()));
    }
    if let Some(((name, bytes), found)) = wanted.iter().zip(&kernel.parameters).find(|((_, bytes), found)| bytes != *found) {
        return refuse(format!("{} takes {found} bytes where the target passes {name} in {bytes}", binary.entry));
    }
    let shared = binary.shared_bytes.saturating_add(kernel.static_shared_bytes);
    match Multiprocessor::of(architecture) {
        Some(sm) if shared > sm.block_shared_bytes => {
            refuse(format!("{shared} bytes of shared memory; a block of sm_{architecture} has {}", sm.block_shared_bytes))
        }
        _ => Ok(()),
    }
}

/// Bytes of an argument by Triton's name of its type.
fn size_bytes(kind: &str) -> Option<u32> {
    match kind {
        _ if kind.starts_with('*') => Some(8),
        "i64" | "u64" | "fp64" => Some(8),
        "i32" | "u32" | "fp32" => Some(4),
        "i16" | "u16" => Some(2),
        "i8" | "u8" | "i1" => Some(1),
        _ => None,
    }
}
