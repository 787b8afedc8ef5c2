//! The agent for one GPU of this host. It holds no context of its own: that is the runner process's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::exit::UserError;
use kernelopt_shared::launch::Launch;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::{Agent, AgentError, BandwidthCurve, BuildAhead, Depth, Evaluate, ModelCheck, ModelProfile};
use kernelopt_shared::verdict::{CodeFacts, Evidence, Outcome, Verdict};

use super::build::{self, BuildError, Builder, BuilderOptions, Kind, Order};
use super::device::{Binary, DeviceFacts};
use super::ops;
use super::order::{self, Built, Judge, OpenTarget, Request, Response, Twin};
use super::process::{Death, Process};
use crate::cpu::child::Reexec;
use crate::lock;
use crate::python::Python;

/// Most that the cache of built kernels may hold, in bytes.
const CACHE_BYTES: u64 = 4 << 30;
/// Time between two looks for a stop while something is built.
const STOP_LOOK: Duration = Duration::from_millis(100);
/// Longest that the device may take to start and to be described.
const STARTING: Duration = Duration::from_secs(60);
/// Longest that the compiler's own kernel may take to be run and examined.
const OPENING: Duration = Duration::from_secs(60);
/// Longest evaluation, besides [`LAUNCHES`] of the compiler's kernel: the longest effort is a few seconds; what takes longer hangs.
const JUDGING: Duration = Duration::from_secs(15);
/// Launches of candidate, compiler's kernel and twin in the longest evaluation, several times over.
const LAUNCHES: f64 = 2000.0;

/// Candidates at a time: the device waits for the first build of each, about as long as two short looks take.
pub(crate) const BATCH: u16 = 12;
/// Time that the whole-model check measures: a GPU's clock is steady.
const GATE_SECONDS: u32 = 8;

/// What a GPU agent is made with.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// How to run this program again as a child.
    pub reexec: Reexec,
    /// Folder for built kernels.
    pub cache: PathBuf,
    /// The interpreter with torch and triton.
    pub python: Python,
    /// Which of the GPUs that this process may use.
    pub ordinal: usize,
}

/// Judges Triton and CUDA candidates on one GPU.
pub struct CudaAgent {
    options: CudaOptions,
    facts: DeviceFacts,
    builder: Arc<Builder>,
    ops: PathBuf,
    process: Option<Process>,
    bandwidth: BandwidthCurve,
    open: Option<Open>,
    stop: Stop,
}

/// The target at hand.
struct Open {
    target: Box<Target>,
    launch: Duration,
}

impl CudaAgent {
    /// An agent for the GPU that the options name.
    ///
    /// # Errors
    /// There is no such GPU, no driver, or no Python that can build for it.
    pub fn new(options: CudaOptions, stop: Stop) -> Result<Self, AgentError> {
        let facts = super::devices::nth(&options.reexec, options.ordinal)?;
        Self::on(facts, options, stop)
    }

    /// The same for a GPU that was found before, by [`super::devices::nth`] with the same options.
    ///
    /// # Errors
    /// The GPU is lost by now, or there is no Python that can build for it.
    pub fn on(facts: DeviceFacts, mut options: CudaOptions, stop: Stop) -> Result<Self, AgentError> {
        if options.ordinal > 0 {
            // Whoever has one GPU in sight needs nothing hidden, and an instance of a GPU goes by another name there.
            options.python = options.python.on_gpu(&facts.uuid);
        }
        let builder = Builder::new(BuilderOptions {
            reexec: options.reexec.clone(),
            python: options.python.interpreter().to_owned(),
            cache: options.cache.clone(),
            cache_bytes: CACHE_BYTES,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            architecture: facts.architecture,
            limits: Default::default(),
            permit_weak_sandbox: false,
        })
        .map_err(|e| not_the_candidate(&e))?;
        let ops = write_ops(&builder, &options.cache)?;
        let (builder, bandwidth) = (Arc::new(builder), BandwidthCurve::default());
        start_workers(&builder)?;
        let mut agent = Self { options, facts, builder, ops, process: None, bandwidth, open: None, stop };
        let described = agent.locked(|agent| agent.ask(&Request::Describe, STARTING))?;
        match described.map_err(|death| agent.lost(&death))? {
            Response::Described { facts, bandwidth } => (agent.facts, agent.bandwidth) = (facts, bandwidth),
            other => return Err(agent.unexpected(other)),
        }
        Ok(agent)
    }

