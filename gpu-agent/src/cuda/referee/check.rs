//! Compares what a launch left with what it must have left. The truth is made here, after the launch, and forgotten again.

use kernelopt_shared::verdict::{Check, Verdict};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::memory::{InputSet, Slot};
use super::plan::Pointer;
use super::session::Session;
use super::{Foul, baselines_fault};
use crate::cuda::device::{Compared, Comparison, Device, Done};
use crate::referee::{Errors, Regime, Tolerance};

/// What was seen.
#[derive(Debug, Default)]
pub struct Findings {
    /// One row per output.
    pub checks: Vec<Check>,
    /// Greatest error of the compiler's kernel over the scale of the truth, over all outputs ([`Errors::relative`]).
    pub baseline_error: f64,
}

impl Session {
    /// Examines the memory of slot `index` after a launch on `set`.
    ///
    /// # Errors
    /// [`Foul::Candidate`] with the first thing that is not as it must be.
    pub fn examine(
        &mut self,
        device: &mut dyn Device,
        index: usize,
        set: InputSet,
        rng: &mut ChaCha8Rng,
        findings: &mut Findings,
    ) -> Result<(), Foul> {
        self.bear_witness(device, index, set, rng)?;
        let examined = self.compare_outputs(device, index, set, findings).and_then(|()| self.check_untouchable(device, index));
        self.truth.forget(device)?;
        self.rounded.as_mut().map_or(Ok(()), |truth| truth.forget(device))?;
        let outputs = |slot: &Slot| self.plan.outputs().map(|output| slot.elements(output)).collect::<Done<Vec<_>>>();
        for output in self.witness.iter().map(outputs).collect::<Done<Vec<_>>>()?.concat() {
            device.poison(output.span, rng.random())?;
        }
        examined?;
        match self.slots[index].trespass(device)? {
            Some(reason) => Err(Foul::Trespass(reason)),
            None => Ok(()),
        }
    }

    /// Fills all slots with inputs and poison.
    pub fn prepare_all(&mut self, device: &mut dyn Device, rng: &mut ChaCha8Rng) -> Done<()> {
        for slot in &mut self.slots {
            let set = InputSet { regime: Regime::Captured, seed: rng.random() };
            slot.prepare(device, &self.plan, set, rng.random())?;
        }
        Ok(())
    }

    /// After one launch in slot `index`, all others must be as they were prepared: a launch that does its neighbours' work lets
    /// these seem to take no time.
    pub fn check_others(&self, device: &mut dyn Device, index: usize) -> Result<(), Foul> {
        for (_, slot) in self.slots.iter().enumerate().filter(|(i, _)| *i != index) {
            if let Some(name) = slot.spoiled(device, &self.plan)? {
                return Err(Foul::Trespass(format!("wrote {name} of another launch")));
            }
        }
        Ok(())
    }

    /// Runs the compiler's kernel and the twin on the same inputs in memory of their own.
    fn bear_witness(&mut self, device: &mut dyn Device, index: usize, set: InputSet, rng: &mut ChaCha8Rng) -> Result<(), Foul> {
        let poison = self.slots[index].poison();
        let [compiled, exact] = &mut self.witness;
        compiled.prepare(device, &self.plan, set, poison)?;
        device.run(&self.baseline.steps(&self.plan, compiled, 0)?).map_err(baselines_fault(""))?;
        exact.prepare(device, &self.plan, set, poison)?;
        self.truth.run(device, &self.plan, exact, rng.random())?;
        if let Some(rounded) = &mut self.rounded {
            exact.prepare(device, &self.plan, set, poison)?;
            rounded.run(device, &self.plan, exact, self.truth.poison())?;
        }
        Ok(())
    }

    fn compare_outputs(&self, device: &mut dyn Device, index: usize, set: InputSet, findings: &mut Findings) -> Result<(), Foul> {
        let slot = &self.slots[index];
        for output in self.plan.outputs().filter(|output| output.judged) {
            let found = self.compare_output(device, slot, output, findings)?;
            findings.checks.push(Check {
                regime: set.regime.name().into(),
                output: output.name.clone(),
                worst: found.worst,
                max_error: found.max_error,
            });
            if let Some(element) = found.first_wrong {
                let detail = self.detail(device, slot, output, element)?;
                let reason =
                    format!("{} on {} inputs: {} elements, first element {element}{detail}", output.name, set.regime.name(), found.wrong);
                return Err(wrong(reason));
            }
        }
        Ok(())
    }

    /// Integers and booleans are those of the truth; where the compiler's kernel breaks a near-tie otherwise, its own.
    fn compare_output(&self, device: &mut dyn Device, slot: &Slot, output: &Pointer, findings: &mut Findings) -> Done<Comparison> {
        let [compiled, _] = &self.witness;
        let truth = self.truth.output(&output.name)?;
        let rounded = self.rounded.as_ref().map(|rounded| rounded.output(&output.name)).transpose()?;
        let baseline = compiled.elements(output)?;
        let errors =
            if output.dtype.is_float() { device.errors(baseline, truth, rounded, self.truth.poison())? } else { Errors::default() };
        findings.baseline_error = findings.baseline_error.max(errors.relative());
        let tolerance = Tolerance::from_errors(&errors, output.dtype, self.plan.reduction as usize);
        let compared = Compared {
            values: slot.elements(output)?,
            values_poison: slot.poison(),
            baseline,
            truth,
            rounded,
            truth_poison: self.truth.poison(),
        };
        device.compare(&compared, &tolerance.allowance())
    }

    /// Value, truth and the compiler's value of one element, in words.
    fn detail(&self, device: &mut dyn Device, slot: &Slot, output: &Pointer, element: u64) -> Done<String> {
        let value = super::element::read(device, slot.elements(output)?, element)?;
        let baseline = super::element::read(device, self.witness[0].elements(output)?, element)?;
        if !output.dtype.is_float() {
            return Ok(format!(" is {value}, the compiler's {baseline}"));
        }
        let truth = super::element::read_f64(device, self.truth.output(&output.name)?, element)?;
        Ok(format!(" is {value:e}, the truth is {truth:e}, the compiler's {baseline:e}"))
    }

    /// Nothing that no output covers may have changed.
    fn check_untouchable(&self, device: &mut dyn Device, index: usize) -> Result<(), Foul> {
        for (storage, offset, bytes) in self.plan.untouchable() {
            let part = |slot: &Slot| slot.storage(storage).and_then(|span| span.part(offset, bytes));
            let (Some(found), Some(drawn)) = (part(&self.slots[index]), part(&self.witness[1])) else { continue };
            if device.digest(found)? != device.digest(drawn)? {
                let names: Vec<&str> = self.plan.pointers().filter(|p| p.storage == storage).map(|p| p.name.as_str()).collect();
                return Err(wrong(format!("the memory of {} changed where it must not be written", names.join(" and "))));
            }
        }
        Ok(())
    }
}

fn wrong(reason: String) -> Foul {
    Foul::Candidate(Verdict::Wrong { reason })
}
