//! What a kernel reads from its arguments and what it writes to them, element by element.

use std::collections::{BTreeMap, BTreeSet};

use super::concrete::{concrete, extents};
use super::elements::Elements;
use super::storage::Layout;
use super::{Expr, Meaning, Operation, Statement, StoreMode, walk};

/// Where elements are counted: an allocation, seen with elements of so many bytes.
pub(super) type Grid = (usize, usize);

/// What one launch reads and writes. Element numbers count from the start of an allocation.
#[derive(Debug)]
pub(super) struct Footprint {
    /// Elements whose value at entry is read.
    pub(super) reads: BTreeMap<Grid, Elements>,
    /// Elements that are written to arguments which count.
    pub(super) writes: BTreeMap<Grid, Elements>,
    /// False where some access could not be followed and may touch what is in neither set.
    pub(super) exact: bool,
    /// Regions of which some value at entry is read, or may be.
    pub(super) entry_regions: BTreeSet<usize>,
}

/// Buffers with an access that could not be followed.
#[derive(Default)]
struct Lost {
    reads: Vec<(Grid, Elements)>,
    writes: Vec<(Grid, Elements)>,
}

/// One load or store.
struct Access<'a> {
    buffer: &'a str,
    index: &'a Expr,
    kind: Kind,
    masked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Load,
    Store,
    /// Reads the element and writes it.
    Accumulate,
}

impl Footprint {
    /// Follows the accesses of `meaning` in order; stores to arguments in `scratch` do not count as written.
    pub(super) fn of(meaning: &Meaning, layout: &Layout, scratch: &BTreeSet<String>) -> Self {
        let mut footprint = Self { reads: BTreeMap::new(), writes: BTreeMap::new(), exact: true, entry_regions: BTreeSet::new() };
        let mut stored: BTreeMap<usize, Elements> = BTreeMap::new();
        let mut lost = Lost::default();
        for node in &meaning.nodes {
            let node = concrete(meaning, node);
            let extents = extents(&node);
            walk::each(&node.body, false, &mut |statement, masked| {
                if let Some(access) = Access::of(statement, masked) {
                    footprint.follow(meaning, layout, scratch, &access, &extents, (&mut stored, &mut lost));
                }
            });
        }
        // An access that could not be followed costs nothing more where its whole buffer is touched anyway.
        let covered = |sets: &BTreeMap<Grid, Elements>, lost: &[(Grid, Elements)]| {
            lost.iter().all(|(grid, buffer)| sets.get(grid).is_some_and(|set| buffer.within(set)))
        };
        footprint.exact &= covered(&footprint.reads, &lost.reads) && covered(&footprint.writes, &lost.writes);
        footprint
    }

    fn follow(
        &mut self,
        meaning: &Meaning,
        layout: &Layout,
        scratch: &BTreeSet<String>,
        access: &Access<'_>,
        extents: &BTreeMap<String, i64>,
        (stored, lost): (&mut BTreeMap<usize, Elements>, &mut Lost),
    ) {
        let Some(place) = layout.buffers.get(access.buffer) else { return };
        let region = &layout.regions[place.region];
        let Some(home) = region.home else { return };
        let grid = (home.storage, region.dtype.size_bytes());
        let start = home.offset_bytes / region.dtype.size_bytes() + place.offset;
        let index = Expr::add(vec![access.index.clone(), Expr::Int(start as i64)]);
        let touched = if access.masked { None } else { Elements::of(&index, extents) };
        let buffer = Elements::run(start as i64, place.elements as i64);
        if access.kind != Kind::Store {
            let before = stored.get(&place.region).unwrap_or(&Elements::Empty);
            let fresh = match &touched {
                _ if before.count() >= region.elements as u64 => Some(Elements::Empty),
                Some(touched) => touched.clone().without(before),
                None => None,
            };
            if fresh != Some(Elements::Empty) {
                self.entry_regions.insert(place.region);
                add(&mut self.reads, &mut lost.reads, (grid, buffer.clone()), fresh);
            }
        }
        if access.kind != Kind::Load {
            if !is_scratch(meaning, access.buffer, scratch) {
                add(&mut self.writes, &mut lost.writes, (grid, buffer), touched.clone());
            }
            if let Some(touched) = touched {
                let before = stored.remove(&place.region).unwrap_or(Elements::Empty);
                // Too large to unite: keep what was known, so that later reads count rather than vanish.
                stored.insert(place.region, before.clone().union(touched).unwrap_or(before));
            }
        }
    }
}

impl<'a> Access<'a> {
    fn of(statement: &'a Statement, masked: bool) -> Option<Self> {
        match &statement.operation {
            Operation::Load { buffer, index } => Some(Self { buffer, index, kind: Kind::Load, masked }),
            Operation::Store { buffer, index, mode, .. } => {
                let kind = if *mode == Some(StoreMode::AtomicAdd) { Kind::Accumulate } else { Kind::Store };
                Some(Self { buffer, index, kind, masked })
            }
            _ => None,
        }
    }
}

/// Adds `more` to the set at a grid. Where that is not known, or too large to unite, the access to `buffer` counts as lost.
fn add(sets: &mut BTreeMap<Grid, Elements>, lost: &mut Vec<(Grid, Elements)>, (grid, buffer): (Grid, Elements), more: Option<Elements>) {
    let before = sets.remove(&grid).unwrap_or(Elements::Empty);
    let union = more.and_then(|more| before.clone().union(more));
    if union.is_none() {
        lost.push((grid, buffer));
    }
    sets.insert(grid, union.unwrap_or(before));
}

/// Whether `buffer`, or the first of the buffers that it renames or lies in, is behind an argument in `scratch`.
fn is_scratch(meaning: &Meaning, buffer: &str, scratch: &BTreeSet<String>) -> bool {
    let mut name = buffer;
    for _ in 0..=meaning.buffers.len() {
        let mut behind = meaning.arguments.iter().filter(|a| a.buffers.iter().any(|b| b == name)).peekable();
        if behind.peek().is_some() {
            return behind.all(|argument| scratch.contains(&argument.name));
        }
        match meaning.buffers.get(name).and_then(|b| b.mutates.as_ref().or(b.alias.as_ref().map(|alias| &alias.of))) {
            Some(next) => name = next,
            None => return false,
        }
    }
    false
}