    /// Does `work` while no other agent of this host measures on the GPU.
    fn locked<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> Result<T, AgentError> {
        let lock = lock::take_turn(&self.facts.uuid, &self.stop)?;
        let done = work(self);
        drop(lock);
        Ok(done)
    }

    /// Asks the runner, which is started where there is none.
    fn ask(&mut self, request: &Request, patience: Duration) -> Result<Response, Death> {
        let process = match &mut self.process {
            Some(process) => process,
            none => {
                let ops = self.ops.to_string_lossy();
                let started = Process::start(&self.options.reexec, &["gpu", &self.facts.uuid, &ops]);
                let process = started.map_err(|e| Death::Protocol { detail: e.to_string(), phase: "starting".into() })?;
                none.insert(process.ends_with(self.stop.clone()))
            }
        };
        let answer = process.call(request, patience);
        let lost = match &answer {
            Ok(Response::Judged { lost, .. } | Response::Baseline { lost, .. } | Response::Failed { lost, .. }) => *lost,
            Ok(Response::Described { .. } | Response::Opened { .. }) => false,
            Err(_) => true,
        };
        if lost {
            self.restart();
        }
        answer
    }

    /// Ends the runner: its memory is given back, and the next question starts another.
    fn restart(&mut self) {
        self.process = None;
        self.open = None;
    }

    fn lost(&self, death: &Death) -> AgentError {
        if self.stop.asked() {
            return AgentError::Stopped;
        }
        AgentError::Environment {
            what: format!("{}: the process that owns it {death}", self.facts.name),
            remedy: "Run `kernelopt doctor`; if nvidia-smi does not answer either, the GPU must be reset. Then go on with --resume.".into(),
        }
    }

    fn unexpected(&self, response: Response) -> AgentError {
        match response {
            Response::Failed { what, .. } => AgentError::Environment {
                what: format!("{}: {what}", self.facts.name),
                remedy: "Run `kernelopt doctor` to see what is wrong with the GPU; then go on with --resume.".into(),
            },
            other => AgentError::Internal(format!("an answer out of turn: {other:?}")),
        }
    }

    /// The evidence of a verdict that rests on no measurement.
    fn no_samples(&self, seed: u64) -> Evidence {
        Evidence { seed, device: self.facts.name.clone(), ..Default::default() }
    }

    fn builds(&self) -> Builds {
        Builds { builder: self.builder.clone(), stop: self.stop.clone() }
    }

    /// Builds the candidate, waiting on another thread's behalf, so that a stop is heard.
    fn build_unless_stopped(&self, work: &Evaluate<'_>) -> Result<Result<Vec<build::Built>, BuildError>, AgentError> {
        let (builder, target, candidate) = (self.builder.clone(), work.target.clone(), work.candidate.clone());
        let (answer, answered) = mpsc::sync_channel(1);
        // Nobody listens to a build that was given up.
        let build = move || drop(answer.send(build_all(&builder, &target, &candidate)));
        let started = std::thread::Builder::new().name("build".into()).spawn(build);
        started.map_err(|source| AgentError::Io { doing: "starting a thread".into(), source })?;
        loop {
            match answered.recv_timeout(STOP_LOOK) {
                Ok(built) => return Ok(built),
                Err(RecvTimeoutError::Timeout) if self.stop.asked() => return Err(AgentError::Stopped),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(AgentError::Internal("a build ended without an answer".into())),
            }
        }
    }

