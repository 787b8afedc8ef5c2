//! Why a kernel is left alone.

use std::fmt;

/// Why a kernel is left alone, whatever it computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftAlone {
    /// Two definitions have its name.
    DefinedTwice {
        /// Their lines.
        lines: (u32, u32),
    },
    /// It has no source of its own.
    Foreign {
        /// What makes it.
        maker: String,
    },
    /// A template wrote it, not the loop scheduler.
    Template,
    /// Another kernel chooses at run time whether it runs.
    Chosen {
        /// The kernel that chooses.
        by: String,
    },
    /// Nothing launches it.
    NeverLaunched,
    /// It runs an unknown number of times: the function that launches it is called by a statement that is not understood.
    ControlFlow {
        /// Function that launches it.
        function: String,
    },
    /// A statement that is not understood names it.
    Mentioned {
        /// Line of the statement.
        line: u32,
    },
    /// A statement that is not understood may touch a buffer of one of its launches.
    SharesBuffer {
        /// The buffer.
        buffer: String,
        /// Line of the statement.
        line: u32,
    },
    /// A launch does not pass what its signature says.
    Signature {
        /// Line of the launch.
        line: u32,
    },
}

impl fmt::Display for LeftAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DefinedTwice { lines: (first, second) } => write!(f, "defined twice, on lines {first} and {second}"),
            Self::Foreign { maker } => write!(f, "made by {maker}, not from a source in this file"),
            Self::Template => write!(f, "written by a template, not by the loop scheduler"),
            Self::Chosen { by } => write!(f, "one of the kernels that {by} chooses from at run time"),
            Self::NeverLaunched => write!(f, "never launched"),
            Self::ControlFlow { function } => write!(f, "launched by {function}, which runs an unknown number of times"),
            Self::Mentioned { line } => write!(f, "named on line {line}, which is not understood"),
            Self::SharesBuffer { buffer, line } => write!(f, "shares {buffer} with line {line}, which is not understood"),
            Self::Signature { line } => write!(f, "the launch on line {line} does not fit its signature"),
        }
    }
}
