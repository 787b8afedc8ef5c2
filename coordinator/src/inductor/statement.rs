//! Statements of a graph's functions, each with its place in the file.

use super::text::Span;
use super::value::{Layout, Scalar, Value};

/// One statement of `call`, of a partition or of a subgraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Line on which it starts, from one.
    pub line: u32,
    /// Its text; for a `with` block, the text up to its body, whose statements follow.
    pub span: Span,
    /// What it does.
    pub kind: StatementKind,
}

/// What a statement does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// `arg0_1, arg1_1 = args`.
    Unpack {
        /// Inputs, in order.
        names: Vec<String>,
    },
    /// `args.clear()`.
    ClearArguments,
    /// A size symbol takes its value: `s77 = arg2_1`, `u0 = buf0.item()`.
    Symbol {
        /// The symbol.
        name: String,
        /// Its value.
        value: Scalar,
    },
    /// A number computed from others: `triton_poi_fused_0_xnumel = 1024*s77`.
    Scalar {
        /// The name bound.
        name: String,
        /// Its value.
        value: Scalar,
    },
    /// A check that changes nothing: `assert_size_stride(...)`, `assert ...`, `if not ...: raise ...`.
    Assertion {
        /// The tensor that `assert_size_stride` looks at, and the layout that it demands.
        layout: Option<(String, Layout)>,
        /// Tensors whose elements it reads.
        reads: Vec<String>,
    },
    /// New memory: `buf0 = empty_strided_cpu(size, stride, dtype)`.
    Allocate {
        /// The name bound.
        name: String,
        /// Its shape, where written out.
        layout: Option<Layout>,
    },
    /// A name for a value that exists already: a view, an element of a tuple, or a reused buffer (`buf5 = buf4; del buf4`).
    Bind {
        /// The name bound.
        name: String,
        /// What it names.
        value: Value,
    },
    /// `buf1 = None`.
    Nothing {
        /// The name bound.
        name: String,
    },
    /// `del buf0, buf1`.
    Free {
        /// The names that end.
        names: Vec<String>,
    },
    /// A library computes: `extern_kernels.mm(a, b, out=buf2)`, `buf3 = torch.ops.aten.cumsum.default(...)`.
    Vendor(Vendor),
    /// `buf2.copy_(buf1)`, or an operator that copies into a new tensor.
    Copy {
        /// The tensor written, or the name bound to the new one.
        target: CopyTarget,
        /// Everything read.
        sources: Vec<Value>,
    },
    /// `workspace_0.zero_()`.
    Fill {
        /// The tensor written.
        target: Value,
    },
    /// A generated kernel runs.
    Launch(Launch),
    /// `partition0_args = [arg2_1, buf0]`.
    Pack {
        /// The name bound.
        name: String,
        /// What the list holds.
        items: Vec<Value>,
    },
    /// A partition or subgraph runs: `(buf7,) = self.partitions[1](partition1_args)`.
    Call {
        /// The names bound.
        results: CallResults,
        /// What runs.
        callee: Callee,
        /// Name of the list that holds its arguments; the callee empties it.
        packed: String,
    },
    /// `with torch.cuda._DeviceGuard(0):`; the statements of its body follow.
    Guard {
        /// The guard, as written.
        text: String,
    },
    /// Streams and devices: `stream0 = get_raw_stream(0)`, `torch.cuda.set_device(0)`. Touches no tensor.
    Host {
        /// The name bound.
        name: Option<String>,
    },
    /// `return (buf24, )`.
    Return {
        /// The outputs, in order.
        values: Vec<Value>,
    },
    /// A statement that is not understood. Whatever it names is left alone.
    Opaque(Opaque),
}

/// A call into a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vendor {
    /// Full name of what is called: `torch.ops.aten.cumsum.default`, `extern_kernels.mm`.
    pub callee: String,
    /// Everything passed, except `out`.
    pub arguments: Vec<Value>,
    /// What is passed as `out`.
    pub out: Option<Value>,
    /// The name bound to the result.
    pub result: Option<String>,
}

/// Where a copy goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyTarget {
    /// Into the memory of a tensor.
    Into(Value),
    /// Into a new tensor with this name.
    New(String),
}

/// A launch of a generated kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Name of the kernel.
    pub kernel: String,
    /// Positional arguments: buffers, views, sizes and, for Triton, element counts.
    pub arguments: Vec<Value>,
    /// Keyword arguments other than the stream.
    pub keywords: Vec<(String, Value)>,
    /// The stream, as written.
    pub stream: Option<String>,
}

/// What a call of a function runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee {
    /// `self.partitions[N]`.
    Partition(usize),
    /// A subgraph's function.
    Function(String),
}

/// How the results of a call are bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallResults {
    /// One name for the whole tuple.
    Tuple(String),
    /// One name for each element.
    Each(Vec<String>),
}

/// A statement that is kept but not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opaque {
    /// Names that it reads or binds, in order of appearance.
    pub mentions: Vec<String>,
    /// Names among them that it binds or deletes.
    pub binds: Vec<String>,
    /// It may reach any local: it mentions `args`, `self`, `locals`, `exec` or the like.
    pub reaches_all: bool,
}

impl StatementKind {
    /// The values that it passes around, in order.
    pub fn values(&self) -> Vec<&Value> {
        match self {
            Self::Bind { value, .. } | Self::Fill { target: value } => vec![value],
            Self::Vendor(vendor) => vendor.arguments.iter().chain(&vendor.out).collect(),
            Self::Copy { target, sources } => {
                let into = match target {
                    CopyTarget::Into(value) => Some(value),
                    CopyTarget::New(_) => None,
                };
                into.into_iter().chain(sources).collect()
            }
            Self::Launch(launch) => launch.arguments.iter().chain(launch.keywords.iter().map(|(_, value)| value)).collect(),
            Self::Pack { items: values, .. } | Self::Return { values } => values.iter().collect(),
            _ => Vec::new(),
        }
    }
}
