//! The element-wise functions and reductions that a meaning may use. One that is not here makes its kernel no target.

use serde::{Deserialize, Serialize};

macro_rules! functions {
    ($($variant:ident = $arity:literal $(=> $doc:literal)?),* $(,)?) => {
        /// An element-wise function, named as in Inductor's `ops` (torch/_inductor/ops_handler.py).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[allow(missing_docs, reason = "each is the function of its name")]
        pub enum Function {
            $($(#[doc = $doc])? $variant),*
        }

        impl Function {
            /// Every function, for exhaustive tests.
            pub const ALL: &'static [Function] = &[$(Function::$variant),*];

            /// Number of arguments.
            pub const fn arity(self) -> usize {
                match self { $(Self::$variant => $arity),* }
            }
        }
    };
}

functions! {
    Add = 2, Sub = 2, Mul = 2,
    Truediv = 2 => "Division of floats; integers are converted first.",
    Floordiv = 2, Truncdiv = 2,
    Mod = 2 => "Sign of the dividend (C's `fmod`, `%`).",
    Fmod = 2 => "Sign of the dividend.",
    Remainder = 2 => "Sign of the divisor (Python's `%`).",
    Pow = 2, Atan2 = 2, Copysign = 2, Hypot = 2,
    Maximum = 2 => "NaN wins.",
    Minimum = 2 => "NaN wins.",
    Eq = 2, Ne = 2, Lt = 2, Gt = 2, Le = 2, Ge = 2,
    LogicalAnd = 2, LogicalOr = 2, LogicalXor = 2, LogicalNot = 1,
    BitwiseAnd = 2, BitwiseOr = 2, BitwiseXor = 2, BitwiseNot = 1,
    BitwiseLeftShift = 2, BitwiseRightShift = 2,
    Where = 3 => "`args[0] ? args[1] : args[2]`.",
    Fma = 3,
    Neg = 1, Abs = 1, Sign = 1, Square = 1, Reciprocal = 1, Relu = 1, Sigmoid = 1, Identity = 1,
    Sqrt = 1, Rsqrt = 1, Exp = 1, Exp2 = 1, Expm1 = 1, Log = 1, Log2 = 1, Log10 = 1, Log1p = 1,
    Sin = 1, Cos = 1, Tan = 1, Sinh = 1, Cosh = 1, Tanh = 1, Asin = 1, Acos = 1, Atan = 1,
    Asinh = 1, Acosh = 1, Atanh = 1, Erf = 1, Erfc = 1,
    Floor = 1, Ceil = 1, Trunc = 1,
    Round = 1 => "To nearest, ties to even.",
    Isnan = 1, Isinf = 1, Signbit = 1,
}

impl Function {
    /// Name in the serialised meaning and in Inductor, `logical_and`.
    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            _ => format!("{self:?}"),
        }
    }
}

/// How a reduction combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReductionKind {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Maximum; NaN wins.
    Max,
    /// Minimum; NaN wins.
    Min,
    /// Logical or.
    Any,
    /// Position of the first maximum in the flattened reduction range; NaN wins.
    Argmax,
    /// Position of the first minimum in the flattened reduction range; NaN wins.
    Argmin,
    /// `(mean, sum of squared deviations, count)` (Welford 1962).
    WelfordReduce,
    /// Three values `(mean, m2, weight)` per element, combined (Chan, Golub, LeVeque 1983).
    WelfordCombine,
    /// `(max, sum of exp(x - max))`.
    OnlineSoftmaxReduce,
}

impl ReductionKind {
    /// Number of results.
    pub const fn results(self) -> usize {
        match self {
            Self::WelfordReduce | Self::WelfordCombine => 3,
            Self::OnlineSoftmaxReduce => 2,
            _ => 1,
        }
    }

    /// Number of values taken per element.
    pub const fn operands(self) -> usize {
        match self {
            Self::WelfordCombine => 3,
            _ => 1,
        }
    }
}
