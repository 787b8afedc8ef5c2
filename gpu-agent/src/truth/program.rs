//! What a meaning is compiled to: for each node its loops and three lists of steps.

use kernelopt_shared::dtype::Dtype;
use kernelopt_shared::meaning::storage::{Layout, reads_entry_value};
use kernelopt_shared::meaning::{Function, Meaning, Operation, ReductionKind, Statement};

use super::types::Kind;
use super::{Unsupported, lower};

/// A compiled meaning.
#[derive(Debug)]
pub(super) struct Program {
    /// Loop nests, in order.
    pub(super) nodes: Vec<NodePlan>,
    /// For each region, whether a value stored there is rounded under [`Rounding::ArgumentStores`](super::Rounding::ArgumentStores).
    pub(super) rounded: Vec<bool>,
    /// For each region, whether some node stores to it.
    pub(super) stored: Vec<bool>,
    /// For each region, whether its values at entry matter.
    pub(super) reads_entry: Vec<bool>,
}

/// One loop nest.
///
/// ```text
/// for outer loops {            // one row each
///     row steps
///     for inner loops {        // one block each: up to LANES lanes side by side
///         block steps
///     }
///     fold reductions
///     finish steps
/// }
/// ```
#[derive(Debug)]
pub(super) struct NodePlan {
    /// Scheduler node.
    pub(super) name: String,
    /// Outer loops, then inner loops.
    pub(super) loops: Vec<Loop>,
    /// How many of the loops are outer.
    pub(super) outer: usize,
    /// The loop whose iterations stand side by side in lanes, chunk by chunk; `None` where every block is one lane.
    pub(super) lane_loop: Option<usize>,
    /// Lanes for each iteration of the lane loop: the iterations of all loops inside it.
    pub(super) lanes_inside: usize,
    /// True where the first loop runs over output elements, so that it may be divided between workers.
    pub(super) divisible: bool,
    /// Affine index expressions.
    pub(super) affines: Vec<AffinePlan>,
    /// Registers that hold a constant throughout.
    pub(super) constants: Vec<(Slot, Constant)>,
    /// Steps before the blocks of a row.
    pub(super) row: Vec<Step>,
    /// Steps of a block.
    pub(super) block: Vec<Step>,
    /// Steps after the blocks of a row.
    pub(super) finish: Vec<Step>,
    /// Reductions over the inner loops.
    pub(super) reductions: Vec<ReductionPlan>,
    /// Number of registers of each kind: single, wide.
    pub(super) registers: [(usize, usize); 3],
    /// Names of the index variables that are read from memory, for errors.
    pub(super) variables: Vec<String>,
}

/// One loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loop {
    /// Trip count.
    pub(super) extent: i64,
    /// Iterations taken at once: one, or a chunk where it is the lane loop.
    pub(super) step: i64,
}

/// An affine index: `constant + Σ coefficient · loop + lane part`.
#[derive(Debug)]
pub(super) struct AffinePlan {
    pub(super) constant: i64,
    /// One for each loop.
    pub(super) coefficients: Vec<i64>,
    /// What is added for each lane.
    pub(super) lanes: LanePattern,
}

/// How an index differs between lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LanePattern {
    /// By this much from one lane to the next; zero where all lanes share it.
    Strided(i64),
    /// By a table.
    Table(Vec<i64>),
}

/// A register: of a kind, one value or a lane's worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) kind: Kind,
    pub(super) wide: bool,
    pub(super) number: usize,
}

/// A constant register's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Constant {
    Float(f64),
    Int(i64),
    Bool(bool),
}

/// Where a load or store goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// By the affine index of this number; known to stay inside the region.
    Affine(usize),
    /// By the index in this register; checked lane by lane.
    Slot(Slot),
}

/// One vector operation.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Reads a region. Where a mask is given, lanes without it read nothing and hold zero.
    Load { to: Slot, region: usize, at: At, mask: Option<Slot> },
    /// Writes a region, or adds to it; once for each lane if `wide`.
    Store { region: usize, at: At, value: Slot, add: bool, wide: bool },
    /// The value of an affine index.
    Index { to: Slot, affine: usize },
    /// An element-wise function; arguments and results are of the kinds that [`lower`] arranged.
    Apply { function: Function, to: Slot, args: Vec<Slot> },
    /// A shift in the integer type `dtype`.
    Shift { function: Function, to: Slot, args: (Slot, Slot), dtype: Dtype },
    /// A change of kind.
    Convert { to: Slot, from: Slot },
    /// Wraps to the width of an integer type.
    Wrap { to: Slot, from: Slot, dtype: Dtype },
    /// Reads the bits of a value of type `source` as type `target`.
    Bitcast { to: Slot, from: Slot, source: Dtype, target: Dtype },
    /// An index read from memory: wrapped if negative, checked where the mask holds.
    Indirect { to: Slot, from: Slot, size: Slot, variable: usize, wrap_negative: bool, check: bool, mask: Option<Slot> },
    /// Takes the values of this block into a reduction.
    Accumulate { reduction: usize, values: Vec<Slot> },
}

