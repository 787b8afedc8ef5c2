//! Element types of tensors, as torch names them.

use serde::{Deserialize, Serialize};

/// An element type. The serialised name is torch's own (`float32`, `int64`, ...).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE binary64.
    Float64,
    /// IEEE binary32.
    Float32,
    /// IEEE binary16.
    Float16,
    /// bfloat16: binary32 with its low 16 bits cut.
    Bfloat16,
    /// Signed 64 bits.
    Int64,
    /// Signed 32 bits.
    Int32,
    /// Signed 16 bits.
    Int16,
    /// Signed 8 bits.
    Int8,
    /// Unsigned 8 bits.
    Uint8,
    /// One byte, zero or one.
    Bool,
}

impl Dtype {
    /// Bytes of one element.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::Float64 | Self::Int64 => 8,
            Self::Float32 | Self::Int32 => 4,
            Self::Float16 | Self::Bfloat16 | Self::Int16 => 2,
            Self::Int8 | Self::Uint8 | Self::Bool => 1,
        }
    }

    /// True for the floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::Float64 | Self::Float32 | Self::Float16 | Self::Bfloat16)
    }

    /// Unit roundoff `u = 2^-p` for a significand of `p` bits; zero for integers (Higham, *Accuracy and Stability*, 2.1).
    pub const fn unit_roundoff(self) -> f64 {
        match self {
            Self::Float64 => 1.110_223_024_625_156_5e-16,
            Self::Float32 => 5.960_464_477_539_063e-8,
            Self::Float16 => 4.882_812_5e-4,
            Self::Bfloat16 => 3.906_25e-3,
            _ => 0.0,
        }
    }

    /// Triton's name of a pointer to elements of the type.
    pub const fn triton_pointer(self) -> &'static str {
        match self {
            Self::Float64 => "*fp64",
            Self::Float32 => "*fp32",
            Self::Float16 => "*fp16",
            Self::Bfloat16 => "*bf16",
            Self::Int64 => "*i64",
            Self::Int32 => "*i32",
            Self::Int16 => "*i16",
            Self::Int8 => "*i8",
            Self::Uint8 => "*u8",
            Self::Bool => "*i1",
        }
    }

    /// Torch's name of the type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float64 => "float64",
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Int64 => "int64",
            Self::Int32 => "int32",
            Self::Int16 => "int16",
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::Bool => "bool",
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
