//! A device that does as a script says: an implementation of the real trait with delays and failures to order.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kernelopt_gpu_agent::lock::{self, DeviceLock};
use kernelopt_gpu_agent::service::{Canary, Workshop};
use kernelopt_shared::bundle::Manifest;
use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::stats::Interval;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::{Agent, AgentError, BuildAhead, Evaluate, ModelCheck, ModelProfile};
use kernelopt_shared::verdict::{Evidence, Outcome, Verdict};

/// What the device does with a candidate, named by its source.
#[derive(Clone, Debug)]
pub enum Act {
    /// Works for so long and hears a stop.
    Work(Duration),
    /// Works for so long, whatever is asked.
    Stubborn(Duration),
    /// Lacks something.
    Lack,
    /// Cannot run the compiler's own code.
    Baseline,
    /// Panics.
    Panic,
}

/// What it says that building together took.
pub const BUILD: Duration = Duration::from_millis(30);

/// A device.
pub struct Script {
    pub acts: Mutex<HashMap<String, Act>>,
    /// Its test.
    pub canary: Canary,
    /// Calls everything right.
    pub blind: AtomicBool,
    /// Takes turns by this name.
    pub uuid: Option<String>,
    /// Builds beside its work.
    pub builds_ahead: bool,
    /// Tasks that it likes to hold.
    pub capacity: u16,
    /// Builds before its work, by source: what was built together.
    pub together: Mutex<Vec<Vec<String>>>,
    /// Evaluations begun, by source.
    pub begun: Mutex<Vec<String>>,
    /// Builds begun ahead, by source.
    pub ahead: Arc<Mutex<Vec<String>>>,
    /// Agents made.
    pub made: AtomicUsize,
    /// Evaluations at this moment, and the most at any.
    pub at_once: Arc<(AtomicUsize, AtomicUsize)>,
}

impl Script {
    pub fn new() -> Self {
        Self {
            acts: Mutex::default(),
            canary: Canary::cpu().unwrap(),
            blind: AtomicBool::new(false),
            uuid: None,
            builds_ahead: false,
            capacity: 2,
            together: Mutex::default(),
            begun: Mutex::default(),
            ahead: Arc::default(),
            made: AtomicUsize::new(0),
            at_once: Arc::default(),
        }
    }

    /// The candidate with this source is to be treated so; others take no time.
    pub fn on(&self, source: &str, act: Act) {
        self.acts.lock().unwrap().insert(source.into(), act);
    }

    /// How often a source was evaluated.
    pub fn count(&self, source: &str) -> usize {
        self.begun.lock().unwrap().iter().filter(|begun| *begun == source).count()
    }
}

/// The device seen from its thread.
pub struct Shop(pub Arc<Script>);

impl Workshop for Shop {
    fn agent(&self, _manifest: &Manifest, stop: &Stop) -> Result<Box<dyn Agent>, AgentError> {
        self.0.made.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Scripted { script: Arc::clone(&self.0), stop: stop.clone() }))
    }

    fn capacity(&self) -> u16 {
        self.0.capacity
    }

    fn turn(&self, stop: &Stop) -> Result<Option<DeviceLock>, AgentError> {
        self.0.uuid.as_ref().map(|uuid| lock::take_turn(uuid, stop)).transpose()
    }

    fn canary(&self) -> &Canary {
        &self.0.canary
    }
}

struct Scripted {
    script: Arc<Script>,
    stop: Stop,
}

impl Scripted {
    fn pass(&self, time: Duration, hears: bool) -> Result<(), AgentError> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            if hears && self.stop.asked() {
                return Err(AgentError::Stopped);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn act(&self, source: &str) -> Result<(), AgentError> {
        let act = self.script.acts.lock().unwrap().get(source).cloned();
        match act.unwrap_or(Act::Work(Duration::ZERO)) {
            Act::Work(time) => self.pass(time, true),
            Act::Stubborn(time) => self.pass(time, false),
            Act::Lack => Err(AgentError::Environment { what: "the disk is full".into(), remedy: "Make room.".into() }),
            Act::Baseline => Err(AgentError::Baseline { kernel: "k".into(), what: "does not run".into() }),
            Act::Panic => panic!("as the script says"),
        }
    }
}

impl Agent for Scripted {
    fn profile(&mut self, _bundle: &Path) -> Result<ModelProfile, AgentError> {
        Ok(ModelProfile { graphs: Vec::new(), bandwidth: Default::default(), device: "scripted".into() })
    }

    fn build(&mut self, _target: &Target, candidates: &[Candidate]) -> Result<Duration, AgentError> {
        self.script.together.lock().unwrap().push(candidates.iter().map(|candidate| candidate.source.clone()).collect());
        Ok(BUILD)
    }

    fn ahead(&self) -> Option<Arc<dyn BuildAhead>> {
        self.script.builds_ahead.then(|| Arc::new(Ahead(Arc::clone(&self.script.ahead))) as Arc<dyn BuildAhead>)
    }

    fn evaluate(&mut self, work: &Evaluate<'_>) -> Result<Outcome, AgentError> {
        let source = &work.candidate.source;
        let canary = &self.script.canary;
        let sings = [&canary.target.baseline.source, &canary.wrong.source].contains(&source);
        if !sings {
            self.script.begun.lock().unwrap().push(source.clone());
        }
        let (now, most) = &*self.script.at_once;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let done = self.act(source);
        now.fetch_sub(1, Ordering::SeqCst);
        done?;
        let verdict = if *source == canary.wrong.source && !self.script.blind.load(Ordering::Relaxed) {
            Verdict::Wrong { reason: "a thousandth off".into() }
        } else {
            Verdict::NoChange { speedup: Interval { low: 0.99, estimate: 1.0, high: 1.01 } }
        };
        Ok(Outcome { candidate: work.candidate.id(), verdict, evidence: Evidence { seed: work.seed, ..Evidence::default() } })
    }

    fn check_model(&mut self, _bundle: &Path, _optimized: &Path, _seed: u64) -> Result<ModelCheck, AgentError> {
        Ok(ModelCheck { input_sets: Vec::new() })
    }
}

struct Ahead(Arc<Mutex<Vec<String>>>);

impl BuildAhead for Ahead {
    fn begin(&self, _target: &Target, candidate: &Candidate) -> Result<(), AgentError> {
        self.0.lock().unwrap().push(candidate.source.clone());
        Ok(())
    }
}

/// A digest that nothing has.
pub fn nothing() -> Digest {
    Digest::of([b"nothing".as_slice()])
}