/// One reduction.
#[derive(Debug)]
pub(super) struct ReductionPlan {
    pub(super) kind: ReductionKind,
    /// Domain in which it accumulates.
    pub(super) domain: Kind,
    /// Registers of its results.
    pub(super) results: Vec<Slot>,
    /// True where lanes are output elements, each with its own result; false where they are folded into one.
    pub(super) per_lane: bool,
}

impl Step {
    /// The register that it writes, if any.
    pub(super) fn target(&self) -> Option<Slot> {
        match self {
            Self::Load { to, .. }
            | Self::Index { to, .. }
            | Self::Apply { to, .. }
            | Self::Shift { to, .. }
            | Self::Convert { to, .. }
            | Self::Wrap { to, .. }
            | Self::Bitcast { to, .. }
            | Self::Indirect { to, .. } => Some(*to),
            Self::Store { .. } | Self::Accumulate { .. } => None,
        }
    }

    /// The region that it stores to, if any.
    pub(super) const fn stored_region(&self) -> Option<usize> {
        match self {
            Self::Store { region, .. } => Some(*region),
            _ => None,
        }
    }

    /// The registers that it reads.
    pub(super) fn sources(&self) -> Vec<Slot> {
        let mut all = self.clone();
        let skip = usize::from(self.target().is_some());
        all.slots_mut().into_iter().skip(skip).map(|slot| *slot).collect()
    }

    /// Every register in it, the one that it writes first.
    pub(super) fn slots_mut(&mut self) -> Vec<&mut Slot> {
        fn of_place(at: &mut At) -> Option<&mut Slot> {
            match at {
                At::Slot(slot) => Some(slot),
                At::Affine(_) => None,
            }
        }
        match self {
            Self::Load { to, at, mask, .. } => [to].into_iter().chain(of_place(at)).chain(mask).collect(),
            Self::Store { at, value, .. } => of_place(at).into_iter().chain([value]).collect(),
            Self::Index { to, .. } => vec![to],
            Self::Apply { to, args, .. } => [to].into_iter().chain(args).collect(),
            Self::Shift { to, args: (a, b), .. } => vec![to, a, b],
            Self::Convert { to, from } | Self::Wrap { to, from, .. } | Self::Bitcast { to, from, .. } => vec![to, from],
            Self::Indirect { to, from, size, mask, .. } => [to, from, size].into_iter().chain(mask).collect(),
            Self::Accumulate { values, .. } => values.iter_mut().collect(),
        }
    }
}

impl Program {
    /// Compiles every node.
    pub(super) fn compile(meaning: &Meaning, layout: &Layout) -> Result<Self, Unsupported> {
        let nodes = meaning.nodes.iter().map(|node| lower::node(meaning, layout, node)).collect::<Result<_, _>>()?;
        let (mut stored, mut rounded) = (vec![false; layout.regions.len()], vec![false; layout.regions.len()]);
        let region_of = |name: &String| layout.buffers.get(name).map(|place| place.region);
        for node in &meaning.nodes {
            visit(&node.body, &mut |operation| match operation {
                Operation::Store { buffer, .. } => region_of(buffer).into_iter().for_each(|region| stored[region] = true),
                // Loads after a store in the order of nodes: what an earlier node rounded.
                Operation::Load { buffer, .. } => {
                    for region in region_of(buffer).into_iter().filter(|region| stored[*region]) {
                        let here = &layout.regions[region];
                        rounded[region] = here.home.is_some() && matches!(here.dtype, Dtype::Bfloat16 | Dtype::Float16);
                    }
                }
                _ => {}
            });
        }
        let mut reads_entry = vec![false; layout.regions.len()];
        let reads = reads_entry_value(meaning, layout);
        for (argument, reads) in meaning.arguments.iter().zip(reads) {
            if let Some(place) = layout.entry(argument) {
                reads_entry[place.region] |= reads;
            }
        }
        Ok(Self { nodes, rounded, stored, reads_entry })
    }
}

/// Calls `see` for every operation, those inside masked blocks included.
fn visit<'a>(statements: &'a [Statement], see: &mut impl FnMut(&'a Operation)) {
    for statement in statements {
        see(&statement.operation);
        if let Operation::Masked { body, .. } = &statement.operation {
            visit(body, see);
        }
    }
}
