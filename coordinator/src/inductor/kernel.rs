//! Generated kernels as the file defines them.

use kernelopt_shared::target::Language;

use super::text::Span;

/// A kernel that the file defines through `async_compile`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name in the file.
    pub name: String,
    /// Line of the definition, from one.
    pub line: u32,
    /// What it is.
    pub kind: KernelKind,
    /// Operators that the compiler fused, from the comment above the definition (`aten.mean`); empty where there is none.
    pub origins: Vec<String>,
}

/// What a definition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelKind {
    /// Source in a string literal.
    Source(Source),
    /// Something else: a choice between kernels, another language, a source that is computed.
    Foreign {
        /// What makes it, as written: `async_compile.multi_kernel`.
        maker: String,
        /// Kernels that it is made from.
        members: Vec<String>,
    },
}

/// Source of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its language.
    pub language: Language,
    /// The decoded text.
    pub text: String,
    /// The whole literal: prefix, quotes and all.
    pub literal: Span,
    /// Who wrote it.
    pub author: Author,
    /// Its parameters, where the signature was understood.
    pub parameters: Vec<Parameter>,
    /// Numbers that a launch passes behind them: the grid of a kernel that the user wrote.
    pub extra: usize,
}

/// Who wrote a kernel's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// The compiler's loop scheduler.
    Scheduler,
    /// A template with parameters (matrix multiplication, attention).
    Template,
    /// The user: a Triton kernel of the model itself.
    User,
}

/// One parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its type: `const float*`, `*bf16`, `i32`.
    pub declared: String,
    /// What the kernel does with it.
    pub access: Access,
}

/// What a kernel does with a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A pointer that is only read.
    Read,
    /// An output: memory that is this kernel's to fill. It may read back what it wrote itself.
    Write,
    /// A pointer that may be read and written.
    ReadWrite,
    /// A number.
    Scalar,
}

impl Access {
    /// True for a pointer behind which the kernel may write.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }
}

impl Kernel {
    /// Its source, where it has one.
    pub const fn source(&self) -> Option<&Source> {
        match &self.kind {
            KernelKind::Source(source) => Some(source),
            KernelKind::Foreign { .. } => None,
        }
    }

    /// True for a multi-kernel: it chooses between kernels and is none itself.
    pub fn is_choice(&self) -> bool {
        matches!(&self.kind, KernelKind::Foreign { members, .. } if !members.is_empty())
    }
}

impl Parameter {
    /// Element type behind a pointer, as torch names it; none for numbers and unknown types.
    pub fn element(&self) -> Option<&'static str> {
        let pointed = self.declared.strip_prefix('*').or_else(|| self.declared.strip_suffix('*'))?;
        Some(match pointed.trim_start_matches("const ").trim() {
            "double" | "fp64" => "float64",
            "float" | "fp32" => "float32",
            "at::Half" | "half" | "fp16" => "float16",
            "at::BFloat16" | "bfloat16" | "bf16" => "bfloat16",
            "int64_t" | "i64" => "int64",
            "int32_t" | "i32" => "int32",
            "int16_t" | "i16" => "int16",
            "int8_t" | "i8" => "int8",
            "uint8_t" | "unsigned char" | "u8" => "uint8",
            "bool" | "i1" => "bool",
            _ => return None,
        })
    }
}
