//! Everything that judging one target needs, made once and used for many candidates: the truth, the baseline in its
//! process, input sets, the noise floor.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernelopt_shared::meaning::storage::Layout;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::target::Target;
use kernelopt_shared::task::AgentError;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::case::Case;
use super::contest::{Contest, Foul, launches_per_block};
use super::player::{FirstLaunches, LAUNCH_TIMEOUT, Player, Stage};
use super::regime::Regime;
use super::samples::Effort;
use crate::cpu::fault::Fault;
use crate::cpu::runner::Zygote;
use crate::truth::{Truth, TruthError};

/// Input sets with captured values; these are timed, too.
const CAPTURED_SEEDS: usize = 3;
/// Error of the baseline over the greatest true value before its meaning is doubted.
const BASELINE_DOUBT: f64 = 0.05;
/// Least noise floor: differences below it are never called a gain.
const LEAST_NOISE: f64 = 0.02;
/// Time of drawing input sets that one more evaluation on them must earn (`docs/decisions/0005`).
const EARNED: Duration = Duration::from_millis(500);

/// A target, ready for judging.
pub struct Session {
    pub(super) target: Target,
    pub(super) stage: Stage,
    pub(super) cases: Vec<Case>,
    pub(super) baseline: Player,
    pub(super) first: FirstLaunches,
    control: Player,
    /// Speed-ups below one plus this are noise.
    pub(super) noise: f64,
    seed: u64,
    served: u32,
    cost: Duration,
}

impl Session {
    /// Starts the baseline (`library`), draws the input sets and computes their truth, runs the null controls and measures
    /// the noise floor.
    ///
    /// # Errors
    /// [`AgentError::Baseline`] where the compiler's own code does not run or agree with its meaning, or where a null
    /// control passes: such a target is not judged.
    pub fn open(
        target: &Target,
        library: &Path,
        zygote: &Arc<Zygote>,
        flush_denormal: bool,
        seed: u64,
        stop: &Stop,
    ) -> Result<Self, AgentError> {
        let fail = |what: String| AgentError::Baseline { kernel: target.kernel.clone(), what };
        let started = Instant::now();
        let layout = Layout::of(&target.meaning).map_err(|e| fail(format!("has a meaning that cannot be laid out: {e}")))?;
        let truth = Truth::compile(&target.meaning).map_err(|e| fail(format!("has a meaning that cannot be run: {e}")))?;
        let stage = Stage::new(zygote, &layout, flush_denormal);
        let mut baseline = stage.enter(library)?.map_err(|e| fail(format!("does not start: {e}")))?;
        let control = stage.enter(library)?.map_err(|e| fail(format!("does not start twice: {e}")))?;
        let mut cases = draw_cases(target, &layout, &truth, seed, stop)?;
        let first = baseline.first_launches(&cases[0]).map_err(|e| fail(format!("does not run: {e}")))?;
        for case in &mut cases {
            baseline.launch(case, 0).map_err(|e| fail(format!("does not run: {e}")))?;
            case.learn(target, &baseline.storages(0));
        }
        let cost = started.elapsed();
        let mut session =
            Self { target: target.clone(), stage, cases, baseline, control, first, noise: LEAST_NOISE, seed, served: 0, cost };
        session.doubt_the_baseline()?;
        session.run_null_controls()?;
        session.measure_noise(stop)?;
        Ok(session)
    }

