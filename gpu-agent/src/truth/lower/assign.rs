//! Reuse of wide registers, so that a block's values stay in the first-level cache.

use std::collections::{BTreeMap, BTreeSet};

use super::super::program::{Slot, Step};

/// Renames wide registers that are made and used in the block section alone, so that one whose value is no longer needed
/// serves the next. `sections` are row, block and finish; `lasting` registers are left alone.
pub(super) fn reuse(sections: &mut [Vec<Step>; 3], lasting: &BTreeSet<Slot>) {
    let [row, block, finish] = sections;
    let made: BTreeSet<Slot> = block.iter().filter_map(Step::target).filter(|slot| slot.wide).collect();
    let elsewhere: BTreeSet<Slot> = row.iter().chain(&*finish).flat_map(slots).chain(lasting.iter().copied()).collect();
    let passing: BTreeSet<Slot> = made.difference(&elsewhere).copied().collect();
    let mut last_use: BTreeMap<Slot, usize> = BTreeMap::new();
    for (position, step) in block.iter().enumerate() {
        last_use.extend(slots(step).filter(|slot| passing.contains(slot)).map(|slot| (slot, position)));
    }
    let mut names: BTreeMap<Slot, Slot> = BTreeMap::new();
    let mut free: Vec<Slot> = Vec::new();
    for (position, step) in block.iter_mut().enumerate() {
        // The place of what is made is chosen before those of the sources are given back: a step never writes what it reads.
        if let Some(slot) = step.target().filter(|slot| passing.contains(slot)) {
            let place = free.iter().position(|place| place.kind == slot.kind);
            names.insert(slot, place.map_or(slot, |place| free.swap_remove(place)));
        }
        let ended: BTreeSet<Slot> = slots(step).filter(|slot| last_use.get(slot) == Some(&position)).collect();
        for slot in step.slots_mut() {
            *slot = names.get(slot).copied().unwrap_or(*slot);
        }
        free.extend(ended.into_iter().filter_map(|slot| names.get(&slot).copied()));
    }
}

/// The registers that a step writes or reads.
fn slots(step: &Step) -> impl Iterator<Item = Slot> {
    step.target().into_iter().chain(step.sources())
}
