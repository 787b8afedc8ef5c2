//! The float64 truth: the twin's launch on inputs of its own.

use std::collections::BTreeMap;

use super::memory::Slot;
use super::plan::{Argument, Plan};
use super::{Foul, baselines_fault};
use crate::cuda::device::{Device, DeviceError, Done, KernelId, Run, Span, Value};
use crate::cuda::order::Twin;

/// A loaded twin with memory for the truth of every output, in float64.
#[derive(Debug)]
pub struct Truth {
    twin: Twin,
    kernel: KernelId,
    outputs: BTreeMap<String, Span>,
    /// Seed of what fills the outputs before a launch.
    poison: u64,
}

impl Truth {
    /// Loads the twin.
    pub fn load(device: &mut dyn Device, twin: &Twin, plan: &Plan) -> Result<Self, Foul> {
        if let Some(output) = plan.outputs().find(|output| output.dtype.is_float() && !twin.widened.contains(&output.name)) {
            return Err(Foul::Baseline(format!("has a float64 twin that leaves {} as it is", output.name)));
        }
        let kernel = device.load(&twin.built.binary).map_err(baselines_fault(" in float64"))?;
        let mut truth = Self { twin: twin.clone(), kernel, outputs: BTreeMap::new(), poison: 0 };
        for output in plan.outputs() {
            truth.outputs.insert(output.name.clone(), device.allocate(8 * output.elements)?);
        }
        Ok(truth)
    }

    /// Gives everything back.
    pub fn free(self, device: &mut dyn Device) -> Done<()> {
        device.unload(self.kernel)?;
        self.outputs.into_values().try_for_each(|span| device.free(span))
    }

    /// Computes the truth of the inputs in `slot`, which must have been prepared.
    pub fn run(&mut self, device: &mut dyn Device, plan: &Plan, slot: &Slot, poison: u64) -> Result<(), Foul> {
        self.poison = poison;
        for output in plan.outputs().filter(|output| self.is_widened(&output.name)) {
            let span = self.output(&output.name)?;
            if output.holds_entry {
                device.widen(slot.elements(output)?, span)?;
            } else {
                device.poison(span, poison)?;
            }
        }
        let run = Run { kernel: self.kernel, grid: plan.grid(&self.twin.built.launch)?, arguments: self.arguments(plan, slot)? };
        device.launch(&run).map_err(baselines_fault(" in float64"))?;
        // Integers and booleans are in the slot, in their own type.
        let others = plan.outputs().filter(|output| !self.is_widened(&output.name));
        others.into_iter().try_for_each(|output| Ok(device.widen(slot.elements(output)?, self.output(&output.name)?)?))
    }

    fn is_widened(&self, name: &str) -> bool {
        self.twin.widened.contains(name)
    }

    /// Leaves nothing of the truth behind.
    pub fn forget(&mut self, device: &mut dyn Device) -> Done<()> {
        let poison = self.poison;
        self.outputs.values().try_for_each(|span| device.poison(*span, poison))
    }

    /// The truth of an output.
    pub fn output(&self, name: &str) -> Done<Span> {
        self.outputs.get(name).copied().ok_or_else(|| DeviceError::Device(format!("there is no truth of {name}")))
    }

    /// Seed of what an element holds that the kernel does not write.
    pub const fn poison(&self) -> u64 {
        self.poison
    }

    fn arguments(&self, plan: &Plan, slot: &Slot) -> Done<Vec<Value>> {
        let constants = &self.twin.built.launch.constants;
        let mut values = slot.arguments(plan, &|name| constants.contains_key(name))?;
        let passed =
            plan.arguments.iter().filter(|argument| !matches!(argument, Argument::Size { name, .. } if constants.contains_key(name)));
        for (value, argument) in values.iter_mut().zip(passed) {
            if let Argument::Pointer(pointer) = argument
                && self.is_widened(&pointer.name)
            {
                *value = Value::Pointer(self.output(&pointer.name)?.address);
            }
        }
        Ok(values)
    }
}
