//! Everything that judging one target needs, made once and used for many candidates.

use kernelopt_shared::target::Target;
use kernelopt_shared::task::BandwidthCurve;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::check::Findings;
use super::memory::{InputSet, Slot};
use super::plan::Plan;
use super::player::Player;
use super::truth::Truth;
use super::{Foul, baselines_fault};
use crate::cuda::device::{Block, Device, Done};
use crate::cuda::order::OpenTarget;
use crate::referee::Regime;

/// Share of the device's memory that a session may take.
const MEMORY_SHARE: f64 = 0.6;
/// Time of a block of short launches: enough that the clock's resolution, half a microsecond, is nothing.
const BLOCK_NS: f64 = 60_000.0;
/// A launch that takes this long is a block by itself.
const LONG_NS: f64 = 20_000.0;
/// Most launches of a block.
const MOST_LAUNCHES: usize = 16;
/// Error of the baseline over the greatest true value before its meaning is doubted.
const BASELINE_DOUBT: f64 = 0.05;

/// A target, ready for judging.
pub struct Session {
    /// The target.
    pub target: Target,
    /// Its arguments.
    pub plan: Plan,
    /// The compiler's own kernel.
    pub baseline: Player,
    /// The float64 twin.
    pub truth: Truth,
    /// The twin in which re-read stores are rounded.
    pub rounded: Option<Truth>,
    /// The roof.
    pub bandwidth: BandwidthCurve,
    /// Memory of the candidate's launches: all of one block, for each of three players.
    pub slots: Vec<Slot>,
    /// Memory in which the compiler's kernel and the twin run when outputs are compared.
    pub witness: [Slot; 2],
    /// Launches of a block.
    pub launches: usize,
    /// Nanoseconds that one launch of the compiler's kernel takes.
    pub launch_ns: f64,
}

impl Session {
    /// Loads the compiler's kernel and its twin, sees that they agree and that fakes are found out, and takes the memory.
    ///
    /// # Errors
    /// [`Foul::Baseline`] where the compiler's own code cannot be judged by.
    pub fn open(device: &mut dyn Device, order: &OpenTarget) -> Result<Self, Foul> {
        let plan = Plan::of(&order.target)?;
        let baseline = Player::one(device, &order.baseline).map_err(baselines_fault(""))?;
        let truth = Truth::load(device, &order.twin, &plan)?;
        let rounded = order.rounded.as_ref().map(|twin| Truth::load(device, twin, &plan)).transpose()?;
        let witness = [Slot::allocate(device, &plan)?, Slot::allocate(device, &plan)?];
        let slots = vec![Slot::allocate(device, &plan)?];
        let (target, bandwidth) = (order.target.clone(), order.bandwidth.clone());
        let mut session = Self { target, plan, baseline, truth, rounded, bandwidth, slots, witness, launches: 1, launch_ns: 0.0 };
        let mut rng = ChaCha8Rng::seed_from_u64(!order.seed);
        session.examine_the_baseline(device, &mut rng)?;
        session.size_blocks(device, &mut rng)?;
        Ok(session)
    }

    /// Gives all memory back.
    pub fn close(self, device: &mut dyn Device) -> Done<()> {
        self.baseline.unload(device)?;
        self.truth.free(device)?;
        self.rounded.map_or(Ok(()), |truth| truth.free(device))?;
        self.slots.into_iter().chain(self.witness).try_for_each(|slot| slot.free(device))
    }

    /// The compiler's code must agree with its twin, and fakes must not.
    fn examine_the_baseline(&mut self, device: &mut dyn Device, rng: &mut ChaCha8Rng) -> Result<(), Foul> {
        let set = InputSet { regime: Regime::Captured, seed: rng.random() };
        self.slots[0].prepare(device, &self.plan, set, rng.random())?;
        device.run(&self.baseline.steps(&self.plan, &self.slots[0], 0)?).map_err(baselines_fault(""))?;
        let mut findings = Findings::default();
        self.examine(device, 0, set, rng, &mut findings).map_err(|foul| match foul {
            Foul::Candidate(verdict) => Foul::Baseline(format!("does not repeat its own result: {verdict:?}")),
            other => other,
        })?;
        if findings.baseline_error > BASELINE_DOUBT {
            return Err(Foul::Baseline(format!("is {:.1} % off its float64 twin", 100.0 * findings.baseline_error)));
        }
        self.run_null_controls(device, rng)
    }

    /// Nothing written, zeros and the outputs of other inputs must be called wrong, or a wrong candidate could pass.
    fn run_null_controls(&mut self, device: &mut dyn Device, rng: &mut ChaCha8Rng) -> Result<(), Foul> {
        let [set, other] = [rng.random(), rng.random()].map(|seed| InputSet { regime: Regime::Captured, seed });
        // Without inputs there are no others.
        let controls = if self.plan.inputs().next().is_some() { 3 } else { 2 };
        for control in &["nothing written", "zeros", "the outputs of other inputs"][..controls] {
            let poison = rng.random();
            match *control {
                "nothing written" => self.slots[0].prepare(device, &self.plan, set, poison)?,
                "zeros" => {
                    self.slots[0].prepare(device, &self.plan, set, poison)?;
                    for output in self.plan.outputs() {
                        let span = self.slots[0].elements(output)?.span;
                        device.upload(span, &vec![0; span.bytes as usize])?;
                    }
                }
                _ => {
                    self.slots[0].prepare(device, &self.plan, other, poison)?;
                    device.run(&self.baseline.steps(&self.plan, &self.slots[0], 0)?).map_err(baselines_fault(""))?;
                    self.slots[0].redraw_read_only(device, &self.plan, set)?;
                }
            }
            let outcome = self.examine(device, 0, set, rng, &mut Findings::default());
            match outcome {
                Err(Foul::Candidate(_) | Foul::Trespass(_)) => {}
                Ok(()) => return Err(Foul::Baseline(format!("cannot be told from a fake: the null control \"{control}\" passes"))),
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// How many launches make a block, and memory for them.
    fn size_blocks(&mut self, device: &mut dyn Device, rng: &mut ChaCha8Rng) -> Result<(), Foul> {
        let block = Block { steps: self.baseline.steps(&self.plan, &self.slots[0], 0)?, cold: true };
        let times = device.time(&vec![block; 5]).map_err(baselines_fault(""))?;
        let launch_ns = times.into_iter().fold(f64::INFINITY, f64::min).max(1.0);
        self.launch_ns = launch_ns;
        if launch_ns < LONG_NS {
            self.launches = ((BLOCK_NS / launch_ns) as usize).clamp(1, MOST_LAUNCHES);
        }
        let taken = device.allocated_bytes() - Slot::bytes(&self.plan);
        let budget = ((MEMORY_SHARE * device.facts().memory_bytes as f64) as u64).saturating_sub(taken);
        let affordable = (budget / Slot::bytes(&self.plan).max(1)) as usize;
        self.launches = self.launches.min((affordable / 3).max(1));
        while self.slots.len() < 3 * self.launches {
            let mut slot = Slot::allocate(device, &self.plan)?;
            slot.prepare(device, &self.plan, InputSet { regime: Regime::Captured, seed: rng.random() }, rng.random())?;
            self.slots.push(slot);
        }
        Ok(())
    }
}
