//! The schedule space: what may be chosen about a kernel without changing what it means. Data, so that a point in it can be
//! written down, compared and varied.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// One point of the space.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Schedule {
    /// What is shared out among threads.
    pub threads: Threads,
    /// The loop whose neighbouring iterations fill a vector.
    pub vector: Vector,
    /// Length of the innermost loop: so many elements are in flight, and a reduction has so many accumulators.
    pub lanes: u16,
    /// Iterations of the loop around a vector of rows that are taken together.
    pub unroll: u8,
    /// How mean and variance are computed.
    pub statistics: Statistics,
    /// What a row keeps from one pass to the next.
    pub keep: Keep,
    /// Identities of real numbers that may be used on rows.
    pub algebra: Algebra,
    /// Multiply and add in one rounding where the processor can.
    pub contract: bool,
    /// The next row is fetched while the last pass over this one runs.
    pub prefetch: bool,
    /// Where rows fill the vector, what runs along the row instead is transposed in small tiles.
    pub stage: bool,
    /// Further compiler flags.
    pub flags: Flags,
}

/// What is shared out among threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threads {
    /// Nothing: a small kernel is done before a second thread has woken.
    One,
    /// Rows.
    Rows,
    /// Each row: every thread takes a part of every pass, and partial results are combined.
    Within,
}

/// The loop whose neighbouring iterations fill a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vector {
    /// Whichever of the two has more accesses of stride one.
    Auto,
    /// The innermost loop over a row.
    Inner,
    /// Neighbouring rows: a row result becomes a vector of them.
    Rows,
}

/// How mean and variance are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistics {
    /// First the mean, then the squared deviations from it: two sums, the most exact.
    TwoPass,
    /// Sums of `x - s` and `(x - s)^2` in one pass, `s` the row's first element (Chan, Golub, LeVeque 1983, section 3).
    Shifted,
    /// A mean and squared deviations in every lane, kept up to date element by element (Welford 1962), lanes combined at the
    /// end (Chan, Golub, LeVeque 1983, section 2): one pass, and as exact as two. In Triton's loops only.
    Running,
}

/// What a row keeps from one pass to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Nothing: values are computed again.
    Nothing,
    /// Results of divisions and transcendental functions.
    Costly,
    /// Every value that a later pass needs.
    Everything,
}

/// Identities of real numbers that may be used on rows. Each changes roundings, so the referee has the last word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Algebra {
    /// `x / r` is `x * (1 / r)`, and `(x * r) * s` is `x * (r * s)`, for `r` and `s` of the row.
    pub factors: bool,
    /// `(x - m) * r + s` is `x * r + (s - m * r)`: exact enough where `m` is not much larger than `x - m`.
    pub shifts: bool,
    /// `exp(x - log r)` is `exp(x) / r` where `exp(x)` is there anyway.
    pub exponents: bool,
    /// Factors and addends of the row leave a sum: `sum(p * (x - r))` is `sum(p * x) - r * sum(p)`.
    pub sums: bool,
}

/// Compiler flags inside the precision contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flags {
    /// `-funroll-loops`.
    pub unroll_loops: bool,
    /// `-mprefer-vector-width=512`: matters only where the processor has AVX-512.
    pub wide_vectors: bool,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            threads: Threads::Rows,
            vector: Vector::Auto,
            lanes: 32,
            unroll: 1,
            statistics: Statistics::TwoPass,
            keep: Keep::Nothing,
            algebra: Algebra::default(),
            contract: true,
            prefetch: false,
            stage: false,
            flags: Flags::default(),
        }
    }
}

impl Schedule {
    /// A few words for people: `rows on threads, 32 lanes, keep costly, reciprocals`.
    pub fn note(&self) -> String {
        let mut note = String::from(match self.threads {
            Threads::One => "one thread",
            Threads::Rows => "rows on threads",
            Threads::Within => "threads within a row",
        });
        match self.vector {
            Vector::Auto => {}
            Vector::Inner => note.push_str(", vectors along a row"),
            Vector::Rows => note.push_str(", vectors of rows"),
        }
        let _ = write!(note, ", {} lanes", self.lanes);
        if self.unroll > 1 {
            let _ = write!(note, ", unroll {}", self.unroll);
        }
        let words = [
            (self.statistics == Statistics::Shifted, "shifted statistics"),
            (self.statistics == Statistics::Running, "running statistics"),
            (self.keep == Keep::Costly, "keep costly values"),
            (self.keep == Keep::Everything, "keep all values"),
            (self.algebra.factors, "row factors joined"),
            (self.algebra.shifts, "row shifts joined"),
            (self.algebra.exponents, "exponents split"),
            (self.algebra.sums, "sums factored"),
            (!self.contract, "no fma"),
            (self.prefetch, "next row prefetched"),
            (self.stage, "tiles transposed"),
            (self.flags.unroll_loops, "-funroll-loops"),
            (self.flags.wide_vectors, "-mprefer-vector-width=512"),
        ];
        for (_, word) in words.iter().filter(|(on, _)| *on) {
            let _ = write!(note, ", {word}");
        }
        note
    }
}
