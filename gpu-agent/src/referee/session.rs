//! Everything that judging one target needs, made once and used for many candidates: the truth, the baseline in its
//! process, input sets, the noise floor.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use kernelopt_shared::digest::Digest;
use kernelopt_shared::meaning::storage::{Layout, Place};
use kernelopt_shared::stop::Stop;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::AgentError;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::case::Case;
use super::contest::{Contest, Effort, Foul, launches_per_block};
use super::regime::Regime;
use crate::cpu::{Arena, ArgumentPlan, Builder, Runner, RunnerOptions};
use crate::truth::Truth;

/// Input sets with captured values; these are timed, too.
const CAPTURED_SEEDS: usize = 3;
/// Memory for all slots of a small kernel: enough that a block is long, little enough to stay near the processor.
const ARENA_BYTES: usize = 8 << 20;
/// Most memory for slots.
const MOST_ARENA_BYTES: usize = 256 << 20;
/// Most slots.
const MOST_SLOTS: usize = 64;
/// Launches that are timed one by one in a fresh process.
const FIRST_CALLS: usize = 6;
/// Share of an input set's elements' magnitude that the baseline may be off before its meaning is doubted.
const BASELINE_DOUBT: f64 = 0.05;
/// Least noise floor: differences below it are never called a gain.
const LEAST_NOISE: f64 = 0.02;
/// Launches take at least this long before they count as hung.
const LEAST_TIMEOUT: Duration = Duration::from_secs(5);

/// How to run kernels on this host.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// This program, which is started again as the runner.
    pub executable: PathBuf,
    /// Libraries that kernels need and that are loaded before the sandbox closes.
    pub preload: Vec<PathBuf>,
    /// Threads, as torch used at capture.
    pub threads: u32,
    /// Whether subnormal numbers are flushed, as at capture.
    pub flush_denormal: bool,
}

/// A target, ready for judging.
pub struct Session {
    pub(super) target: Target,
    pub(super) arena: Arena,
    pub(super) cases: Vec<Case>,
    pub(super) baseline: Runner,
    pub(super) launch: Duration,
    pub(super) first_calls: Duration,
    /// Speed-ups below one plus this are noise.
    pub(super) noise: f64,
    /// Seed from which all of it was drawn.
    pub(super) seed: u64,
    /// Evaluations that these input sets have served.
    pub(super) served: u32,
    /// What drawing the input sets cost.
    pub(super) cost: Duration,
    arguments: Vec<ArgumentPlan>,
    host: HostSettings,
}

impl Session {
    /// Builds and starts the baseline, draws the input sets and computes their truth, runs the null controls and
    /// measures the noise floor.
    ///
    /// # Errors
    /// [`AgentError::Baseline`] where the compiler's own code does not build, run or agree with its meaning, or where the
    /// null controls pass: such a target is not judged.
    pub fn open(target: &Target, builder: &Builder, host: &HostSettings, seed: u64, stop: &Stop) -> Result<Self, AgentError> {
        let fail = |what: String| AgentError::Baseline { kernel: target.kernel.clone(), what };
        let started = Instant::now();
        let layout = Layout::of(&target.meaning).map_err(|e| fail(format!("has a meaning that cannot be laid out: {e}")))?;
        let truth = Truth::compile(&target.meaning).map_err(|e| fail(format!("has a meaning that cannot be run: {e}")))?;
        let library = builder.build(&target.baseline.source, &target.meaning.arguments, stop)?.map_err(|e| fail(format!("does not build: {e}")))?;
        let mut arena = Arena::create(&sizes(&layout), slots_for(&layout)).map_err(|source| AgentError::Io { doing: "making the arena".into(), source })?;
        let arguments = plan_arguments(&layout);
        let mut baseline = start(host, &library.path, &arguments, &arena).map_err(|e| fail(format!("does not start: {e}")))?;
        let mut cases = draw_cases(target, &layout, &truth, seed, stop)?;
        let (launch, first_calls) = first_launches(&mut baseline, &mut arena, &cases[0]).map_err(|e| fail(format!("does not run: {e}")))?;
        for case in &mut cases {
            case.load(&mut arena, 0);
            baseline.run(&[0], LEAST_TIMEOUT + 100 * launch).map_err(|e| fail(format!("does not run: {e}")))?;
            case.learn(target, &arena.storages(0));
        }
        baseline.pause().map_err(|e| fail(format!("cannot be paused: {e}")))?;
        let mut session = Self {
            target: target.clone(),
            arena,
            cases,
            baseline,
            launch,
            first_calls,
            noise: LEAST_NOISE,
            seed,
            served: 0,
            cost: started.elapsed(),
            arguments,
            host: host.clone(),
        };
        session.doubt_the_baseline()?;
        session.run_null_controls()?;
        session.measure_noise(&library.path, stop)?;
        Ok(session)
    }

