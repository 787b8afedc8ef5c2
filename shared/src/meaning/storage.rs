//! Where buffers lie: which names share memory, and which arguments share an allocation.
//!
//! Two notions are kept apart, because an in-place kernel needs both:
//!
//! - a [`Region`] is *logical* memory. A buffer that renames another after a mutation, or that lies inside another (a half
//!   of a concatenation), shares its region. The value that an in-place pointer holds at entry and the value that it
//!   holds at exit are two regions, since the nodes name them apart.
//! - a [`Storage`] is one *physical* allocation. All regions behind one argument share it.

use std::collections::{BTreeMap, BTreeSet};

use super::footprint::Footprint;
use super::{Argument, Buffer, Expr, Meaning, MeaningError, Node, Role};
use crate::dtype::Dtype;

/// Most elements of one buffer.
pub(super) const MAX_ELEMENTS: i64 = 1 << 40;

/// Physical and logical memory of a kernel. A referee allocates [`Layout::storages`] and passes [`Layout::arguments`].
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Allocations.
    pub storages: Vec<Storage>,
    /// What to pass for each argument, in call order.
    pub arguments: Vec<ArgumentPlace>,
    /// Logical memories, those of internal buffers included.
    pub regions: Vec<Region>,
    /// Where each buffer lies, by its name.
    pub buffers: BTreeMap<String, BufferPlace>,
}

/// One allocation that pointer arguments share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Size. Zero for a tensor without elements.
    pub bytes: usize,
}

/// What stands for an argument at a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgumentPlace {
    /// A pointer into a storage.
    Pointer {
        /// Index into [`Layout::storages`].
        storage: usize,
        /// Bytes from the storage's start.
        offset_bytes: usize,
        /// Type of the elements.
        dtype: Dtype,
        /// Elements from the pointer to the end of its buffer, gaps between strides included.
        elements: usize,
    },
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Number(f64),
}

/// One logical memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Buffer that owns it: the end of every chain of `mutates` and `alias` that leads here.
    pub root: String,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Number of elements.
    pub elements: usize,
    /// Where its first element lies in physical memory; `None` for an internal buffer.
    pub home: Option<Home>,
    /// True where an argument points at it when the kernel starts, so that its first values are the argument's.
    pub holds_entry: bool,
}

/// A position in physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// Index into [`Layout::storages`].
    pub storage: usize,
    /// Bytes from the storage's start.
    pub offset_bytes: usize,
}

/// Where a buffer lies in logical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferPlace {
    /// Index into [`Layout::regions`].
    pub region: usize,
    /// Elements from the region's start to the buffer's own start, its pointer.
    pub offset: usize,
    /// Elements from there to its end.
    pub elements: usize,
}

impl Layout {
    /// Lays out the memory of `meaning`, its symbols at their captured values.
    ///
    /// # Errors
    /// A buffer that is missing, of no sane size, renamed in a circle or seen with two element types; an argument without
    /// a buffer or value.
    pub fn of(meaning: &Meaning) -> Result<Self, MeaningError> {
        let (mut regions, buffers) = regions_of(meaning)?;
        let mut groups = Groups::default();
        for argument in &meaning.arguments {
            groups.join(meaning, argument, &buffers, &mut regions)?;
        }
        let storages = groups.settle(&mut regions);
        let arguments = meaning.arguments.iter().map(|a| place_of(meaning, a, &buffers, &regions)).collect::<Result<_, _>>()?;
        Ok(Self { storages, arguments, regions, buffers })
    }

    /// The buffer behind `argument` at entry.
    pub fn entry(&self, argument: &Argument) -> Option<BufferPlace> {
        self.buffers.get(argument.buffers.first()?).copied()
    }

    /// The buffer behind `argument` at exit, for one that is written.
    pub fn exit(&self, argument: &Argument) -> Option<BufferPlace> {
        matches!(argument.role, Role::Out | Role::Inout).then(|| self.buffers.get(argument.buffers.last()?).copied()).flatten()
    }
}

/// For each argument in call order: whether the kernel reads, or may read, what the argument holds at entry. What an output, or an
/// in-place pointer whose entry value is never loaded, holds at entry is nobody's business.
pub fn reads_entry_value(meaning: &Meaning, layout: &Layout) -> Vec<bool> {
    if meaning.program.is_some() {
        return meaning.arguments.iter().map(|argument| matches!(argument.role, Role::In | Role::Inout)).collect();
    }
    let footprint = Footprint::of(meaning, layout, &BTreeSet::new());
    let reads = |region: usize| footprint.entry_regions.contains(&region);
    meaning.arguments.iter().map(|argument| layout.entry(argument).is_some_and(|place| reads(place.region))).collect()
}

