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
use super::player::Player;
use super::session::Session;
use super::{Foul, candidates_fault};
use crate::cuda::device::{Block, Device};
use crate::referee::{Effort, Regime, Samples};

/// Share of rounds of which one launch of the candidate is compared, unknown to it; of the others the same share has one of the
/// compiler's kernel compared, which the candidate could have disturbed.
const CHECKED_SHARE: f64 = 0.25;
/// Change of the multiprocessors' clock within a round, over the clock, beyond which the round says more about the clock.
const CLOCK_DRIFT: f64 = 0.02;

impl Session {
    /// Measures `candidate` until the interval is tight or the effort is spent.
    pub fn contest(
        &mut self,
        device: &mut dyn Device,
        candidate: &mut Player,
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
    fn round(&mut self, device: &mut dyn Device, candidate: &mut Player, rng: &mut ChaCha8Rng, samples: &mut Samples) -> Result<(), Foul> {
        const BASELINE: usize = 0;
        const CANDIDATE: usize = 1;
        const CONTROL: usize = 2;
        let mut order = [BASELINE, CANDIDATE, CONTROL];
        order.shuffle(rng);
        // Which launch gets which memory is drawn anew, so that none can know its neighbours.
        let mut places: Vec<usize> = (0..self.slots.len()).collect();
        places.shuffle(rng);
        let sets: Vec<InputSet> = places.iter().map(|_| InputSet { regime: Regime::Captured, seed: rng.random() }).collect();
        for (slot, set) in self.slots.iter_mut().zip(&sets) {
            slot.prepare(device, &self.plan, *set, rng.random())?;
        }
        // The same of its scratch memory: a compiler's kernel has none.
        let mut scratch: Vec<usize> = (0..candidate.workspace.sets()).collect();
        scratch.shuffle(rng);
        for &set in &scratch {
            candidate.workspace.prepare(device, set, rng.random())?;
        }
        let share = |player: usize| &places[player * self.launches..(player + 1) * self.launches];
        let block = |&player: &usize| match player {
            CANDIDATE => self.block(candidate, share(player), &scratch),
            _ => self.block(&self.baseline, share(player), &[]),
        };
        let blocks = order.iter().map(block).collect::<Result<Vec<_>, Foul>>()?;
        let times = device.time(&blocks).map_err(candidates_fault)?;
        let mut launch_ns = [0.0; 3];
        order.iter().zip(&times).for_each(|(&player, time)| launch_ns[player] = time / self.launches as f64);
        samples.pairs_ns.push((launch_ns[BASELINE], launch_ns[CANDIDATE]));
        samples.control_ns.push(launch_ns[CONTROL]);
        if rng.random::<f64>() < CHECKED_SHARE {
            let number = rng.random_range(0..self.launches);
            let chosen = share(CANDIDATE)[number];
            self.examine(device, chosen, sets[chosen], rng, &mut Findings::default())?;
            candidate.workspace.trespass(device, scratch.get(number).copied().unwrap_or(0))?;
            samples.outputs_checked += 1;
        } else if rng.random::<f64>() < CHECKED_SHARE {
            let chosen = share(if rng.random() { BASELINE } else { CONTROL })[0];
            self.examine(device, chosen, sets[chosen], rng, &mut Findings::default()).map_err(|foul| match foul {
                Foul::Candidate(verdict) => Foul::Trespass(format!("the compiler's kernel came out otherwise beside it: {verdict:?}")),
                other => other,
            })?;
        }
        Ok(())
    }

    /// The block of one player, on these slots, each with a scratch set of its own.
    fn block(&self, player: &Player, places: &[usize], scratch: &[usize]) -> Result<Block, Foul> {
        let mut steps = Vec::new();
        for (number, &place) in places.iter().enumerate() {
            steps.extend(player.steps(&self.plan, &self.slots[place], scratch.get(number).copied().unwrap_or(0))?);
        }
        Ok(Block { steps, cold: true })
    }
}
