//! From a built candidate to a verdict.

use std::time::Instant;

use kernelopt_shared::task::Depth;
use kernelopt_shared::verdict::{Evidence, Verdict};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::check::Findings;
use super::memory::InputSet;
use super::player::Player;
use super::session::Session;
use super::{Foul, candidates_fault};
use crate::cuda::device::Device;
use crate::cuda::order::Judge;
use crate::referee::Regime;

/// Input sets with captured values in a full evaluation, besides one of every other regime.
const CAPTURED_SETS: usize = 3;
/// Launches on every input set when all are checked: a race shows itself only sometimes.
const REPEATS: usize = 3;
/// Differences below it are never called a gain: what the same kernel shows between two runs of the process.
const LEAST_NOISE: f64 = 0.01;

/// What came of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The decision.
    pub verdict: Verdict,
    /// The context, or what lies in its memory, is not to be trusted any more.
    pub lost: bool,
}

/// Verifies and measures the candidate of `order`; what is seen goes into `evidence`.
///
/// # Errors
/// What is not the candidate's fault; its own is a verdict.
pub fn judge(session: &mut Session, device: &mut dyn Device, order: &Judge, evidence: &mut Evidence) -> Result<Judgement, Foul> {
    let loaded = Player::load(device, &session.plan, &order.candidate, session.launches, candidates_fault);
    let outcome = loaded.and_then(|mut player| {
        evidence.scratch_bytes = player.workspace.bytes();
        let verdict = judge_loaded(session, device, &mut player, order, evidence);
        // A context that is lost has nothing to unload, and says so itself.
        let _ = player.unload(device);
        verdict
    });
    match outcome {
        Ok(verdict) => Ok(Judgement { verdict, lost: false }),
        Err(Foul::Candidate(verdict)) => Ok(Judgement { lost: matches!(verdict, Verdict::Crashed { .. }), verdict }),
        Err(Foul::Trespass(reason)) => Ok(Judgement { verdict: Verdict::Wrong { reason }, lost: true }),
        Err(foul) => Err(foul),
    }
}

fn judge_loaded(
    session: &mut Session,
    device: &mut dyn Device,
    player: &mut Player,
    order: &Judge,
    evidence: &mut Evidence,
) -> Result<Verdict, Foul> {
    let mut rng = ChaCha8Rng::seed_from_u64(order.seed);
    let started = Instant::now();
    let verified = verify(session, device, player, order.depth, &mut rng, evidence);
    evidence.verify_ms = started.elapsed().as_millis() as u64;
    verified?;
    let started = Instant::now();
    let measured = session.contest(device, player, order.depth, &mut rng);
    evidence.measure_ms = started.elapsed().as_millis() as u64;
    let (samples, speedup) = measured?;
    let least_us = session.bandwidth.least_us(session.target.traffic.total_bytes());
    let verdict = match (speedup, least_us.and_then(|least_us| samples.impossible(least_us))) {
        (_, Some(reason)) => Verdict::Rejected { reason },
        (Some(speedup), None) => samples.decide(speedup, LEAST_NOISE, rng.random()),
        (None, None) => Verdict::Unstable { reason: format!("the clocks changed in {} rounds", samples.disturbed) },
    };
    samples.into_evidence(evidence);
    Ok(verdict)
}

/// The input sets of this depth: every one several times at one address, so that new values come to a known address, and the
/// same values at another.
fn verify(
    session: &mut Session,
    device: &mut dyn Device,
    player: &mut Player,
    depth: Depth,
    rng: &mut ChaCha8Rng,
    evidence: &mut Evidence,
) -> Result<(), Foul> {
    let others = &Regime::ALL[1..];
    let (regimes, repeats) = match depth {
        Depth::Screen => (vec![Regime::Captured, others[rng.random_range(0..others.len())]], 1),
        Depth::Full | Depth::Confirm => {
            let captured = std::iter::repeat_n(Regime::Captured, CAPTURED_SETS);
            (captured.chain(others.iter().copied()).collect(), REPEATS)
        }
    };
    let home = rng.random_range(0..session.slots.len());
    session.prepare_all(device, rng)?;
    for set in 0..player.workspace.sets() {
        player.workspace.prepare(device, set, rng.random())?;
    }
    let mut first = true;
    for regime in regimes {
        let set = InputSet { regime, seed: rng.random() };
        for repeat in 0..repeats {
            let index = if repeat == 0 { home } else { rng.random_range(0..session.slots.len()) };
            let poison = rng.random();
            let scratch = index % player.workspace.sets().max(1);
            session.slots[index].prepare(device, &session.plan, set, poison)?;
            player.workspace.prepare(device, scratch, !poison)?;
            device.run(&player.steps(&session.plan, &session.slots[index], scratch)?).map_err(candidates_fault)?;
            if std::mem::take(&mut first) {
                session.check_others(device, index)?;
                player.workspace.check_others(device, scratch)?;
            }
            let mut findings = Findings::default();
            let examined = session.examine(device, index, set, rng, &mut findings);
            if repeat == 0 {
                evidence.checks.append(&mut findings.checks);
            }
            examined?;
            player.workspace.trespass(device, scratch)?;
        }
    }
    Ok(())
}
