//! TorchInductor's `output_code.py`, read into a model graph and written back.
//!
//! This is the only module that sees the Python parser. It reads what the compiler writes (torch 2.11,
//! torch/_inductor/codegen/wrapper.py) and nothing more: a statement that is not understood is kept as an opaque node
//! with its line, and whatever it names is left alone. Nothing is guessed. The text is untrusted: its size and nesting
//! are capped before it is parsed ([`limits`]).
//!
//! | module | noun |
//! |---|---|
//! | [`graph`] | graphs and their functions |
//! | [`statement`] | statements of a function |
//! | [`value`] | what statements pass around |
//! | [`kernel`] | generated kernels |
//! | [`dataflow`] | who reads what, which outputs are scratch, which kernels are left alone |
//! | [`literal`] | string literals that hold a given source |
//! | [`triton`] | modules of Triton kernels, and ours in their place |
//! | [`sequence`] | several launches in the place of one |
//! | [`limits`] | caps on untrusted text |
//! | [`error`] | why a file is not read or written |

pub mod dataflow;
pub mod error;
pub mod graph;
pub mod kernel;
pub mod limits;
pub mod literal;
pub mod sequence;
pub mod statement;
pub mod text;
pub mod triton;
pub mod value;

mod module;
mod operators;
mod read_statement;
mod read_value;
mod reader;
mod scope;
mod signature;
mod write;

use ruff_python_parser::parse_module;

pub use error::{ParseError, ParseErrorKind, StitchError};
pub use write::Replacements;

use graph::{Function, Graph};
use kernel::Kernel;
use text::{LineIndex, Position};

/// One `output_code.py`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFile {
    text: String,
    kernels: Vec<Kernel>,
    functions: Vec<Function>,
    graphs: Vec<Graph>,
    constants: Vec<String>,
}

/// Stack of the thread that parses. The parser, its tree and our walk over it recurse to at most
/// [`limits::MAX_NESTING`] plus [`limits::MAX_INDENT`] levels, each below 10 KB in a debug build.
const STACK_BYTES: usize = 64 << 20;

/// Runs `parse` on a thread whose stack holds any tree within the limits; none where the thread ends early. The tree must be
/// freed there too.
fn with_stack<T: Send>(parse: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("parse".into()).stack_size(STACK_BYTES).spawn_scoped(scope, parse);
        thread.ok()?.join().ok()
    })
}

impl ModelFile {
    /// Reads a file. The text is untrusted: whatever it holds, the answer is a graph or an error.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        limits::check(text)?;
        let gave_up = ParseError { at: Position { line: 1, column: 1 }, kind: ParseErrorKind::Parser };
        with_stack(|| read(text)).unwrap_or(Err(gave_up))
    }

    /// The text that was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Every kernel that the file defines, in order; a name may occur twice.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// Every function over an argument list, in order.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The graphs, in order; at least one.
    pub fn graphs(&self) -> &[Graph] {
        &self.graphs
    }

    /// Tensors that the module holds: frozen weights and constants.
    pub fn constants(&self) -> &[String] {
        &self.constants
    }

    /// The functions of `graph`, callees before callers.
    pub fn functions_of(&self, graph: &Graph) -> impl Iterator<Item = &Function> {
        graph.functions.iter().filter_map(|index| self.functions.get(*index))
    }
}

/// Parses on the thread that was made for it; the tree is freed there too.
fn read(text: &str) -> Result<ModelFile, ParseError> {
    let lines = LineIndex::new(text);
    let parsed = parse_module(text).map_err(|error| ParseError {
        at: lines.position(text, error.location.start().to_usize()),
        kind: ParseErrorKind::Syntax(error.error.to_string()),
    })?;
    let module = module::read(text, &lines, &parsed.syntax().body)?;
    let module::Module { kernels, functions, graphs, constants } = module;
    Ok(ModelFile { text: text.to_owned(), kernels, functions, graphs, constants })
}