    /// Makes `target` the one at hand.
    fn open(&mut self, target: &Target, seed: u64) -> Result<(), AgentError> {
        let launch = launch_of(&target.baseline).map_err(|what| AgentError::Baseline { kernel: target.kernel.clone(), what })?;
        let fail = |e: BuildError| match e {
            BuildError::Environment { .. } | BuildError::Io { .. } | BuildError::Worker(_) => not_the_candidate(&e),
            other => AgentError::Baseline { kernel: target.kernel.clone(), what: format!("cannot be built: {other}") },
        };
        let build = |kind| build_one(&self.builder, target, &target.baseline, launch, kind).map_err(fail);
        let kernel = build(Kind::Kernel)?;
        let twin = build(Kind::Twin { rounded: false })?;
        let rounds = twin.twin.as_ref().is_some_and(|facts| facts.roundings > 0);
        let rounded = rounds.then(|| build(Kind::Twin { rounded: true })).transpose()?;
        let order = OpenTarget {
            target: target.clone(),
            baseline: Built { binary: kernel.binary, launch: launch.clone() },
            twin: twin_of(twin, launch),
            rounded: rounded.map(|built| twin_of(built, launch)),
            bandwidth: self.bandwidth.clone(),
            seed,
        };
        match self.ask(&Request::Open(Box::new(order)), OPENING) {
            Ok(Response::Opened { launch_ns }) => {
                self.open = Some(Open { target: Box::new(target.clone()), launch: Duration::from_nanos(launch_ns as u64) });
                Ok(())
            }
            Ok(Response::Baseline { what, .. }) => Err(AgentError::Baseline { kernel: target.kernel.clone(), what }),
            Ok(other) => Err(self.unexpected(other)),
            Err(Death::Hung { waited, .. }) => {
                let what = format!("did not come to an end within {:.0} s", waited.as_secs_f64());
                Err(AgentError::Baseline { kernel: target.kernel.clone(), what })
            }
            Err(death) => Err(self.lost(&death)),
        }
    }

    fn judge(&mut self, work: &Evaluate<'_>, candidate: order::Candidate) -> Result<(Verdict, Evidence), AgentError> {
        if work.depth == Depth::Confirm {
            // From scratch: a fresh context, fresh memory, fresh inputs of the opening.
            self.restart();
        }
        // A kernel of the same meaning elsewhere in the model may have other outputs that count, and other inputs.
        if self.open.as_ref().is_none_or(|open| *open.target != *work.target) {
            self.open(work.target, work.seed)?;
        }
        let patience = JUDGING + self.open.as_ref().map_or(Duration::ZERO, |open| open.launch.mul_f64(LAUNCHES));
        let order = Judge { candidate, depth: work.depth, seed: work.seed };
        let answer = self.ask(&Request::Judge(Box::new(order)), patience);
        if self.stop.asked() {
            return Err(AgentError::Stopped);
        }
        match answer {
            Ok(Response::Judged { verdict, evidence, .. }) => Ok((verdict, *evidence)),
            Ok(Response::Baseline { what, .. }) => Err(AgentError::Baseline { kernel: work.target.kernel.clone(), what }),
            Ok(other) => Err(self.unexpected(other)),
            Err(Death::Hung { waited, .. }) => Ok((Verdict::Hung { waited_ms: waited.as_millis() as u64 }, self.no_samples(work.seed))),
            Err(death @ Death::Crashed { .. }) => Ok((Verdict::Crashed { reason: death.to_string() }, self.no_samples(work.seed))),
            Err(death) => Err(self.lost(&death)),
        }
    }
}

/// What the driver of this device is to launch first, of a candidate for it.
fn launch_of(candidate: &Candidate) -> Result<&Launch, String> {
    candidate.launch.as_ref().ok_or_else(|| "has no launch: the capture had no GPU on which the compiler could choose one".into())
}

/// Machine code for every launch of a candidate.
fn build_all(builder: &Builder, target: &Target, candidate: &Candidate) -> Result<Vec<build::Built>, BuildError> {
    let refused = |reason| BuildError::Refused { line: None, reason };
    launch_of(candidate).map_err(refused)?;
    candidate.check_launches(&target.meaning).map_err(|e| refused(e.to_string()))?;
    candidate.launches().map(|launch| build_one(builder, target, candidate, launch, Kind::Kernel)).collect()
}