    /// Identity of the target.
    pub fn fingerprint(&self) -> Digest {
        self.target.fingerprint
    }

    /// True when these input sets have served long enough for what they cost: fresh ones are due.
    pub fn is_worn(&self) -> bool {
        self.served >= 1 + (self.cost.as_millis() / 500) as u32
    }

    /// Starts a process for the library at `path` over this session's memory.
    pub(super) fn start(&self, path: &std::path::Path) -> Result<Runner, crate::cpu::Fault> {
        start(&self.host, path, &self.arguments, &self.arena)
    }

    /// Time that a block of `launches` may take.
    pub(super) fn timeout(&self, launches: usize) -> Duration {
        LEAST_TIMEOUT + self.launch * (100 * launches as u32)
    }

    /// Launches that a block of this target has.
    pub(super) fn launches(&self) -> usize {
        launches_per_block(self.launch, self.arena.slots())
    }

    fn fail(&self, what: impl Into<String>) -> AgentError {
        AgentError::Baseline { kernel: self.target.kernel.clone(), what: what.into() }
    }

    /// The compiler's code and its exported meaning must tell the same story on captured values.
    fn doubt_the_baseline(&self) -> Result<(), AgentError> {
        match self.cases[0].baseline_error() {
            error if error <= BASELINE_DOUBT => Ok(()),
            error => Err(self.fail(format!("is {:.1} % off its exported meaning", 100.0 * error))),
        }
    }

    /// Zeros, ones, a copy of an input and the previous output must all be called wrong, or a wrong candidate could pass.
    fn run_null_controls(&self) -> Result<(), AgentError> {
        let case = &self.cases[0];
        let other: Vec<&[u8]> = self.cases[1].baseline_outputs().collect();
        let next = std::cell::Cell::new(0);
        let previous = case.pretend(|bytes, _| {
            let source = other.get(next.replace(next.get() + 1)).copied().unwrap_or_default();
            if source.len() == bytes.len() {
                bytes.copy_from_slice(source);
            }
        });
        let controls = [("zeros", case.pretend(|bytes, _| bytes.fill(0))), ("the previous output", previous), ("nothing written", case.pretend(|_, _| {}))];
        for (name, after) in controls.iter().chain(&case.input_copies()) {
            let storages: Vec<&[u8]> = after.iter().map(Vec::as_slice).collect();
            if case.check(&storages, &mut Vec::new()).is_ok() {
                return Err(self.fail(format!("cannot be told from a fake: the null control \"{name}\" passes")));
            }
        }
        Ok(())
    }

