//! Device memory of one launch: every storage of a target between two guard zones.

use super::Foul;
use super::plan::{Argument, Plan, Pointer};
use super::room::Room;
use crate::cuda::device::{Device, DeviceError, Done, Draw, Elements, Span, Value};
use crate::referee::Regime;

/// One input set: where all its values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputSet {
    /// How they are drawn.
    pub regime: Regime,
    /// Every element is a function of this, the argument and the element's position.
    pub seed: u64,
}

/// Memory for one launch.
#[derive(Debug)]
pub struct Slot {
    rooms: Vec<Room>,
    /// Seed of what fills guards and outputs now.
    poison: u64,
}

impl Slot {
    /// Bytes that a slot takes.
    pub fn bytes(plan: &Plan) -> u64 {
        plan.storages.iter().map(|bytes| Room::bytes(*bytes)).sum()
    }

    /// Takes the memory.
    pub fn allocate(device: &mut dyn Device, plan: &Plan) -> Done<Self> {
        Room::allocate_all(device, &plan.storages).map(|rooms| Self { rooms, poison: 0 })
    }

    /// Gives it back.
    pub fn free(self, device: &mut dyn Device) -> Done<()> {
        self.rooms.into_iter().try_for_each(|room| room.free(device))
    }

    /// Memory of a storage.
    pub fn storage(&self, storage: usize) -> Option<Span> {
        self.rooms.get(storage).map(|room| room.inner)
    }

    /// Elements of an argument.
    pub fn elements(&self, pointer: &Pointer) -> Done<Elements> {
        let elements = self.storage(pointer.storage).and_then(|storage| pointer.at(storage));
        elements.ok_or_else(|| DeviceError::Device(format!("{} lies outside its storage", pointer.name)))
    }

    /// Seed of the poison that outputs hold before a launch.
    pub const fn poison(&self) -> u64 {
        self.poison
    }

    /// Poisons everything, then draws the inputs.
    pub fn prepare(&mut self, device: &mut dyn Device, plan: &Plan, set: InputSet, poison: u64) -> Done<()> {
        self.poison = poison;
        for room in &self.rooms {
            room.poison(device, poison)?;
        }
        for (i, input) in plan.inputs().enumerate() {
            self.draw(device, plan, input, i, set)?;
        }
        // Outputs lie at offsets of their own; each holds poison from its own start, so that it can be found again.
        for output in plan.outputs().filter(|output| !output.holds_entry) {
            device.poison(self.elements(output)?.span, poison)?;
        }
        Ok(())
    }

    /// Draws the inputs of another set where nothing is written, and leaves all else as it is.
    pub fn redraw_read_only(&self, device: &mut dyn Device, plan: &Plan, set: InputSet) -> Done<()> {
        let read_only: Vec<usize> = plan.read_only_storages().collect();
        let inputs = plan.inputs().enumerate().filter(|(_, input)| read_only.contains(&input.storage));
        inputs.into_iter().try_for_each(|(i, input)| self.draw(device, plan, input, i, set))
    }

    fn draw(&self, device: &mut dyn Device, plan: &Plan, input: &Pointer, position: usize, set: InputSet) -> Done<()> {
        let seed = set.seed.wrapping_add((position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let draw = Draw { regime: set.regime, captured: &input.captured, row: plan.reduction, seed };
        device.draw(self.elements(input)?, &draw)
    }

    /// What is passed for the target's argument of that name.
    pub fn argument(&self, plan: &Plan, name: &str) -> Done<Option<Value>> {
        let found = plan.arguments.iter().find(|argument| argument.name() == name);
        found.map(|argument| self.value(argument)).transpose()
    }

    fn value(&self, argument: &Argument) -> Done<Value> {
        match argument {
            Argument::Size { value, .. } => Ok(*value),
            Argument::Pointer(pointer) => Ok(Value::Pointer(self.elements(pointer)?.span.address)),
        }
    }

    /// What is passed to a kernel on this memory, arguments that `skipped` names left out.
    pub fn arguments(&self, plan: &Plan, skipped: &dyn Fn(&str) -> bool) -> Done<Vec<Value>> {
        let is_passed = |argument: &&Argument| !matches!(argument, Argument::Size { name, .. } if skipped(name));
        plan.arguments.iter().filter(is_passed).map(|argument| self.value(argument)).collect()
    }

    /// The first output that no longer holds its poison, though nothing was launched here.
    pub fn spoiled<'a>(&self, device: &mut dyn Device, plan: &'a Plan) -> Done<Option<&'a str>> {
        for output in plan.outputs().filter(|output| !output.holds_entry) {
            if device.first_unpoisoned(self.elements(output)?.span, self.poison)?.is_some() {
                return Ok(Some(&output.name));
            }
        }
        Ok(None)
    }

    /// Where a guard zone was written, in words.
    pub fn trespass(&self, device: &mut dyn Device) -> Result<Option<String>, Foul> {
        for (storage, room) in self.rooms.iter().enumerate() {
            if let Some(place) = room.trespass(device, self.poison)? {
                return Ok(Some(format!("wrote outside its buffers: {place} storage {storage}")));
            }
        }
        Ok(None)
    }
}