fn build_one(builder: &Builder, target: &Target, candidate: &Candidate, launch: &Launch, kind: Kind) -> Result<build::Built, BuildError> {
    let signature = candidate.signature(launch, &target.meaning).map_err(|e| BuildError::Refused { line: None, reason: e.to_string() })?;
    builder.build(&Order { language: candidate.language, source: &candidate.source, signature: &signature, launch, kind })
}

fn twin_of(built: build::Built, launch: &Launch) -> Twin {
    let facts = built.twin.unwrap_or_default();
    let launch = Launch { constants: facts.constants, ..launch.clone() };
    Twin { built: Built { binary: built.binary, launch }, widened: facts.widened.into_iter().collect() }
}

/// The optimised file says of the target's arguments what the compiler said of them, and no more; scratch is aligned in any case.
fn claims_too_much(candidate: &Candidate, target: &Target) -> Option<Verdict> {
    let known = target.baseline.launch.as_ref().map(|launch| &launch.divisible_by_16);
    let is_scratch = |name: &str| candidate.scratch.iter().any(|scratch| scratch.name == name);
    let mut claimed = candidate.launches().flat_map(|launch| &launch.divisible_by_16).filter(|name| !is_scratch(name));
    let unknown = claimed.find(|name| known.is_none_or(|known| !known.contains(*name)))?;
    Some(Verdict::Rejected { reason: format!("it takes {unknown} for a multiple of 16, which the compiler does not") })
}

/// Of a kernel that the model's author wrote only the launch is searched: nothing but its own text says what it means.
fn changes_the_authors_text(candidate: &Candidate, target: &Target) -> Option<Verdict> {
    let changes = target.meaning.program.is_some() && candidate.source != target.baseline.source;
    changes.then(|| Verdict::Rejected { reason: "it changes the text of a kernel that the model's author wrote".into() })
}

fn code_facts(binary: &Binary, architecture: u32) -> CodeFacts {
    let occupancy = build::occupancy(binary, architecture);
    CodeFacts {
        registers: binary.registers,
        spill_bytes: binary.spill_bytes,
        shared_bytes: binary.shared_bytes,
        occupancy: occupancy.as_ref().map(|occupancy| occupancy.warps),
        limiter: occupancy.map(|occupancy| occupancy.limiter.name().to_owned()),
    }
}

fn not_the_candidate(error: &BuildError) -> AgentError {
    let remedy = error.remedy().unwrap_or_else(|| "Run `kernelopt doctor` to see what is missing.".into());
    AgentError::Environment { what: error.to_string(), remedy }
}

/// Starts the builders' workers while the model is profiled; whoever needs one before that waits.
fn start_workers(builder: &Arc<Builder>) -> Result<(), AgentError> {
    let builder = builder.clone();
    let work = move || {
        // A worker that does not start is told of by the first build.
        let _ = builder.warm_up();
    };
    let started = std::thread::Builder::new().name("warm-up".into()).spawn(work);
    started.map(drop).map_err(|source| AgentError::Io { doing: "starting a thread".into(), source })
}

/// Builds our own kernels for the device and keeps them in a file that the runner reads.
fn write_ops(builder: &Builder, cache: &Path) -> Result<PathBuf, AgentError> {
    let cubin = builder.build_module(ops::SOURCE).map_err(|e| not_the_candidate(&e))?;
    let path = cache.join(format!("ops-{}.cubin", Digest::of([cubin.as_slice()])));
    let io = |source| AgentError::Io { doing: format!("writing {}", path.display()), source };
    if !path.exists() {
        let mut draft = tempfile::NamedTempFile::new_in(cache).map_err(io)?;
        std::io::Write::write_all(&mut draft, &cubin).map_err(io)?;
        draft.persist(&path).map_err(|e| io(e.error))?;
    }
    Ok(path)
}

