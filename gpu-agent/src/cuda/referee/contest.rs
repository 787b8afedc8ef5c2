//! Paired, interleaved timing on the device's own clock: baseline, candidate and the baseline once more take turns in random
//! order, each launch on memory of its own, drawn and poisoned just before.

use std::time::Instant;

use kernelopt_shared::stats::Interval;
use kernelopt_shared::task::Depth;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::check::Findings;
use super::memory::InputSet;
use super::session::{Player, Session};
use super::{Foul, candidates_fault};
use crate::cuda::device::{Block, Device};
use crate::referee::{Effort, Regime, Samples};

/// Share of rounds of which one launch is compared, unknown to the candidate.
const CHECKED_SHARE: f64 = 0.25;
/// Change of the multiprocessors' clock within a round, over the clock, beyond which the round says more about the clock.
const CLOCK_DRIFT: f64 = 0.02;

impl Session {
    /// Measures `candidate` until the interval is tight or the effort is spent.
    pub fn contest(
        &mut self,
        device: &mut dyn Device,
        candidate: &Player,
        depth: Depth,
        rng: &mut ChaCha8Rng,
    ) -> Result<(Samples, Option<Interval>), Foul> {
        let (effort, started) = (Effort::of(depth), Instant::now());
        let mut samples = Samples::default();
        // The first round wakes the clocks and loads the code; it is not counted.
        self.round(device, candidate, rng, &mut Samples::default())?;
        let mut before = device.state();
        loop {
            self.round(device, candidate, rng, &mut samples)?;
            let after = device.state();
            after.add_to(&mut samples.conditions);
            if f64::from(before.sm_mhz.abs_diff(after.sm_mhz)) > CLOCK_DRIFT * f64::from(before.sm_mhz) {
                samples.pairs_ns.pop();
                samples.control_ns.pop();
                samples.disturbed += 1;
            }
            before = after;
            let count = samples.pairs_ns.len();
            if count < effort.least_pairs {
                if samples.disturbed as usize > 4 * effort.most_pairs {
                    return Ok((samples, None));
                }
                continue;
            }
            let interval = samples.speedup(rng.random());
            if effort.is_spent(count, interval, started.elapsed()) {
                return Ok((samples, interval));
            }
        }
    }

    /// Every player once, in random order.
    fn round(&mut self, device: &mut dyn Device, candidate: &Player, rng: &mut ChaCha8Rng, samples: &mut Samples) -> Result<(), Foul> {
        const CANDIDATE: usize = 1;
        let mut order = [0, CANDIDATE, 2];
        order.shuffle(rng);
        let sets: Vec<InputSet> = (0..self.slots.len()).map(|_| InputSet { regime: Regime::Captured, seed: rng.random() }).collect();
        for (slot, set) in self.slots.iter_mut().zip(&sets) {
            slot.prepare(device, &self.plan, *set, rng.random())?;
        }
        let blocks = order.iter().map(|&player| self.block(if player == CANDIDATE { candidate } else { &self.baseline }, player));
        let blocks = blocks.collect::<Result<Vec<_>, Foul>>()?;
        let times = device.time(&blocks).map_err(candidates_fault)?;
        let mut launch_ns = [0.0; 3];
        order.iter().zip(&times).for_each(|(&player, time)| launch_ns[player] = time / self.launches as f64);
        samples.pairs_ns.push((launch_ns[0], launch_ns[CANDIDATE]));
        samples.control_ns.push(launch_ns[2]);
        if rng.random::<f64>() < CHECKED_SHARE {
            let chosen = CANDIDATE * self.launches + rng.random_range(0..self.launches);
            self.examine(device, chosen, sets[chosen], rng, &mut Findings::default())?;
            samples.outputs_checked += 1;
        }
        Ok(())
    }

    /// The block of one player, on its share of the slots.
    fn block(&self, player: &Player, position: usize) -> Result<Block, Foul> {
        let slots = &self.slots[position * self.launches..(position + 1) * self.launches];
        let runs = slots.iter().map(|slot| player.run(&self.plan, slot)).collect::<Result<_, _>>()?;
        Ok(Block { runs, cold: true })
    }
}
