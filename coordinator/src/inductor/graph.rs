//! What a file computes: its graphs, their functions, and the statements that are kept but not understood.

use super::statement::{Statement, StatementKind};
use super::text::Span;

/// One `call` of the file, with the functions that it may run. Most files hold one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// Number in the file, from zero.
    pub index: usize,
    /// Kernels defined in its part of the file, as positions in [`super::ModelFile::kernels`].
    pub kernels: Vec<usize>,
    /// Its functions in order of definition, as positions in [`super::ModelFile::functions`]; callees stand before callers.
    pub functions: Vec<usize>,
    /// Names of the functions that `self.partitions[N]` runs.
    pub partitions: Vec<String>,
    /// Statements of the module that are not understood.
    pub opaque: Vec<ModuleOpaque>,
}

/// A function over an argument list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Entry, or part of a graph.
    pub role: Role,
    /// Line of its definition, from one.
    pub line: u32,
    /// Its statements; blocks of `with` follow their guard in line.
    pub statements: Vec<Statement>,
}

/// The part that a function plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `call` itself.
    Entry {
        /// Number of its graph.
        graph: usize,
    },
    /// A partition or subgraph.
    Part {
        /// Number of its graph.
        graph: usize,
    },
}

/// A statement of the module that is kept but not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleOpaque {
    /// Line on which it starts, from one.
    pub line: u32,
    /// Its text.
    pub span: Span,
    /// Names in it, nested ones included.
    pub mentions: Vec<String>,
}

impl Graph {
    pub(super) fn new(index: usize) -> Self {
        Self { index, ..Self::default() }
    }
}

impl Function {
    /// Names of its inputs, in order.
    pub fn inputs(&self) -> &[String] {
        let unpack = self.statements.iter().find_map(|statement| match &statement.kind {
            StatementKind::Unpack { names } => Some(names.as_slice()),
            _ => None,
        });
        unpack.unwrap_or_default()
    }

    /// True for `call` itself.
    pub const fn is_entry(&self) -> bool {
        matches!(self.role, Role::Entry { .. })
    }
}
