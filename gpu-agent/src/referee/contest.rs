//! Paired, interleaved timing: baseline and candidate take turns in random order, in short blocks.
//!
//! Each launch of a block has its own slot of memory, filled with inputs in an order that was never seen before and with
//! poisoned outputs: nothing can be remembered, no launch can be left out. Some of the slots, unknown to the candidate, are
//! compared afterwards with what the baseline left for the same inputs. A process is stopped except while it is timed.

use std::time::{Duration, Instant};

use kernelopt_shared::stats::{Interval, paired_speedup};
use kernelopt_shared::stop::Stop;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::case::{Case, Mismatch};
use super::player::Player;
use crate::cpu::arena::Trespass;
use crate::cpu::fault::Fault;

/// Least time of a block, so that the hand-over between processes weighs little.
const BLOCK: Duration = Duration::from_micros(1500);
/// Slots of a block that are compared.
const CHECKED: usize = 2;

/// Why a contest ended without a figure.
pub enum Foul {
    /// The candidate's process did not survive or broke the protocol.
    Fault(Fault),
    /// The baseline's process did not survive.
    Baseline(Fault),
    /// A launch left a wrong output.
    Mismatch(Mismatch),
    /// A guard zone around a buffer was written.
    Guard(Trespass),
    /// Its time is not the same from launch to launch.
    Unsteady(String),
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

/// Two players and what they are tried on.
pub struct Contest<'a> {
    /// The compiler's own code.
    pub baseline: &'a mut Player,
    /// The code offered.
    pub candidate: &'a mut Player,
    /// Input sets that are timed.
    pub cases: &'a [Case],
    /// Launches in a block.
    pub launches: usize,
    /// How long a block may take before the process counts as hung.
    pub timeout: Duration,
    /// Orders and draws.
    pub rng: &'a mut ChaCha8Rng,
}

/// Launches in a block of a kernel that takes `launch` each, where there are `slots` slots.
pub fn launches_per_block(launch: Duration, slots: u32) -> usize {
    let wanted = BLOCK.as_nanos().div_ceil(launch.as_nanos().max(1)) as usize;
    wanted.clamp(1, slots as usize)
}

/// What is launched in one block, the same for both players.
struct Block {
    /// Slots in order.
    slots: Vec<u32>,
    /// Input set and turn of each slot.
    loads: Vec<(usize, f64)>,
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
        let block = self.draw_block();
        let candidate_first = self.rng.random();
        let (baseline, candidate) = if candidate_first {
            let candidate = self.candidate_ns(&block)?;
            (self.baseline_ns(&block)?, candidate)
        } else {
            (self.baseline_ns(&block)?, self.candidate_ns(&block)?)
        };
        samples.pairs_ns.push((baseline, candidate));
        samples.outputs_checked += self.check(&block)?;
        Ok(())
    }

    fn draw_block(&mut self) -> Block {
        let mut slots: Vec<u32> = (0..self.candidate.arena.slots()).collect();
        slots.shuffle(self.rng);
        slots.truncate(self.launches);
        let loads = slots.iter().map(|_| (self.rng.random_range(0..self.cases.len()), self.rng.random())).collect();
        Block { slots, loads }
    }

    fn baseline_ns(&mut self, block: &Block) -> Result<f64, Foul> {
        time_block(self.baseline, self.cases, block, self.timeout).map_err(Foul::Baseline)
    }

    fn candidate_ns(&mut self, block: &Block) -> Result<f64, Foul> {
        time_block(self.candidate, self.cases, block, self.timeout).map_err(Foul::Fault)
    }

    /// Compares the slot launched last, which an answer sent too early would miss, and others.
    fn check(&mut self, block: &Block) -> Result<u64, Foul> {
        let mut chosen = vec![block.slots.len() - 1];
        chosen.extend((1..CHECKED).map(|_| self.rng.random_range(0..block.slots.len())));
        for &i in &chosen {
            let (slot, case) = (block.slots[i], &self.cases[block.loads[i].0]);
            case.check_twin(&self.candidate.storages(slot), &self.baseline.storages(slot)).map_err(Foul::Mismatch)?;
        }
        self.candidate.arena.check_guards(block.slots.iter().copied()).map_err(Foul::Guard)?;
        Ok(chosen.len() as u64)
    }
}

fn time_block(player: &mut Player, cases: &[Case], block: &Block, timeout: Duration) -> Result<f64, Fault> {
    for (slot, (case, turn)) in block.slots.iter().zip(&block.loads) {
        cases[*case].load_turned(&mut player.arena, *slot, *turn);
    }
    // No untimed launch goes before: it would see the inputs of the timed ones, and could do their work.
    let elapsed = player.runner.run(&block.slots, timeout)?;
    Ok(elapsed.as_nanos() as f64 / block.slots.len() as f64)
}