impl Meaning {
    /// `expr` with every size symbol at its captured value.
    pub fn bind(&self, expr: &Expr) -> Expr {
        expr.map_vars(&mut |name| self.symbols.get(name).map_or_else(|| Expr::var(name), |value| Expr::Int(*value)))
    }

    /// Value of `expr` over the size symbols, where it is at least zero and at most 2^40.
    pub fn size(&self, expr: &Expr) -> Option<i64> {
        expr.eval(&|name| self.symbols.get(name).copied()).filter(|value| (0..=MAX_ELEMENTS).contains(value))
    }

    /// Elements of the longest reduction of any node, symbols at their captured values; one where there is none. Of a kernel of the
    /// model's author, whose reductions are not known, the longest extent of a buffer.
    pub fn longest_reduction(&self) -> u64 {
        if self.program.is_some() {
            let extents = self.buffers.values().flat_map(|buffer| &buffer.size).filter_map(|extent| self.size(extent));
            return extents.max().unwrap_or(1).max(1) as u64;
        }
        let length = |node: &Node| node.reduce.iter().map(|axis| self.size(&axis.extent).unwrap_or(1)).product::<i64>().max(1) as u64;
        self.nodes.iter().map(length).max().unwrap_or(1)
    }

    pub(super) fn error(&self, detail: impl Into<String>) -> MeaningError {
        MeaningError { kernel: self.kernel.clone(), detail: detail.into() }
    }

    /// Elements from a buffer's own start to its end.
    fn extent(&self, buffer: &Buffer) -> Option<i64> {
        if buffer.size.len() != buffer.stride.len() {
            return None;
        }
        let sizes = buffer.size.iter().map(|e| self.size(e)).collect::<Option<Vec<_>>>()?;
        let strides = buffer.stride.iter().map(|e| self.size(e)).collect::<Option<Vec<_>>>()?;
        let offset = self.size(&buffer.offset)?;
        if sizes.contains(&0) {
            return Some(0);
        }
        let spans = sizes.iter().zip(&strides).map(|(size, stride)| (size - 1).checked_mul(*stride));
        let last = spans.into_iter().try_fold(offset, |sum, span| sum.checked_add(span?))?;
        last.checked_add(1).filter(|extent| *extent <= MAX_ELEMENTS)
    }
}

/// Follows `mutates` and `alias` from buffer `name` to the buffer that owns its memory: its name and the offset in elements.
fn root_of<'a>(meaning: &'a Meaning, name: &'a str) -> Result<(&'a str, i64), MeaningError> {
    let (mut at, mut offset) = (name, 0i64);
    for _ in 0..=meaning.buffers.len() {
        let buffer = meaning.buffers.get(at).ok_or_else(|| meaning.error(format!("buffer {at} is not described")))?;
        if let Some(real) = &buffer.mutates {
            at = real;
        } else if let Some(alias) = &buffer.alias {
            let step = meaning.size(&alias.offset).ok_or_else(|| meaning.error(format!("buffer {at}: alias offset {}", alias.offset)))?;
            offset = offset.saturating_add(step);
            at = &alias.of;
        } else {
            return Ok((at, offset));
        }
    }
    Err(meaning.error(format!("buffer {name} is renamed in a circle")))
}

fn regions_of(meaning: &Meaning) -> Result<(Vec<Region>, BTreeMap<String, BufferPlace>), MeaningError> {
    let mut regions: Vec<Region> = Vec::new();
    let mut numbers = BTreeMap::new();
    let mut places = BTreeMap::new();
    for (name, buffer) in &meaning.buffers {
        let (root, offset) = root_of(meaning, name)?;
        let elements = meaning.extent(buffer).ok_or_else(|| meaning.error(format!("buffer {name}: size or stride out of range")))?;
        let region = *numbers.entry(root).or_insert_with(|| {
            let dtype = meaning.buffers.get(root).map_or(buffer.dtype, |b| b.dtype);
            regions.push(Region { root: root.to_owned(), dtype, elements: 0, home: None, holds_entry: false });
            regions.len() - 1
        });
        if regions[region].dtype != buffer.dtype {
            return Err(meaning.error(format!("buffer {name}: {} inside {root} of {}", buffer.dtype, regions[region].dtype)));
        }
        let end = offset.saturating_add(elements);
        if end > MAX_ELEMENTS {
            return Err(meaning.error(format!("buffer {name}: alias offset {offset} is too far")));
        }
        regions[region].elements = regions[region].elements.max(end as usize);
        places.insert(name.clone(), BufferPlace { region, offset: offset as usize, elements: elements as usize });
    }
    Ok((regions, places))
}

