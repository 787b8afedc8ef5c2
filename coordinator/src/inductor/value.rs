//! What a statement passes around: buffers, views of them, numbers.

use super::text::Span;

/// A value, as far as it is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A local name or a module constant.
    Name(String),
    /// Another look at the memory of a buffer.
    View(Box<View>),
    /// An element of a tuple or list: `buf5[0]`.
    Item {
        /// The tuple.
        base: Box<Value>,
        /// What stands between the brackets.
        key: String,
    },
    /// A number, a flag, a dtype, a device, or an expression over size symbols.
    Scalar(Scalar),
    /// A list or tuple of values.
    List(Vec<Value>),
    /// `None`.
    None,
}

/// A value that lives on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scalar {
    /// As written.
    pub text: String,
    /// Tensors whose elements it reads (`buf0.item()`); asking for a size reads none.
    pub reads: Vec<String>,
}

/// Another look at the memory of a buffer, with its own shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// How it is made.
    pub kind: ViewKind,
    /// What it looks at.
    pub base: Value,
    /// Its shape, where written out.
    pub layout: Option<Layout>,
    /// Where it stands.
    pub span: Span,
}

/// How a view is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewKind {
    /// `reinterpret_tensor(base, size, stride, offset)`.
    Reinterpret {
        /// Elements from the base's start, as written.
        offset: String,
    },
    /// `alloc_from_pool(base, offset, dtype, size, stride)`: a buffer's place in a planned pool of memory.
    Pool {
        /// Bytes from the pool's start, as written.
        offset: String,
    },
    /// An operator that makes a view: `aten.view.dtype`.
    Operator(String),
    /// A method that makes a view: `as_strided`.
    Method(String),
    /// `buf[1:3]`.
    Slice,
}

/// Shape of a tensor: extents and strides in elements, each an integer or an expression over size symbols, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Extents.
    pub size: Vec<String>,
    /// Strides in elements.
    pub stride: Vec<String>,
    /// Element type as torch names it (`float32`), where known.
    pub dtype: Option<String>,
}

impl Value {
    /// A scalar that reads no tensor.
    pub(super) fn scalar(text: impl Into<String>) -> Self {
        Self::Scalar(Scalar { text: text.into(), reads: Vec::new() })
    }

    /// The name that it is a view or an element of, or that it is itself.
    pub fn root(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::View(view) => view.base.root(),
            Self::Item { base, .. } => base.root(),
            Self::Scalar(_) | Self::List(_) | Self::None => None,
        }
    }

    /// Every value in it, itself first.
    pub fn visit<'a>(&'a self, see: &mut impl FnMut(&'a Value)) {
        see(self);
        match self {
            Self::View(view) => view.base.visit(see),
            Self::Item { base, .. } => base.visit(see),
            Self::List(items) => items.iter().for_each(|item| item.visit(see)),
            Self::Name(_) | Self::Scalar(_) | Self::None => {}
        }
    }
}