/// Builds on threads of their own: an order that is under way is not built twice.
struct Builds {
    builder: Arc<Builder>,
    stop: Stop,
}

impl BuildAhead for Builds {
    fn begin(&self, target: &Target, candidate: &Candidate) -> Result<(), AgentError> {
        if candidate.check_launches(&target.meaning).is_err() {
            // Its evaluation says so.
            return Ok(());
        }
        for number in 0..candidate.launches().count() {
            let (builder, stop, target, candidate) = (self.builder.clone(), self.stop.clone(), target.clone(), candidate.clone());
            let work = move || {
                if let Some(launch) = candidate.launches().nth(number).filter(|_| !stop.asked()) {
                    // What a refusal says is told by the evaluation.
                    let _ = build_one(&builder, &target, &candidate, launch, Kind::Kernel);
                }
            };
            let started = std::thread::Builder::new().name("build".into()).spawn(work);
            started.map_err(|source| AgentError::Io { doing: "starting a thread".into(), source })?;
        }
        Ok(())
    }
}

impl Agent for CudaAgent {
    fn profile(&mut self, bundle: &Path) -> Result<ModelProfile, AgentError> {
        self.restart();
        let (python, stop) = (self.options.python.clone(), self.stop.clone());
        let graphs = self.locked(|_| python.profile(bundle, &stop))??;
        let device = format!("{}, driver {}", self.facts.name, self.facts.driver);
        Ok(ModelProfile { graphs, bandwidth: self.bandwidth.clone(), device })
    }

    fn batch(&self) -> usize {
        BATCH.into()
    }

    /// Hands the work to the builders and returns: what is built while the device measures costs no time.
    fn build(&mut self, target: &Target, candidates: &[Candidate]) -> Result<Duration, AgentError> {
        let started = Instant::now();
        let ahead = self.builds();
        candidates.iter().try_for_each(|candidate| ahead.begin(target, candidate))?;
        Ok(started.elapsed())
    }

    fn ahead(&self) -> Option<Arc<dyn BuildAhead>> {
        Some(Arc::new(self.builds()))
    }

    fn evaluate(&mut self, work: &Evaluate<'_>) -> Result<Outcome, AgentError> {
        if self.stop.asked() {
            return Err(AgentError::Stopped);
        }
        let candidate = work.candidate.id();
        let built = match self.build_unless_stopped(work)? {
            Ok(built) => built,
            Err(error) => {
                let verdict = error.verdict().ok_or_else(|| not_the_candidate(&error))?;
                return Ok(Outcome { candidate, verdict, evidence: self.no_samples(work.seed) });
            }
        };
        let broken = claims_too_much(work.candidate, work.target).or_else(|| changes_the_authors_text(work.candidate, work.target));
        if let Some(verdict) = broken {
            return Ok(Outcome { candidate, verdict, evidence: self.no_samples(work.seed) });
        }
        let mut code = built.iter().map(|built| code_facts(&built.binary, self.facts.architecture));
        let (code, further_code) = (code.next(), code.collect());
        let build_ms = built.iter().filter(|built| !built.cached).map(|built| built.elapsed.as_millis() as u64).sum();
        let stages = built.into_iter().zip(work.candidate.launches());
        let stages = stages.map(|(built, launch)| Built { binary: built.binary, launch: launch.clone() }).collect();
        let candidate_built = order::Candidate { stages, scratch: work.candidate.scratch.clone() };
        let (verdict, evidence) = self.locked(|agent| agent.judge(work, candidate_built))??;
        let evidence = Evidence { code, further_code, build_ms, ..evidence };
        Ok(Outcome { candidate, verdict, evidence })
    }

    fn check_model(&mut self, bundle: &Path, optimized: &Path, seed: u64) -> Result<ModelCheck, AgentError> {
        self.restart();
        let (python, stop) = (self.options.python.clone(), self.stop.clone());
        self.locked(|_| crate::model_gate::check(&python, bundle, optimized, GATE_SECONDS, seed, &stop))?
    }
}
