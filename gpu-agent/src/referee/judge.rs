//! From a built candidate to a verdict.

use std::time::{Duration, Instant};

use kernelopt_shared::candidate::Candidate;
use kernelopt_shared::stats::Interval;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::task::{AgentError, BandwidthCurve, Depth};
use kernelopt_shared::verdict::{Evidence, Verdict};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::contest::{Contest, Effort, Foul, Samples};
use super::session::{Session, TIMED_CASES, first_launches};
use crate::cpu::{Builder, Fault, Runner};

/// Times that every input set is launched when all are checked: a race shows itself only sometimes.
const REPEATS: usize = 3;
/// Input sets of a screening look.
const SCREEN_CASES: usize = 2;
/// What the first launches of a fresh process may cost beyond the baseline's before the time is called unsteady.
const FIRST_CALLS_SLACK: Duration = Duration::from_millis(20);
/// How far below the roofline's least time a launch must be to be impossible; the roof is measured, with noise.
const IMPOSSIBLE: f64 = 0.7;

/// One evaluation.
pub struct Judge<'a> {
    /// The target's session.
    pub session: &'a mut Session,
    /// Builds the candidate.
    pub builder: &'a Builder,
    /// The roof.
    pub bandwidth: &'a BandwidthCurve,
    /// Asked to stop?
    pub stop: &'a Stop,
}

impl Judge<'_> {
    /// Builds, verifies and measures `candidate`. The seed is in the evidence.
    ///
    /// # Errors
    /// Only what is not the candidate's fault.
    pub fn judge(&mut self, candidate: &Candidate, depth: Depth, seed: u64, evidence: &mut Evidence) -> Result<Verdict, AgentError> {
        evidence.seed = seed;
        let started = Instant::now();
        let built = self.builder.build(&candidate.source, &self.session.target.meaning.arguments, self.stop)?;
        evidence.build_ms = started.elapsed().as_millis() as u64;
        let library = match built {
            Ok(library) => library,
            Err(reason) => return Ok(reason.into_verdict()),
        };
        let mut runner = match self.session.start(&library.path) {
            Ok(runner) => runner,
            Err(fault) => return self.fault(fault),
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let started = Instant::now();
        let verified = self.verify(&mut runner, depth, &mut rng, evidence);
        evidence.verify_ms = started.elapsed().as_millis() as u64;
        if let Err(foul) = verified {
            return self.foul(foul);
        }
        let started = Instant::now();
        let measured = self.measure(&mut runner, depth, &mut rng, evidence);
        evidence.measure_ms = started.elapsed().as_millis() as u64;
        match measured {
            Ok(Some(interval)) => Ok(self.decide(interval, evidence)),
            Ok(None) => Ok(Verdict::Unstable { reason: "no positive time was measured".into() }),
            Err(foul) => self.foul(foul),
        }
    }

    /// First launches, then every input set of this depth in random order, several times over.
    fn verify(&mut self, runner: &mut Runner, depth: Depth, rng: &mut ChaCha8Rng, evidence: &mut Evidence) -> Result<(), Foul> {
        let session = &mut *self.session;
        let (_, first_calls) = first_launches(runner, &mut session.arena, &session.cases[0]).map_err(Foul::Fault)?;
        let (count, repeats) = if depth == Depth::Screen { (SCREEN_CASES, 1) } else { (session.cases.len(), REPEATS) };
        let offset = rng.random_range(0..session.cases.len());
        for round in 0..repeats {
            for i in 0..count {
                if self.stop.asked() {
                    return Err(Foul::Stopped);
                }
                // The captured values always, the others in turn.
                let case = &session.cases[if i == 0 { 0 } else { (offset + i) % session.cases.len() }];
                let slot = rng.random_range(0..session.arena.slots());
                case.load(&mut session.arena, slot);
                runner.run(&[slot as u32], LAUNCH_TIMEOUT).map_err(Foul::Fault)?;
                let mut checks = Vec::new();
                let checked = case.check(&session.arena.storages(slot), &mut checks);
                if round == 0 {
                    evidence.checks.extend(checks);
                }
                if let Some(broken) = session.arena.broken_guard(slot) {
                    session.arena.restore_guards(slot);
                    return Err(Foul::Guard(broken));
                }
                checked.map_err(Foul::Mismatch)?;
            }
        }
        runner.pause().map_err(Foul::Fault)?;
        let allowed = 3 * session.first_calls + FIRST_CALLS_SLACK;
        if first_calls > allowed {
            return Err(Foul::Slow(format!("the first launches of a process take {first_calls:.1?} together, the baseline's {:.1?}", session.first_calls)));
        }
        Ok(())
    }

    fn measure(&mut self, runner: &mut Runner, depth: Depth, rng: &mut ChaCha8Rng, evidence: &mut Evidence) -> Result<Option<Interval>, Foul> {
        let launches = self.session.launches();
        let timeout = self.session.timeout(launches);
        let session = &mut *self.session;
        let mut contest = Contest {
            arena: &mut session.arena,
            cases: &session.cases[..TIMED_CASES],
            baseline: &mut session.baseline,
            candidate: runner,
            launches,
            timeout,
            rng,
        };
        let effort = match depth {
            Depth::Screen => Effort { least_pairs: 5, most_pairs: 9, tight: 0.03, time: Duration::from_millis(400) },
            Depth::Full => Effort { least_pairs: 11, most_pairs: 31, tight: 0.01, time: Duration::from_secs(2) },
            Depth::Confirm => Effort { least_pairs: 15, most_pairs: 61, tight: 0.01, time: Duration::from_secs(4) },
        };
        let (Samples { pairs_ns, outputs_checked }, interval) = contest.run(effort, self.stop)?;
        evidence.pairs_ns = pairs_ns;
        evidence.timed_outputs_checked = outputs_checked;
        Ok(interval)
    }

    fn decide(&self, speedup: Interval, evidence: &Evidence) -> Verdict {
        let fastest_us = evidence.pairs_ns.iter().map(|(_, candidate)| candidate / 1e3).fold(f64::INFINITY, f64::min);
        let least_us = self.bandwidth.least_us(self.session.target.traffic.total_bytes()).unwrap_or(0.0);
        if fastest_us < IMPOSSIBLE * least_us {
            return Verdict::Rejected { reason: format!("impossible: {fastest_us:.2} us, but its bytes alone take {least_us:.2} us here") };
        }
        let floor = 1.0 + self.session.noise;
        if speedup.low > floor {
            Verdict::Accepted { speedup }
        } else if speedup.high < 1.0 / floor {
            Verdict::Slower { speedup }
        } else {
            Verdict::NoChange { speedup }
        }
    }

    fn foul(&self, foul: Foul) -> Result<Verdict, AgentError> {
        match foul {
            Foul::Fault(fault) => self.fault(fault),
            Foul::Baseline(fault) => Err(AgentError::Baseline { kernel: self.session.target.kernel.clone(), what: format!("failed in mid-run: {fault}") }),
            Foul::Mismatch(mismatch) => Ok(Verdict::Wrong { reason: mismatch.reason }),
            Foul::Guard(broken) => Ok(Verdict::Wrong { reason: format!("wrote outside its buffers: {broken}") }),
            Foul::Slow(reason) => Ok(Verdict::Unstable { reason }),
            Foul::Stopped => Err(AgentError::Stopped),
        }
    }

    fn fault(&self, fault: Fault) -> Result<Verdict, AgentError> {
        fault.into_verdict()
    }
}

/// How long one launch may take before the candidate counts as hung.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(5);
