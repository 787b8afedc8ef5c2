//! Paired, interleaved timing: baseline and candidate take turns in random order, in short blocks, and so does a control: the
//! baseline a second time, in a process of its own. What the control differs from the baseline is noise of this hour on this
//! host. A round in which the host gave a player's processor to others is thrown away.
//!
//! Each launch of a block has its own slot of memory, filled with inputs in an order that was never seen before and with
//! poisoned outputs: nothing can be remembered, no launch can be left out. Some of the slots, unknown to the candidate, are
//! compared afterwards with what the baseline left for the same inputs. A process is stopped except while it is timed.

use std::time::{Duration, Instant};

use kernelopt_shared::stats::Interval;
use kernelopt_shared::stop::Stop;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::case::{Case, Mismatch};
use super::player::Player;
use super::samples::{Effort, Samples};
use crate::cpu::arena::Trespass;
use crate::cpu::fault::Fault;

/// Least time of a block, so that the hand-over between processes weighs little.
const BLOCK: Duration = Duration::from_micros(1500);
/// Share of a block that its threads may have waited for a processor, all together. Beyond it the block says more about
/// the host than about the kernel: a barrier of two threads on a busy core takes as long as a time slice. On a quiet host
/// 99 of 100 blocks wait for less than a ninth.
const DISTURBED: f64 = 0.2;
/// Rounds that may be tried for each that is wanted, before the host is called too busy to measure on.
const PATIENCE: usize = 8;
/// Pause after a disturbed round, so that what disturbed it can pass.
const PAUSE: Duration = Duration::from_millis(5);
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
    /// Its time is not the same from launch to launch, or nothing can be measured on this host now.
    Unsteady(String),
    /// A stop was asked for.
    Stopped,
}

/// The players and what they are tried on.
pub struct Contest<'a> {
    /// The compiler's own code.
    pub baseline: &'a mut Player,
    /// The code offered.
    pub candidate: &'a mut Player,
    /// The compiler's own code in another process.
    pub control: Option<&'a mut Player>,
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

/// One block, timed.
struct Timing {
    /// Nanoseconds per launch.
    launch_ns: f64,
    /// True where the host gave the processors to others meanwhile.
    disturbed: bool,
}

/// Who plays a block.
#[derive(Clone, Copy)]
enum Side {
    Baseline,
    Candidate,
    Control,
}

impl Contest<'_> {
    /// Measures until the interval is tight or the effort is spent.
    pub fn run(&mut self, effort: Effort, stop: &Stop) -> Result<(Samples, Option<Interval>), Foul> {
        let started = Instant::now();
        let mut samples = Samples::default();
        // The first round warms caches, pages and thread pools of all; it is checked but not counted.
        self.round(&mut Samples::default())?;
        loop {
            if stop.asked() {
                return Err(Foul::Stopped);
            }
            self.round(&mut samples)?;
            let count = samples.pairs_ns.len();
            if count < effort.least_pairs {
                self.give_up_if_busy(&samples, effort)?;
                continue;
            }
            let interval = samples.speedup(self.rng.random());
            if effort.is_spent(count, interval, started.elapsed()) {
                return Ok((samples, interval));
            }
        }
    }

    fn give_up_if_busy(&self, samples: &Samples, effort: Effort) -> Result<(), Foul> {
        let (kept, tried) = (samples.pairs_ns.len(), samples.pairs_ns.len() + samples.disturbed as usize);
        if tried < PATIENCE * effort.least_pairs {
            return Ok(());
        }
        Err(Foul::Unsteady(format!(
            "the host is busy: others took the processors in {} of {tried} timed rounds, {kept} are too few",
            samples.disturbed
        )))
    }

    /// Every player once, in random order, on the same inputs.
    fn round(&mut self, samples: &mut Samples) -> Result<(), Foul> {
        let block = self.draw_block();
        let mut order = vec![Side::Baseline, Side::Candidate];
        order.extend(self.control.is_some().then_some(Side::Control));
        order.shuffle(self.rng);
        let (mut baseline, mut candidate, mut control, mut disturbed) = (0.0, 0.0, None, false);
        for side in order {
            let timing = self.time(side, &block)?;
            disturbed |= timing.disturbed;
            match side {
                Side::Baseline => baseline = timing.launch_ns,
                Side::Candidate => candidate = timing.launch_ns,
                Side::Control => control = Some(timing.launch_ns),
            }
        }
        samples.outputs_checked += self.check(&block)?;
        if disturbed {
            samples.disturbed += 1;
            std::thread::sleep(PAUSE);
        } else {
            samples.pairs_ns.push((baseline, candidate));
            samples.control_ns.extend(control);
        }
        Ok(())
    }

    fn draw_block(&mut self) -> Block {
        let mut slots: Vec<u32> = (0..self.candidate.arena.slots()).collect();
        slots.shuffle(self.rng);
        slots.truncate(self.launches);
        let loads = slots.iter().map(|_| (self.rng.random_range(0..self.cases.len()), self.rng.random())).collect();
        Block { slots, loads }
    }

    fn time(&mut self, side: Side, block: &Block) -> Result<Timing, Foul> {
        let player = match side {
            Side::Baseline => &mut *self.baseline,
            Side::Candidate => &mut *self.candidate,
            Side::Control => self.control.as_deref_mut().unwrap_or(&mut *self.baseline),
        };
        time_block(player, self.cases, block, self.timeout).map_err(|fault| match side {
            Side::Candidate => Foul::Fault(fault),
            Side::Baseline | Side::Control => Foul::Baseline(fault),
        })
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

fn time_block(player: &mut Player, cases: &[Case], block: &Block, timeout: Duration) -> Result<Timing, Fault> {
    for (slot, (case, turn)) in block.slots.iter().zip(&block.loads) {
        cases[*case].load_turned(&mut player.arena, *slot, *turn);
    }
    let waited_before = player.runner.run_delay();
    // No untimed launch goes before: it would see the inputs of the timed ones, and could do their work.
    let elapsed = player.runner.run(&block.slots, timeout)?;
    let waited = player.runner.run_delay().zip(waited_before).map_or(Duration::ZERO, |(after, before)| after.saturating_sub(before));
    let launch_ns = elapsed.as_nanos() as f64 / block.slots.len() as f64;
    Ok(Timing { launch_ns, disturbed: waited > elapsed.mul_f64(DISTURBED) })
}