    /// The baseline against itself, in two processes.
    fn measure_noise(&mut self, library: &std::path::Path, stop: &Stop) -> Result<(), AgentError> {
        let mut twin = self.start(library).map_err(|e| self.fail(format!("does not start twice: {e}")))?;
        let launches = self.launches();
        let timeout = self.timeout(launches);
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ 0x6e6f_6973_65);
        let mut contest = Contest {
            arena: &mut self.arena,
            cases: &self.cases[..CAPTURED_SEEDS],
            baseline: &mut self.baseline,
            candidate: &mut twin,
            launches,
            timeout,
            rng: &mut rng,
        };
        let effort = Effort { least_pairs: 7, most_pairs: 15, tight: 0.01, time: Duration::from_millis(600) };
        match contest.run(effort, stop) {
            Ok((_, Some(interval))) => {
                let bias = (interval.estimate.ln()).abs();
                self.noise = LEAST_NOISE.max(bias).max(interval.relative_half_width());
                Ok(())
            }
            Ok((_, None)) => Err(self.fail("has no time that can be measured")),
            Err(Foul::Stopped) => Err(AgentError::Stopped),
            Err(Foul::Fault(fault) | Foul::Baseline(fault)) => Err(self.fail(format!("does not run steadily: {fault}"))),
            Err(Foul::Mismatch(mismatch)) => Err(self.fail(format!("does not repeat its own result: {}", mismatch.reason))),
            Err(Foul::Guard(broken)) => Err(self.fail(format!("writes outside its buffers: {broken}"))),
        }
    }
}

fn sizes(layout: &Layout) -> Vec<usize> {
    layout.storages.iter().map(|s| s.bytes).collect()
}

fn slots_for(layout: &Layout) -> usize {
    let bytes = sizes(layout).iter().sum::<usize>().max(1);
    let near = (ARENA_BYTES / bytes).clamp(16, MOST_SLOTS);
    near.min((MOST_ARENA_BYTES / bytes).max(1))
}

fn plan_arguments(layout: &Layout) -> Vec<ArgumentPlan> {
    let plan = |place: &Place| match *place {
        Place::Pointer { storage, offset_bytes, .. } => ArgumentPlan::Pointer { storage, offset_bytes },
        Place::Int(value) => ArgumentPlan::Int(value),
    };
    layout.arguments.iter().map(plan).collect()
}

fn start(host: &HostSettings, library: &std::path::Path, arguments: &[ArgumentPlan], arena: &Arena) -> Result<Runner, crate::cpu::Fault> {
    let options = RunnerOptions {
        executable: host.executable.clone(),
        library: library.to_owned(),
        preload: host.preload.clone(),
        arguments: arguments.to_vec(),
        threads: host.threads,
        flush_denormal: host.flush_denormal,
        limits: Default::default(),
    };
    Runner::start(&options, arena)
}

/// Captured values several times, every other regime once; each with a seed of its own.
fn draw_cases(target: &Target, layout: &Layout, truth: &Truth, seed: u64, stop: &Stop) -> Result<Vec<Case>, AgentError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let captured = std::iter::repeat_n(Regime::Captured, CAPTURED_SEEDS - 1);
    captured
        .chain(Regime::ALL)
        .map(|regime| {
            if stop.asked() {
                return Err(AgentError::Stopped);
            }
            Case::draw(target, layout, truth, regime, rng.random())
                .map_err(|e| AgentError::Baseline { kernel: target.kernel.clone(), what: format!("has a meaning that fails on {} inputs: {e}", regime.name()) })
        })
        .collect()
}

/// Launches a fresh process a few times: the time of the last launch, and of all together.
pub(super) fn first_launches(runner: &mut Runner, arena: &mut Arena, case: &Case) -> Result<(Duration, Duration), crate::cpu::Fault> {
    let mut times = Vec::with_capacity(FIRST_CALLS);
    for _ in 0..FIRST_CALLS {
        case.load(arena, 0);
        times.push(runner.run(&[0], 20 * LEAST_TIMEOUT)?);
    }
    let last = times[FIRST_CALLS / 2..].iter().min().copied().unwrap_or_default();
    Ok((last, times.iter().sum()))
}

pub(super) const TIMED_CASES: usize = CAPTURED_SEEDS;
