//! Scratch memory of a candidate: as many sets of its buffers as there are launches in a block, each buffer between guard zones.
//!
//! A set holds poison before every run, so that what a candidate reads there and has not written is poison: nothing survives from a
//! former run, as nothing would in the model, where the memory is anybody's in between. A buffer that must be zero is set to zero
//! by a step of the run itself, as the optimised file does it, on the clock.

use kernelopt_shared::launch::{Launch, Scratch};
use kernelopt_shared::verdict::Verdict;

use super::Foul;
use super::plan::Plan;
use super::room::Room;
use crate::cuda::device::{Device, DeviceError, Done, Step};

/// What a candidate may have for one launch in any case, in bytes; more only if the target's own buffers are larger.
const ALWAYS_BYTES: u64 = 16 << 20;

/// Scratch of a candidate on the device.
#[derive(Debug, Default)]
pub struct Workspace {
    buffers: Vec<Scratch>,
    sets: Vec<Set>,
    /// Of one set, guards left out.
    bytes: u64,
}

#[derive(Debug)]
struct Set {
    rooms: Vec<Room>,
    /// Seed of what fills it before a run.
    poison: u64,
}

impl Workspace {
    /// Takes the memory of `count` sets of `buffers`; `first` is the candidate's first launch.
    ///
    /// # Errors
    /// [`Foul::Candidate`] where a size has no value, or there is too much of it.
    pub fn allocate(device: &mut dyn Device, plan: &Plan, buffers: &[Scratch], first: &Launch, count: usize) -> Result<Self, Foul> {
        let refuse = |reason: String| Foul::Candidate(Verdict::Rejected { reason });
        let value = |name: &str| first.constants.get(name).copied().or_else(|| plan.size(name));
        let sizes: Vec<u64> =
            buffers.iter().map(|scratch| scratch.bytes(&value)).collect::<Result<_, _>>().map_err(|e| refuse(e.to_string()))?;
        let bytes = sizes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let most = plan.storages.iter().sum::<u64>().max(ALWAYS_BYTES);
        if bytes > most {
            return Err(refuse(format!("{bytes} bytes of scratch; {most} are allowed here")));
        }
        let mut workspace = Self { buffers: buffers.to_vec(), sets: Vec::new(), bytes };
        for _ in 0..if buffers.is_empty() { 0 } else { count } {
            match Room::allocate_all(device, &sizes) {
                Ok(rooms) => workspace.sets.push(Set { rooms, poison: 0 }),
                Err(error) => {
                    workspace.free(device)?;
                    return Err(match error {
                        DeviceError::OutOfMemory { .. } => {
                            refuse(format!("{bytes} bytes of scratch for each of {count} launches: {error}"))
                        }
                        other => other.into(),
                    });
                }
            }
        }
        Ok(workspace)
    }

    /// Gives it back.
    pub fn free(self, device: &mut dyn Device) -> Done<()> {
        self.sets.into_iter().flat_map(|set| set.rooms).try_for_each(|room| room.free(device))
    }

    /// Sets; none where the candidate has no scratch.
    pub const fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Bytes of one set.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Poisons set `set`, if there is any.
    pub fn prepare(&mut self, device: &mut dyn Device, set: usize, poison: u64) -> Done<()> {
        let Some(set) = self.sets.get_mut(set) else { return Ok(()) };
        set.poison = poison;
        set.rooms.iter().try_for_each(|room| room.poison(device, poison))
    }

    /// Address of a buffer in set `set`.
    pub fn address(&self, set: usize, name: &str) -> Option<u64> {
        let position = self.buffers.iter().position(|scratch| scratch.name == name)?;
        self.sets.get(set)?.rooms.get(position).map(|room| room.inner.address)
    }

    /// What has to happen before the first launch on set `set`.
    pub fn zeroing(&self, set: usize) -> impl Iterator<Item = Step> {
        let rooms = self.sets.get(set).into_iter().flat_map(|set| &set.rooms);
        self.buffers.iter().zip(rooms).filter(|(scratch, _)| scratch.zeroed).map(|(_, room)| Step::Zero(room.inner))
    }

    /// Where a guard zone of set `set` was written, in words.
    pub fn trespass(&self, device: &mut dyn Device, set: usize) -> Result<(), Foul> {
        let Some(set) = self.sets.get(set) else { return Ok(()) };
        for (scratch, room) in self.buffers.iter().zip(&set.rooms) {
            if let Some(place) = room.trespass(device, set.poison)? {
                return Err(Foul::Trespass(format!("wrote outside its buffers: {place} scratch {}", scratch.name)));
            }
        }
        Ok(())
    }

    /// After one run on set `set`, all others must be as they were prepared.
    pub fn check_others(&self, device: &mut dyn Device, set: usize) -> Result<(), Foul> {
        for (_, other) in self.sets.iter().enumerate().filter(|(number, _)| *number != set) {
            for (scratch, room) in self.buffers.iter().zip(&other.rooms) {
                if device.first_unpoisoned(room.inner, other.poison)?.is_some() {
                    return Err(Foul::Trespass(format!("wrote scratch {} of another launch", scratch.name)));
                }
            }
        }
        Ok(())
    }
}
