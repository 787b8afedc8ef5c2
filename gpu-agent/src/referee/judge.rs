//! From a built candidate to a verdict.

use std::path::Path;
use std::time::{Duration, Instant};

use kernelopt_shared::stats::Interval;
use kernelopt_shared::stop::Stop;
use kernelopt_shared::task::{AgentError, Depth};
use kernelopt_shared::verdict::{Evidence, Verdict};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::contest::Foul;
use super::player::{FirstLaunches, Player};
use super::samples::{Effort, Samples};
use super::session::{Session, not_the_candidate};
use crate::bandwidth::Roof;
use crate::cpu::fault::Fault;

/// Launches on every input set when all are checked: a race shows itself only sometimes.
const REPEATS: usize = 3;
/// Input sets of a screening look.
const SCREEN_CASES: usize = 2;
/// What the first launches of a fresh process may cost beyond three times the baseline's.
const FIRST_LAUNCHES_SLACK: Duration = Duration::from_millis(20);
/// Processes whose first launches are looked at before they are called slow.
const FRESH_PROCESSES: usize = 3;

/// One evaluation.
pub struct Judge<'a> {
    /// The target's session.
    pub session: &'a mut Session,
    /// The roof over what a launch can do.
    pub roof: &'a mut Roof,
    /// Asked to stop?
    pub stop: &'a Stop,
}

impl Judge<'_> {
    /// Verifies and measures the candidate built as `library`; what is seen goes into `evidence`.
    ///
    /// # Errors
    /// Only what is not the candidate's fault.
    pub fn judge(&mut self, library: &Path, depth: Depth, seed: u64, evidence: &mut Evidence) -> Result<Verdict, AgentError> {
        let mut player = match self.session.stage.enter(library)? {
            Ok(player) => player,
            Err(fault) => return verdict_of(&fault),
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let started = Instant::now();
        let first = self.check_first_launches(library, &mut player)?;
        let verified = first.and_then(|()| self.verify(&mut player, depth, &mut rng, evidence));
        evidence.verify_ms = started.elapsed().as_millis() as u64;
        if let Err(foul) = verified {
            return self.verdict_of(foul);
        }
        let started = Instant::now();
        let measured = self.measure(&mut player, depth, &mut rng);
        evidence.measure_ms = started.elapsed().as_millis() as u64;
        let (samples, speedup) = match measured {
            Ok(measured) => measured,
            Err(foul) => return self.verdict_of(foul),
        };
        let Some(speedup) = speedup else { return Ok(Verdict::Unstable { reason: "no positive time was measured".into() }) };
        let verdict = self.decide(speedup, &samples, rng.random());
        samples.into_evidence(evidence);
        Ok(verdict)
    }

    /// The input sets of this depth, several times over: at first all at one address, so that new values come to a known
    /// address, then the same values again there, then at another.
    fn verify(&mut self, player: &mut Player, depth: Depth, rng: &mut ChaCha8Rng, evidence: &mut Evidence) -> Result<(), Foul> {
        let cases = &self.session.cases;
        let (count, repeats) = if depth == Depth::Screen { (SCREEN_CASES, 1) } else { (cases.len(), REPEATS) };
        let offset = rng.random_range(0..cases.len());
        let home = rng.random_range(0..player.arena.slots());
        for round in 0..repeats {
            for i in 0..count {
                if self.stop.asked() {
                    return Err(Foul::Stopped);
                }
                // Captured values always, the other regimes in turn.
                let case = &cases[if i == 0 { 0 } else { (offset + i) % cases.len() }];
                let slot = if round < 2 { home } else { rng.random_range(0..player.arena.slots()) };
                player.launch(case, slot).map_err(Foul::Fault)?;
                let mut checks = Vec::new();
                let checked = case.check(&player.storages(slot), &mut checks);
                if round == 0 {
                    evidence.checks.extend(checks);
                }
                player.arena.check_guards([slot]).map_err(Foul::Guard)?;
                checked.map_err(Foul::Mismatch)?;
            }
        }
        Ok(())
    }

    /// What a candidate does on its first launches is part of its cost. A busy host makes one process slow to start, not
    /// several in a row.
    fn check_first_launches(&mut self, library: &Path, player: &mut Player) -> Result<Result<(), Foul>, AgentError> {
        let usual = self.session.first.total;
        let allowed = 3 * usual + FIRST_LAUNCHES_SLACK;
        let case = &self.session.cases[0];
        let mut first = player.first_launches(case);
        for _ in 1..FRESH_PROCESSES {
            if first.as_ref().is_ok_and(|first| first.total > allowed) {
                first = self.session.stage.enter(library)?.and_then(|mut fresh| fresh.first_launches(case));
            }
        }
        Ok(match first {
            Err(fault) => Err(Foul::Fault(fault)),
            Ok(first) if first.total <= allowed => Ok(()),
            Ok(FirstLaunches { total, .. }) => {
                Err(Foul::Unsteady(format!("the first launches of a process take {total:.1?} together, the baseline's {usual:.1?}")))
            }
        })
    }

    fn measure(&mut self, player: &mut Player, depth: Depth, rng: &mut ChaCha8Rng) -> Result<(Samples, Option<Interval>), Foul> {
        self.session.contest(player, depth != Depth::Screen, rng).run(Effort::of(depth), self.stop)
    }

    fn decide(&mut self, speedup: Interval, samples: &Samples, seed: u64) -> Verdict {
        if let Some(reason) = self.impossible(samples) {
            return Verdict::Rejected { reason };
        }
        samples.decide(speedup, self.session.noise, seed)
    }

    /// Faster than its bytes can move, even by a second look at the roof.
    fn impossible(&mut self, samples: &Samples) -> Option<String> {
        let bytes = self.session.target.traffic.total_bytes();
        samples.impossible(self.roof.curve().least_us(bytes)?)?;
        samples.impossible(self.roof.raise().least_us(bytes)?)
    }

    fn verdict_of(&self, foul: Foul) -> Result<Verdict, AgentError> {
        let kernel = || self.session.target.kernel.clone();
        match foul {
            Foul::Fault(fault) => verdict_of(&fault),
            Foul::Baseline(fault) => Err(AgentError::Baseline { kernel: kernel(), what: format!("failed in mid-run: {fault}") }),
            Foul::Mismatch(mismatch) => Ok(Verdict::Wrong { reason: mismatch.reason }),
            Foul::Guard(trespass) => Ok(Verdict::Wrong { reason: format!("wrote outside its buffers: {trespass}") }),
            Foul::Unsteady(reason) => Ok(Verdict::Unstable { reason }),
            Foul::Stopped => Err(AgentError::Stopped),
        }
    }
}

fn verdict_of(fault: &Fault) -> Result<Verdict, AgentError> {
    fault.verdict().ok_or_else(|| not_the_candidate(fault))
}
