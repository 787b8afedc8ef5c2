//! The float64 truth: a kernel's meaning, run in double precision.
//!
//! Each node of the meaning is compiled to a short list of steps over vectors of up to 1024 values, and run block by block. It shares no arithmetic with the code that the search generates, so
//! that a fault in one is not hidden by the same fault in the other.
//!
//! What it computes in: floats in binary64 whatever the meaning's own type, sums compensated; integers in 64 bits,
//! wrapped to the width of their type after each operation; booleans as such. Conversions to a narrower float are left out
//! (a compiler is free to keep the wider value), except at [stores that the kernel itself reads again](Rounding).
//!
//! ```text
//! Meaning ──► concrete ──► plan (which loops are lanes) ──► lower (steps) ──► run (workers, regions) ──► Outputs
//! ```

mod apply;
mod erf;
mod functions;
mod lower;
mod memory;
mod plan;
mod program;
mod reduce;
mod registers;
mod run;
mod types;

use kernelopt_shared::meaning::storage::{BufferPlace, Layout};
use kernelopt_shared::meaning::{Meaning, MeaningError, Node};

use memory::Regions;
use program::Program;

/// Most elements of all buffers that are written; a double each is 2 GiB.
const MAX_ELEMENTS: usize = 1 << 28;
/// Most iterations of all nodes together, some minutes' work.
const MAX_ITERATIONS: i64 = 1 << 36;

/// A compiled meaning. It holds no data, so one serves any number of runs, on any number of threads.
#[derive(Debug)]
pub struct Truth {
    meaning: Meaning,
    layout: Layout,
    program: Program,
}

/// Which roundings of the kernel's own the truth takes part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// None: every value keeps double precision until the end.
    None,
    /// A value stored to an argument of a type narrower than float32 which the kernel reads again is rounded as stored. Compilers differ
    /// here: Triton may forward the unrounded value, C++ reads the rounded one.
    ArgumentStores,
}

/// Why a meaning has no truth.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unsupported {
    /// It does not hold together.
    #[error(transparent)]
    Invalid(#[from] MeaningError),
    /// It needs more memory than a truth may take.
    #[error("kernel {kernel}: {elements} elements are too many to compute in double precision")]
    TooLarge {
        /// Kernel concerned.
        kernel: String,
        /// Elements of all buffers that it writes.
        elements: usize,
    },
    /// It takes longer than a truth may take.
    #[error("kernel {kernel}: {iterations} iterations are too many to compute in double precision")]
    TooLong {
        /// Kernel concerned.
        kernel: String,
        /// Iterations of all its nodes.
        iterations: i64,
    },
    /// An access that leaves its buffer for some iteration, whatever the data.
    #[error("kernel {kernel}, node {node}: index {index} leaves buffer {buffer} of {elements} elements")]
    OutOfRange {
        /// Kernel concerned.
        kernel: String,
        /// Node concerned.
        node: String,
        /// Buffer that is left.
        buffer: String,
        /// The index expression.
        index: String,
        /// Elements of the buffer's memory.
        elements: usize,
    },
}

/// Why a run came to no truth. All are properties of the inputs.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum TruthError {
    /// Another number of inputs than the layout has storages.
    #[error("kernel {kernel}: {found} inputs for {expected} storages")]
    Inputs {
        /// Kernel concerned.
        kernel: String,
        /// Inputs given.
        found: usize,
        /// Storages of its layout.
        expected: usize,
    },
    /// An input that is shorter than its storage.
    #[error("kernel {kernel}: input {storage} has {found} bytes, its storage {expected}")]
    InputSize {
        /// Kernel concerned.
        kernel: String,
        /// Number of the storage.
        storage: usize,
        /// Bytes given.
        found: usize,
        /// Bytes of the storage.
        expected: usize,
    },
    /// An index read from memory that is outside what it indexes.
    #[error("kernel {kernel}, node {node}: index {index} is outside {what} of {size} elements")]
    OutOfRange {
        /// Kernel concerned.
        kernel: String,
        /// Node concerned.
        node: String,
        /// Index variable or buffer concerned.
        what: String,
        /// The index.
        index: i64,
        /// Number of elements.
        size: i64,
    },
}

