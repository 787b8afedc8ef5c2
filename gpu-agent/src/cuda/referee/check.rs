//! Compares what a launch left with what it must have left. The truth is made here, after the launch, and forgotten again.

use kernelopt_shared::verdict::{Check, Verdict};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::memory::{InputSet, Slot};
use super::plan::Pointer;
use super::session::Session;
use super::{Foul, baselines_fault};
use crate::cuda::device::{Compared, Comparison, Device, Done};
use crate::referee::{Errors, Tolerance};

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
        let examined = self.compare_outputs(device, index, set, findings);
        self.truth.forget(device)?;
        self.rounded.as_mut().map_or(Ok(()), |truth| truth.forget(device))?;
        examined?;
        self.check_inputs(device, index)?;
        match self.slots[index].trespass(device)? {
            Some(reason) => Err(wrong(reason)),
            None => Ok(()),
        }
    }

    /// Runs the compiler's kernel and the twin on the same inputs in memory of their own.
    fn bear_witness(&mut self, device: &mut dyn Device, index: usize, set: InputSet, rng: &mut ChaCha8Rng) -> Result<(), Foul> {
        let poison = self.slots[index].poison();
        let [compiled, exact] = &mut self.witness;
        compiled.prepare(device, &self.plan, set, poison)?;
        device.launch(&self.baseline.run(&self.plan, compiled)?).map_err(baselines_fault(""))?;
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
            let found = if output.dtype.is_float() {
                self.compare_floats(device, slot, output, findings)?
            } else {
                self.compare_integers(device, slot, output)?
            };
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

    fn compare_floats(&self, device: &mut dyn Device, slot: &Slot, output: &Pointer, findings: &mut Findings) -> Done<Comparison> {
        let [compiled, _] = &self.witness;
        let truth = self.truth.output(&output.name)?;
        let rounded = self.rounded.as_ref().map(|rounded| rounded.output(&output.name)).transpose()?;
        let baseline = compiled.elements(output)?;
        let bins = device.errors(baseline, truth, rounded, self.truth.poison())?;
        let errors = Errors { greatest: bins.greatest, count: bins.count, squares: bins.squares };
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

    /// Integers and booleans are those of the truth; where the compiler's kernel breaks a near-tie otherwise, its own.
    fn compare_integers(&self, device: &mut dyn Device, slot: &Slot, output: &Pointer) -> Done<Comparison> {
        let values = slot.elements(output)?;
        let [compiled, exact] = &self.witness;
        let of_truth = device.first_difference(values, exact.elements(output)?)?;
        let first_wrong = match of_truth {
            None => None,
            Some(_) => device.first_difference(values, compiled.elements(output)?)?,
        };
        let wrong = u64::from(first_wrong.is_some());
        Ok(Comparison { worst: if wrong > 0 { 1e9 } else { 0.0 }, max_error: 0.0, wrong, first_wrong })
    }

    /// Value, truth and the compiler's value of one element, in words.
    fn detail(&self, device: &mut dyn Device, slot: &Slot, output: &Pointer, element: u64) -> Done<String> {
        let value = super::element::read(device, slot.elements(output)?, element)?;
        let baseline = super::element::read(device, self.witness[0].elements(output)?, element)?;
        if !output.dtype.is_float() {
            return Ok(format!(" is {value}, the compiler's is {baseline}"));
        }
        let truth = super::element::read_f64(device, self.truth.output(&output.name)?, element)?;
        Ok(format!(" is {value:e}, the truth is {truth:e}, the compiler's {baseline:e}"))
    }

    /// Not a byte of what is only read may have changed.
    fn check_inputs(&self, device: &mut dyn Device, index: usize) -> Result<(), Foul> {
        for storage in self.plan.read_only_storages() {
            let (Some(found), Some(drawn)) = (self.slots[index].storage(storage), self.witness[1].storage(storage)) else { continue };
            if device.digest(found)? != device.digest(drawn)? {
                let names: Vec<&str> = self.plan.pointers().filter(|p| p.storage == storage).map(|p| p.name.as_str()).collect();
                return Err(wrong(format!("{} changed where it must only be read", names.join(" and "))));
            }
        }
        Ok(())
    }
}

fn wrong(reason: String) -> Foul {
    Foul::Candidate(Verdict::Wrong { reason })
}
