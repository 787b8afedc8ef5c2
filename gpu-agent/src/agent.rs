//! The agent for this host's processor.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kernelopt_shared::bundle::Manifest;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::{Agent, AgentError, BandwidthCurve, Depth, Evaluate, GraphProfile, ModelCheck, ModelProfile};
use kernelopt_shared::verdict::{Evidence, Outcome};
use serde::Deserialize;

use crate::cpu::Builder;
use crate::python::Python;
use crate::referee::{HostSettings, Judge, Session};

/// Longest profile, and longest whole-model check.
const MODEL_LIMIT: Duration = Duration::from_secs(1200);

/// Judges C++ candidates on this host.
pub struct CpuAgent {
    python: Python,
    builder: Builder,
    host: HostSettings,
    bandwidth: Option<BandwidthCurve>,
    session: Option<Session>,
    stop: Stop,
}

impl CpuAgent {
    /// An agent for models captured as `manifest` says. `executable` is started again as the runner; `cache` keeps builds.
    ///
    /// # Errors
    /// The cache cannot be used, or there is no compiler.
    pub fn new(manifest: &Manifest, executable: PathBuf, cache: &Path, python: Python, stop: Stop) -> Result<Self, AgentError> {
        let builder = Builder::new(&manifest.compile_command, cache)?;
        let flush_denormal = manifest.precision.get("flush_denormal").and_then(serde_json::Value::as_bool).unwrap_or(false);
        let host = HostSettings { executable, preload: builder.runtime_libraries(), threads: manifest.device.threads, flush_denormal };
        Ok(Self { python, builder, host, bandwidth: None, session: None, stop })
    }

    fn bandwidth(&mut self) -> BandwidthCurve {
        let threads = self.host.threads as usize;
        self.bandwidth.get_or_insert_with(|| crate::bandwidth::measure(threads)).clone()
    }

    /// The session of `target`, fresh where the old one is of another target or worn, or where `fresh` is asked for.
    fn session(&mut self, target: &Target, seed: u64, fresh: bool) -> Result<&mut Session, AgentError> {
        let usable = self.session.take().filter(|s| !fresh && s.fingerprint() == target.fingerprint && !s.is_worn());
        let session = match usable {
            Some(session) => session,
            None => Session::open(target, &self.builder, &self.host, seed, &self.stop)?,
        };
        Ok(self.session.insert(session))
    }
}

/// What `python -m kernelopt profile` prints.
#[derive(Deserialize)]
struct PythonProfile {
    graphs: Vec<GraphProfile>,
}

impl Agent for CpuAgent {
    fn profile(&mut self, bundle: &Path) -> Result<ModelProfile, AgentError> {
        let profile: PythonProfile = self.python.json(&["profile".as_ref(), bundle.as_os_str()], MODEL_LIMIT, &self.stop)?;
        let device = format!("{}, {} threads", crate::host::processor(), self.host.threads);
        Ok(ModelProfile { graphs: profile.graphs, bandwidth: self.bandwidth(), device })
    }

    fn build(&mut self, target: &Target, candidates: &[Candidate]) -> Result<(), AgentError> {
        let jobs = std::sync::Mutex::new(candidates.iter());
        let (builder, stop) = (&self.builder, &self.stop);
        let next = || jobs.lock().ok().and_then(|mut jobs| jobs.next());
        let work = || -> Result<(), AgentError> {
            while let Some(candidate) = next() {
                // A refusal is told by the evaluation, which finds it in the cache.
                let _ = builder.build(&candidate.source, &target.meaning.arguments, stop)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.host.threads.max(1)).map(|_| scope.spawn(work)).collect();
            let results = workers.into_iter().map(|w| w.join().unwrap_or_else(|_| Err(AgentError::Internal("a build thread panicked".into()))));
            results.collect()
        })
    }

    fn evaluate(&mut self, work: &Evaluate<'_>) -> Result<Outcome, AgentError> {
        let bandwidth = self.bandwidth();
        let stop = self.stop.clone();
        self.session(work.target, work.seed, work.depth == Depth::Confirm)?.served();
        let Some(session) = &mut self.session else { return Err(AgentError::Internal("no session".into())) };
        let mut evidence = Evidence { device: crate::host::processor(), ..Default::default() };
        let mut judge = Judge { session, builder: &self.builder, bandwidth: &bandwidth, stop: &stop };
        let verdict = judge.judge(work.candidate, work.depth, work.seed, &mut evidence)?;
        Ok(Outcome { candidate: work.candidate.id(), verdict, evidence })
    }

    fn check_model(&mut self, bundle: &Path, optimized: &Path, seed: u64) -> Result<ModelCheck, AgentError> {
        self.session = None;
        crate::model_gate::check(&self.python, bundle, optimized, seed, &self.stop)
    }
}
