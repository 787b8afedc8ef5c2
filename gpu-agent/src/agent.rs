//! The agent for this host's processor.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kernelopt_shared::bundle::Manifest;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::exit::UserError;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::{Agent, AgentError, Depth, Evaluate, ModelCheck, ModelProfile};
use kernelopt_shared::verdict::{Evidence, Outcome, Verdict};

use crate::bandwidth::Roof;
use crate::cpu::build::{BuildError, Builder, BuilderOptions, Toolchain};
use crate::cpu::child::Reexec;
use crate::cpu::runner::{Zygote, ZygoteOptions};
use crate::host;
use crate::python::Python;
use crate::referee::{Judge, Session};

/// Candidates at a time: about as many as there are cores to build them on, few enough that the next ones can learn from their verdicts.
pub(crate) const BATCH: u16 = 4;
/// Time that the whole-model check measures.
const GATE_SECONDS: u32 = 20;

/// Judges C++ candidates on this host.
pub struct CpuAgent {
    python: Python,
    builder: Builder,
    zygote: Arc<Zygote>,
    flush_denormal: bool,
    threads: u32,
    roof: Roof,
    session: Option<Session>,
    stop: Stop,
}

impl CpuAgent {
    /// An agent for models captured as `manifest` says. `reexec` starts this program again as the runner; `cache` keeps
    /// builds.
    ///
    /// # Errors
    /// The cache cannot be used, or there is no compiler.
    pub fn new(manifest: &Manifest, reexec: Reexec, cache: PathBuf, python: Python, stop: Stop) -> Result<Self, AgentError> {
        let environment = |what: String, remedy: Option<String>| AgentError::Environment { what, remedy: remedy.unwrap_or_default() };
        let toolchain =
            if manifest.compile_command.is_empty() { Toolchain::plain() } else { Toolchain::from_template(&manifest.compile_command) };
        let toolchain = toolchain.map_err(|e| environment(e.to_string(), e.remedy()))?;
        let options = BuilderOptions { reexec: reexec.clone(), toolchain, cache, limits: Default::default(), permit_weak_sandbox: false };
        let builder = Builder::new(options)
            .map_err(|e| environment(e.to_string(), Some("Check the cache folder's permissions.".into())))?
            .ends_with(stop.clone());
        let threads = manifest.device.threads;
        let preload = host::torch_libraries(&manifest.compile_command);
        let zygote = Zygote::new(ZygoteOptions { reexec, preload, threads, permit_weak_sandbox: false }).ends_with(stop.clone());
        let zygote = Arc::new(zygote);
        let flush_denormal = manifest.precision.get("flush_denormal").and_then(serde_json::Value::as_bool).unwrap_or(false);
        Ok(Self { python, builder, zygote, flush_denormal, threads, roof: Roof::new(threads as usize), session: None, stop })
    }

    /// The session of `target`: the one at hand, unless it is of another target, worn, or `fresh` is asked for.
    fn take_session(&mut self, target: &Target, seed: u64, fresh: bool) -> Result<Session, AgentError> {
        match self.session.take().filter(|s| !fresh && *s.target() == *target && !s.is_worn()) {
            Some(session) => Ok(session),
            None => self.open_session(target, seed),
        }
    }

    /// A session of `target`, drawn from `seed`.
    ///
    /// # Errors
    /// The baseline does not build, or [`Session::open`] refuses it.
    pub fn open_session(&self, target: &Target, seed: u64) -> Result<Session, AgentError> {
        let library = self.builder.build(&target.baseline.source, &target.meaning.arguments).map_err(|error| match error.verdict() {
            Some(_) => AgentError::Baseline { kernel: target.kernel.clone(), what: format!("does not build: {error}") },
            None => not_the_candidate(&error),
        })?;
        Session::open(target, &library.library, &self.zygote, self.flush_denormal, seed, &self.stop)
    }

    fn judge(&mut self, work: &Evaluate<'_>, evidence: &mut Evidence) -> Result<Verdict, AgentError> {
        let built = match self.builder.build(&work.candidate.source, &work.target.meaning.arguments) {
            Ok(built) => built,
            Err(error) => return error.verdict().ok_or_else(|| not_the_candidate(&error)),
        };
        evidence.build_ms = built.elapsed.as_millis() as u64;
        let mut session = self.take_session(work.target, work.seed, work.depth == Depth::Confirm)?;
        session.serve();
        let mut judge = Judge { session: &mut session, roof: &mut self.roof, stop: &self.stop };
        let verdict = judge.judge(&built.library, work.depth, work.seed, evidence);
        self.session = Some(session);
        verdict
    }
}

fn not_the_candidate(error: &BuildError) -> AgentError {
    AgentError::Environment { what: error.to_string(), remedy: "Run `kernelopt doctor` to see what is missing.".into() }
}

impl Agent for CpuAgent {
    fn profile(&mut self, bundle: &Path) -> Result<ModelProfile, AgentError> {
        let graphs = self.python.profile(bundle, &self.stop)?;
        let device = format!("{}, {} threads", host::processor(), self.threads);
        Ok(ModelProfile { graphs, bandwidth: self.roof.curve().clone(), device })
    }

    fn batch(&self) -> usize {
        BATCH.into()
    }

    fn build(&mut self, target: &Target, candidates: &[Candidate]) -> Result<Duration, AgentError> {
        let started = Instant::now();
        let queue = Mutex::new(candidates.iter());
        let (builder, stop) = (&self.builder, &self.stop);
        let next = || queue.lock().ok().and_then(|mut queue| queue.next());
        let work = || {
            while let Some(candidate) = next().filter(|_| !stop.asked()) {
                // What a refusal says is told by the evaluation.
                let _ = builder.build(&candidate.source, &target.meaning.arguments);
            }
        };
        std::thread::scope(|scope| (0..self.threads.max(1)).for_each(|_| drop(scope.spawn(work))));
        if stop.asked() { Err(AgentError::Stopped) } else { Ok(started.elapsed()) }
    }

    fn evaluate(&mut self, work: &Evaluate<'_>) -> Result<Outcome, AgentError> {
        let mut evidence = Evidence { seed: work.seed, device: host::processor(), ..Default::default() };
        let verdict = self.judge(work, &mut evidence);
        if self.stop.asked() {
            // Whatever was waited for was given up, and looks like a fault of the candidate's.
            return Err(AgentError::Stopped);
        }
        let verdict = verdict?;
        Ok(Outcome { candidate: work.candidate.id(), verdict, evidence })
    }

    fn check_model(&mut self, bundle: &Path, optimized: &Path, seed: u64) -> Result<ModelCheck, AgentError> {
        self.session = None;
        crate::model_gate::check(&self.python, bundle, optimized, GATE_SECONDS, seed, &self.stop)
    }
}