fn place_of(
    meaning: &Meaning,
    argument: &Argument,
    buffers: &BTreeMap<String, BufferPlace>,
    regions: &[Region],
) -> Result<ArgumentPlace, MeaningError> {
    let fail = |what: &str| meaning.error(format!("argument {}: {what}", argument.name));
    if argument.role == Role::Number {
        return argument.number.map(ArgumentPlace::Number).ok_or_else(|| fail("a number without a value"));
    }
    if argument.role == Role::Size {
        let value = argument.value.as_ref().ok_or_else(|| fail("a size without a value"))?;
        let value = value.eval(&|name| meaning.symbols.get(name).copied());
        return value.map(ArgumentPlace::Int).ok_or_else(|| fail("its value is not known"));
    }
    let places: Vec<&BufferPlace> = argument.buffers.iter().filter_map(|name| buffers.get(name)).collect();
    let first = places.first().ok_or_else(|| fail("a pointer without a buffer"))?;
    let region = &regions[first.region];
    let home = region.home.ok_or_else(|| fail("no storage"))?;
    let offset_bytes = home.offset_bytes + first.offset * region.dtype.size_bytes();
    // The value at exit may be larger than the value at entry, of another type, or the reverse: take what covers both.
    let bytes = places.iter().map(|p| p.elements * regions[p.region].dtype.size_bytes()).max().unwrap_or(0);
    let last = places.last().map_or(region.dtype, |p| regions[p.region].dtype);
    let dtype = if argument.role == Role::In { region.dtype } else { last };
    Ok(ArgumentPlace::Pointer { storage: home.storage, offset_bytes, dtype, elements: bytes / dtype.size_bytes() })
}

/// Regions grouped by the allocation that they share, each at a signed byte offset within its group.
#[derive(Default)]
struct Groups {
    members: Vec<Vec<(usize, i64)>>,
}

impl Groups {
    fn find(&self, region: usize) -> Option<(usize, i64)> {
        let position = |members: &Vec<(usize, i64)>| members.iter().find(|(r, _)| *r == region).map(|(_, at)| *at);
        self.members.iter().enumerate().find_map(|(group, members)| Some((group, position(members)?)))
    }

    /// Puts every buffer behind `argument` at one address.
    fn join(
        &mut self,
        meaning: &Meaning,
        argument: &Argument,
        buffers: &BTreeMap<String, BufferPlace>,
        regions: &mut [Region],
    ) -> Result<(), MeaningError> {
        let mut anchor: Option<(usize, i64)> = None;
        for (position, name) in argument.buffers.iter().enumerate() {
            let missing = || meaning.error(format!("argument {}: buffer {name} is not described", argument.name));
            let place = buffers.get(name).ok_or_else(missing)?;
            let region = &mut regions[place.region];
            region.holds_entry |= position == 0;
            let inner = (place.offset * region.dtype.size_bytes()) as i64;
            let (group, base) = self.find(place.region).unwrap_or_else(|| {
                self.members.push(vec![(place.region, 0)]);
                (self.members.len() - 1, 0)
            });
            let Some((home, address)) = anchor else {
                anchor = Some((group, base + inner));
                continue;
            };
            let shift = address - (base + inner);
            if group == home && shift != 0 {
                return Err(meaning.error(format!("argument {}: its buffers lie at different addresses", argument.name)));
            }
            if group != home {
                let moved = std::mem::take(&mut self.members[group]);
                self.members[home].extend(moved.into_iter().map(|(r, at)| (r, at + shift)));
            }
        }
        Ok(())
    }

    /// Gives every group a storage and every region in it a home.
    fn settle(self, regions: &mut [Region]) -> Vec<Storage> {
        let mut storages = Vec::new();
        for members in self.members.into_iter().filter(|members| !members.is_empty()) {
            let start = members.iter().map(|(_, at)| *at).min().unwrap_or(0);
            let mut bytes = 0;
            for (region, at) in members {
                let offset_bytes = (at - start) as usize;
                let region = &mut regions[region];
                region.home = Some(Home { storage: storages.len(), offset_bytes });
                bytes = bytes.max(offset_bytes + region.elements * region.dtype.size_bytes());
            }
            storages.push(Storage { bytes });
        }
        storages
    }
}