    /// Whether a perfect implementation of `other`, a meaning with the same arguments, would pass every comparison: for
    /// tests of the referee itself.
    ///
    /// # Errors
    /// `other` cannot be run on some input set.
    pub fn would_pass(&self, other: &Truth) -> Result<bool, TruthError> {
        for case in &self.cases {
            let after = case.as_by(other)?;
            let storages: Vec<&[u8]> = after.iter().map(Vec::as_slice).collect();
            if case.check(&storages, &mut Vec::new()).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether perfect implementations of `one` and `other` leave the same bytes on every input set: then no referee could
    /// tell them apart on these inputs.
    ///
    /// # Errors
    /// One of them cannot be run on some input set.
    pub fn leave_the_same(&self, one: &Truth, other: &Truth) -> Result<bool, TruthError> {
        for case in &self.cases {
            if case.as_by(one)? != case.as_by(other)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The target.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// True when these input sets have served as long as they cost: fresh ones are due.
    pub fn is_worn(&self) -> bool {
        self.served > (self.cost.as_millis() / EARNED.as_millis()) as u32
    }

    /// Counts one more evaluation.
    pub fn serve(&mut self) {
        self.served += 1;
    }

    /// Launches that a block of this target has.
    pub(super) fn launches(&self) -> usize {
        launches_per_block(self.first.steady, self.baseline.arena.slots())
    }

    /// Time that a block may take.
    pub(super) fn timeout(&self) -> Duration {
        LAUNCH_TIMEOUT + self.first.steady * (100 * self.launches() as u32)
    }

    /// A contest of the baseline with `candidate`, on captured values; with the control where the outcome may be a win.
    pub(super) fn contest<'a>(&'a mut self, candidate: &'a mut Player, controlled: bool, rng: &'a mut ChaCha8Rng) -> Contest<'a> {
        let (launches, timeout) = (self.launches(), self.timeout());
        let control = controlled.then_some(&mut self.control);
        Contest { baseline: &mut self.baseline, candidate, control, cases: &self.cases[..CAPTURED_SEEDS], launches, timeout, rng }
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

    /// Zeros, copies of inputs, the previous output and nothing at all must be called wrong, or a wrong candidate could pass.
    fn run_null_controls(&self) -> Result<(), AgentError> {
        let case = &self.cases[0];
        let mut other = self.cases[1].baseline_outputs();
        let previous = case.pretend(|bytes| {
            if let Some(source) = other.next() {
                bytes.copy_from_slice(source);
            }
        });
        let zeros = case.pretend(|bytes| bytes.fill(0));
        let nothing = case.pretend(|_| {});
        let controls = [("zeros", zeros), ("the previous output", previous), ("nothing written", nothing)];
        for (name, after) in controls.iter().chain(&case.input_copies()) {
            let storages: Vec<&[u8]> = after.iter().map(Vec::as_slice).collect();
            if case.check(&storages, &mut Vec::new()).is_ok() {
                return Err(self.fail(format!("cannot be told from a fake: the null control \"{name}\" passes")));
            }
        }
        Ok(())
    }

    /// The baseline against the control.
    fn measure_noise(&mut self, stop: &Stop) -> Result<(), AgentError> {
        let mut rng = ChaCha8Rng::seed_from_u64(!self.seed);
        let effort = Effort { least_pairs: 7, most_pairs: 15, tight: 0.01, time: Duration::from_millis(600) };
        let (launches, timeout, cases) = (self.launches(), self.timeout(), &self.cases[..CAPTURED_SEEDS]);
        let (baseline, candidate) = (&mut self.baseline, &mut self.control);
        let measured = Contest { baseline, candidate, control: None, cases, launches, timeout, rng: &mut rng }.run(effort, stop);
        match measured {
            Ok((_, Some(interval))) => {
                self.noise = LEAST_NOISE.max(interval.noise());
                Ok(())
            }
            // A busy host: every contest that may be won has a control of its own.
            Err(Foul::Unsteady(_)) => Ok(()),
            Ok((_, None)) => Err(self.fail("has no time that can be measured")),
            Err(Foul::Stopped) => Err(AgentError::Stopped),
            Err(Foul::Fault(fault) | Foul::Baseline(fault)) => Err(self.fail(format!("does not run steadily: {fault}"))),
            Err(Foul::Mismatch(mismatch)) => Err(self.fail(format!("does not repeat its own result: {}", mismatch.reason))),
            Err(Foul::Guard(trespass)) => Err(self.fail(format!("writes outside its buffers: {trespass:?}"))),
        }
    }
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
            Case::draw(target, layout, truth, regime, rng.random()).map_err(|e| AgentError::Baseline {
                kernel: target.kernel.clone(),
                what: format!("has a meaning that fails on {} inputs: {e}", regime.name()),
            })
        })
        .collect()
}

/// A fault as an error of ours, where it is no verdict on a candidate.
pub(super) fn not_the_candidate(fault: &Fault) -> AgentError {
    AgentError::Environment { what: fault.to_string(), remedy: "Run `kernelopt doctor` to see what this machine allows.".into() }
}
