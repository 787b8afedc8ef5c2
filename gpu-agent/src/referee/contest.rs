//! Paired, interleaved timing: baseline and candidate take turns in random order, in short blocks, over the same memory.
//!
//! Every launch of a block has its own slot of memory, filled afresh with one of several input sets and poisoned outputs,
//! so that nothing can be remembered and no launch can be left out: after a block, the slot launched last and one other,
//! unknown to the candidate, are compared with the truth. The process that is not measured is paused.

use std::time::{Duration, Instant};

use kernelopt_shared::stats::{Interval, paired_speedup};
use kernelopt_shared::stop::Stop;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;

use super::case::{Case, Mismatch};
use crate::cpu::{Arena, Fault, Runner};

/// Least time of a block, so that the hand-over between processes weighs little.
const BLOCK: Duration = Duration::from_micros(1500);

/// Why a contest ended without a figure.
pub enum Foul {
    /// The candidate's process did not survive or broke the protocol.
    Fault(Fault),
    /// The baseline's process did not survive.
    Baseline(Fault),
    /// A timed launch left a wrong output.
    Mismatch(Mismatch),
    /// A guard zone around a buffer was written.
    Guard(String),
    /// A stop was asked for.
    Stopped,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Pairs before any decision.
    pub least_pairs: usize,
    /// Pairs at most.
    pub most_pairs: usize,
    /// Half width of the interval, relative to the estimate, that is tight enough.
    pub tight: f64,
    /// Time at most, once the least pairs are there.
    pub time: Duration,
}

/// Samples of a contest.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Nanoseconds per launch: baseline and candidate.
    pub pairs_ns: Vec<(f64, f64)>,
    /// Timed launches whose outputs were compared.
    pub outputs_checked: u64,
}

/// Two processes over one memory.
pub struct Contest<'a> {
    /// Shared memory.
    pub arena: &'a mut Arena,
    /// Input sets that are timed.
    pub cases: &'a [Case],
    /// The compiler's own code.
    pub baseline: &'a mut Runner,
    /// The code offered.
    pub candidate: &'a mut Runner,
    /// Launches of the baseline in [`BLOCK`], by an earlier look.
    pub launches: usize,
    /// How long one block may take before the process counts as hung.
    pub timeout: Duration,
    /// Orders and draws.
    pub rng: &'a mut ChaCha8Rng,
}

/// Launches in a block of a kernel that takes `launch` each, with `slots` slots.
pub fn launches_per_block(launch: Duration, slots: usize) -> usize {
    let wanted = BLOCK.as_nanos().div_ceil(launch.as_nanos().max(1)) as usize;
    wanted.clamp(1, slots)
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Baseline,
    Candidate,
}

impl Contest<'_> {
    /// Measures until the interval is tight or the effort is spent.
    pub fn run(&mut self, effort: Effort, stop: &Stop) -> Result<(Samples, Option<Interval>), Foul> {
        let started = Instant::now();
        let mut samples = Samples::default();
        // The first pair warms caches, pages and thread pools of both; it is checked but not counted.
        self.pair(&mut Samples::default())?;
        loop {
            if stop.asked() {
                return Err(Foul::Stopped);
            }
            self.pair(&mut samples)?;
            let count = samples.pairs_ns.len();
            if count < effort.least_pairs {
                continue;
            }
            let interval = paired_speedup(&samples.pairs_ns, self.rng.random());
            let tight = interval.is_some_and(|i| i.relative_half_width() < effort.tight);
            if tight || count >= effort.most_pairs || started.elapsed() > effort.time {
                return Ok((samples, interval));
            }
        }
    }

    fn pair(&mut self, samples: &mut Samples) -> Result<(), Foul> {
        let mut slots: Vec<u32> = (0..self.arena.slots() as u32).collect();
        slots.shuffle(self.rng);
        slots.truncate(self.launches);
        let cases: Vec<usize> = slots.iter().map(|_| self.rng.random_range(0..self.cases.len())).collect();
        let mut order = [Side::Baseline, Side::Candidate];
        order.shuffle(self.rng);
        let mut pair = (0.0, 0.0);
        for side in order {
            let ns = self.block(side, &slots, &cases)?.as_nanos() as f64 / slots.len() as f64;
            match side {
                Side::Baseline => pair.0 = ns,
                Side::Candidate => {
                    pair.1 = ns;
                    samples.outputs_checked += self.check(&slots, &cases)?;
                }
            }
        }
        samples.pairs_ns.push(pair);
        Ok(())
    }

    fn block(&mut self, side: Side, slots: &[u32], cases: &[usize]) -> Result<Duration, Foul> {
        for (slot, case) in slots.iter().zip(cases) {
            self.cases[*case].load(self.arena, *slot as usize);
        }
        let runner = if side == Side::Baseline { &mut *self.baseline } else { &mut *self.candidate };
        let foul = if side == Side::Baseline { Foul::Baseline } else { Foul::Fault };
        let timed = runner.resume().and_then(|()| runner.run(slots, self.timeout));
        let paused = runner.pause();
        let elapsed = timed.map_err(foul)?;
        paused.map_err(foul)?;
        Ok(elapsed)
    }

    /// Compares the slot launched last and one other.
    fn check(&mut self, slots: &[u32], cases: &[usize]) -> Result<u64, Foul> {
        let last = slots.len() - 1;
        let other = self.rng.random_range(0..slots.len());
        let chosen = if other == last { vec![last] } else { vec![last, other] };
        for &i in &chosen {
            let slot = slots[i] as usize;
            self.cases[cases[i]].check(&self.arena.storages(slot), &mut Vec::new()).map_err(Foul::Mismatch)?;
            if let Some(broken) = self.arena.broken_guard(slot) {
                return Err(Foul::Guard(broken));
            }
        }
        Ok(chosen.len() as u64)
    }
}
