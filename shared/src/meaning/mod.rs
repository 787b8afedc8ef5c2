//! A kernel's *meaning*: its loop-level IR as the compiler fused it, exported at capture.
//!
//! Nodes run one after the other over named buffers; each has its own ranges, so fusion and tiling do not matter.
//! From it come the float64 truth, the [`fingerprint`](fingerprint::fingerprint), the bytes that must move
//! ([`traffic::traffic`]), the memory that a call needs ([`storage::Layout`]), the faults that a referee must notice
//! ([`mutate::mutants`]) and the code of the `schedule` proposer.
//!
//! One that was read from outside is [validated](Meaning::validate) first; everything else relies on that.

pub mod affine;
pub mod concrete;
mod elements;
pub mod expr;
pub mod fingerprint;
#[cfg(test)]
mod fixtures;
mod footprint;
pub mod function;
pub mod mutate;
mod parse;
mod scalar;
pub mod storage;
pub mod traffic;
mod validate;
mod walk;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::dtype::Dtype;
pub use expr::Expr;
pub use function::{Function, ReductionKind};
pub use scalar::Scalar;
pub use validate::MeaningError;

/// The loop-level IR of one generated kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meaning {
    /// Name of the kernel in the compiler's file.
    pub kernel: String,
    /// Arguments in call order.
    pub arguments: Vec<Argument>,
    /// Every buffer that a node or an argument names.
    pub buffers: BTreeMap<String, Buffer>,
    /// Values of the size symbols at capture (`s77` to 64).
    #[serde(default)]
    pub symbols: BTreeMap<String, i64>,
    /// Loop nests, in the order in which they must appear to run.
    pub nodes: Vec<Node>,
    /// Of a kernel that the model's author wrote: a hash of its text, which is all that says what it computes. Such a meaning has no
    /// nodes; it has arguments and buffers, so that the kernel can be launched and judged by its own float64 twin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Digest>,
}

/// One argument of the kernel's C or Triton signature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    /// Name in the signature, `in_ptr0`.
    pub name: String,
    /// Type in the signature, `const float*`.
    #[serde(rename = "type")]
    pub c_type: String,
    /// What the argument is for.
    pub role: Role,
    /// Buffers behind a pointer, oldest first. An `inout` pointer has at least two: the value that it holds at
    /// entry and the value that it holds at exit; the bodies name them apart although they share memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<String>,
    /// Value of a `size` argument, over the symbols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Expr>,
    /// Value of a `number` argument.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<f64>,
}

/// What an argument is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A pointer that is only read.
    In,
    /// A pointer that is only written.
    Out,
    /// A pointer that the compiler reuses: what is behind it at entry may be read, and it is written.
    Inout,
    /// An integer.
    Size,
    /// A floating-point number, which only a kernel of the model's author takes.
    Number,
}

impl Role {
    /// True for what is passed by value.
    pub const fn is_value(self) -> bool {
        matches!(self, Self::Size | Self::Number)
    }
}

/// A named buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// Element type in memory.
    pub dtype: Dtype,
    /// Extents, over the symbols.
    pub size: Vec<Expr>,
    /// Strides in elements.
    pub stride: Vec<Expr>,
    /// Offset of the first element from the pointer's own start, in elements.
    #[serde(default)]
    pub offset: Expr,
    /// True for a buffer that lives only inside the kernel: no argument points at it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub internal: bool,
    /// The buffer that this one is a renaming of after a mutation: both name one memory, in node order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutates: Option<String>,
    /// The buffer whose storage this one lies in (halves of a concatenation), and its offset there in elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<Alias>,
}

/// Where an overlapping buffer lies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alias {
    /// Name of the buffer that owns the storage.
    pub of: String,
    /// Elements from its start.
    pub offset: Expr,
}

/// One loop nest: `for iter { for reduce { body } }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Scheduler node, `op7`.
    pub name: String,
    /// Output loops, outermost first.
    pub iter: Vec<Axis>,
    /// Reduction loops, outermost first; empty for a pointwise node.
    pub reduce: Vec<Axis>,
    /// Statements in order, each value used only after it is made.
    pub body: Vec<Statement>,
}

/// One loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Loop variable, as the index expressions name it.
    pub var: String,
    /// Trip count, over the symbols.
    pub extent: Expr,
}

/// Number of a value within its node; unique there, nested blocks included.
pub type ValueId = u32;

/// One statement: the value it makes and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    /// The value made. A statement that makes none (`store`) still has a number.
    pub id: ValueId,
    /// How it is made.
    #[serde(flatten)]
    pub operation: Operation,
}

/// What a statement does. The serialised tag is `op`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[allow(missing_docs, reason = "fields are explained by their variant")]
pub enum Operation {
    /// Reads `buffer[index]`.
    Load { buffer: String, index: Expr },
    /// Writes `buffer[index]`. In a node with reduction loops whose `value` is a reduction's result, once per output element.
    Store {
        buffer: String,
        index: Expr,
        value: ValueId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<StoreMode>,
    },
    /// A constant.
    Constant { value: Scalar, dtype: Dtype },
    /// The value of an index expression.
    Index { index: Expr, dtype: Dtype },
    /// Conversion. Inner conversions to a narrow float are the compiler's bookkeeping: see `docs/referee.md` on rounding.
    Cast { value: ValueId, dtype: Dtype },
    /// Reinterpretation of the bits of `value`, which has type `from`.
    Bitcast { value: ValueId, from: Dtype, dtype: Dtype },
    /// An element-wise function.
    Pointwise { function: Function, args: Vec<ValueId> },
    /// A reduction over all reduction loops; several results are picked apart by [`Operation::Item`].
    Reduction { kind: ReductionKind, dtype: Dtype, values: Vec<ValueId> },
    /// The `position`-th result of a statement with several.
    Item { value: ValueId, position: usize },
    /// `result` of `body` where `mask` holds, `other` elsewhere. Loads inside happen only where the mask holds.
    Masked { mask: ValueId, other: Scalar, body: Vec<Statement>, result: ValueId },
    /// Binds the index variable `variable` to `value`, an element of `[0, size)` after wrapping negative ones.
    Indirect { value: ValueId, variable: String, size: Expr, check: bool, wrap_negative: bool },
}

/// How a store combines with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreMode {
    /// Adds; several iterations may hit one element.
    AtomicAdd,
}