/// The truth of every output argument, in call order.
pub type Outputs = Vec<Output>;

/// The truth of one output argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Position of the argument in the call.
    pub argument: usize,
    /// What its elements must hold, from its pointer on. Meaningless where nothing is written.
    pub values: Values,
    /// For each element, whether the kernel writes it.
    pub written: Vec<bool>,
}

/// Elements of one argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Floats of any width, unrounded.
    Float(Vec<f64>),
    /// Integers of any width.
    Int(Vec<i64>),
    /// Booleans.
    Bool(Vec<bool>),
}

impl Values {
    /// Number of elements.
    pub const fn len(&self) -> usize {
        match self {
            Self::Float(values) => values.len(),
            Self::Int(values) => values.len(),
            Self::Bool(values) => values.len(),
        }
    }

    /// True where there is none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Truth {
    /// Compiles `meaning`.
    ///
    /// # Errors
    /// A meaning that does not validate, is too large, or has an access that leaves its buffer for every input.
    pub fn compile(meaning: &Meaning) -> Result<Self, Unsupported> {
        meaning.validate()?;
        let layout = Layout::of(meaning)?;
        let iterations = meaning.nodes.iter().fold(0i64, |all, node| all.saturating_add(iterations(meaning, node)));
        if iterations > MAX_ITERATIONS {
            return Err(Unsupported::TooLong { kernel: meaning.kernel.clone(), iterations });
        }
        let program = Program::compile(meaning, &layout)?;
        let own = layout.regions.iter().zip(&program.stored).filter(|(region, stored)| **stored || !region.holds_entry);
        let elements = own.map(|(region, _)| region.elements).sum();
        if elements > MAX_ELEMENTS {
            return Err(Unsupported::TooLarge { kernel: meaning.kernel.clone(), elements });
        }
        Ok(Self { meaning: meaning.clone(), layout, program })
    }

    /// How inputs must be laid out.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether [`Rounding::ArgumentStores`] can differ from [`Rounding::None`] at all.
    pub fn rounds(&self) -> bool {
        self.program.rounded.contains(&true)
    }

    /// Runs the kernel once. `inputs` holds the bytes of each storage of the [layout](Self::layout) at entry, in native byte order; it is not changed.
    ///
    /// # Errors
    /// Inputs of the wrong number or size, or an index in them that leaves what it indexes.
    pub fn run(&self, inputs: &[&[u8]], rounding: Rounding) -> Result<Outputs, TruthError> {
        let kernel = || self.meaning.kernel.clone();
        if inputs.len() != self.layout.storages.len() {
            return Err(TruthError::Inputs { kernel: kernel(), found: inputs.len(), expected: self.layout.storages.len() });
        }
        for (storage, (input, expected)) in inputs.iter().zip(&self.layout.storages).enumerate() {
            if input.len() < expected.bytes {
                return Err(TruthError::InputSize { kernel: kernel(), storage, found: input.len(), expected: expected.bytes });
            }
        }
        let mut regions = Regions::new(&self.layout, &self.program, inputs);
        for plan in &self.program.nodes {
            run::node(plan, &self.program, &mut regions, rounding).map_err(|fault| fault.into_error(&self.meaning, &self.layout, plan))?;
        }
        Ok(self.collect(&mut regions))
    }

    fn collect(&self, regions: &mut Regions<'_>) -> Outputs {
        let places: Vec<_> =
            self.meaning.arguments.iter().enumerate().filter_map(|(argument, a)| Some((argument, self.layout.exit(a)?))).collect();
        let last = |position: usize, region: usize| places[position + 1..].iter().all(|(_, place)| place.region != region);
        let output = |(position, (argument, place)): (usize, &(usize, BufferPlace))| {
            let (values, written) = regions.take(*place, last(position, place.region));
            Output { argument: *argument, values, written }
        };
        places.iter().enumerate().map(output).collect()
    }
}

/// Iterations of one node.
fn iterations(meaning: &Meaning, node: &Node) -> i64 {
    node.iter.iter().chain(&node.reduce).fold(1i64, |all, axis| all.saturating_mul(meaning.size(&axis.extent).unwrap_or(0)))
}
