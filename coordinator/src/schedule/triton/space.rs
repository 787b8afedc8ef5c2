//! The schedule space of Triton: what may be chosen about a kernel without changing what it means.

use std::fmt::Write as _;

use super::super::space::Statistics;

/// One point of the space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// How the loops become blocks.
    pub shape: Shape,
    /// Rows of a program at a time, or elements where there is one dimension only; a power of two.
    pub x_block: u32,
    /// Elements of a row at a time; a power of two, and no less than the row for [`Shape::Row`].
    pub r_block: u32,
    /// Warps of 32 threads in a program.
    pub warps: u32,
    /// Programs per multiprocessor that stay and take one tile after the other; none for one program per tile.
    pub resident: Option<u32>,
    /// Parts of a row, each reduced by a program of its own; a second launch combines them. None for one program per row. In loops only.
    pub splits: Option<u32>,
    /// Iterations of a loop over the row whose loads are in flight at a time; one leaves the loop alone.
    pub stages: u32,
    /// Iterations of a loop over the row that are unrolled.
    pub unroll: u32,
    /// What is done at the end of a row whose length is no multiple of the block.
    pub tail: Tail,
    /// How mean and variance are computed.
    pub statistics: Statistics,
    /// How the sum of exponentials is computed in a loop.
    pub softmax: Softmax,
    /// Exponential function.
    pub exp: Exp,
    /// Error function.
    pub erf: Erf,
    /// `x / r` is `x * (1 / r)` for `r` of the row, and factors of the row are joined.
    pub factors: bool,
    /// What loads say about the cache.
    pub hints: Hints,
    /// Stores leave the cache first.
    pub streaming_stores: bool,
    /// Independent loads of a whole row come before everything else.
    pub early_loads: bool,
}

/// How the loops become blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    /// One dimension: all loops are one.
    Flat,
    /// Two dimensions, the loops divided in the way of that number ([`super::loops::tilings`]).
    Tile(usize),
    /// Rows by whole rows: everything between load and store stays in registers.
    Row,
    /// Rows by blocks of a row, in a loop for each pass.
    Loop,
}

/// What is done at the end of a row whose length is no multiple of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tail {
    /// Every block is masked.
    Mask,
    /// Whole blocks are not, and the rest is a block of its own.
    Peel,
}

/// How the sum of `exp(x - max)` is computed in a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Softmax {
    /// First the maximum, then the sum: two passes.
    TwoPass,
    /// One pass; every lane has a maximum and a sum of its own, which are combined at the end (Milakov, Gimelshein 2018).
    Lanes,
    /// One pass; the maximum is that of the row so far, the sums are the lanes'.
    Block,
}

/// Exponential function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exp {
    /// `__nv_expf`, as the compiler's own kernels: 2 ulp.
    Library,
    /// `ex2.approx` of the argument times `log2(e)`: its relative error grows with the argument, `|x| u` at most.
    Base2,
}

/// Error function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Erf {
    /// `__nv_erff`, as the compiler's own kernels: two polynomials, of which each element needs one.
    Library,
    /// One polynomial and `ex2.approx`: nowhere more than 1e-7 off, so that `1 + erf(x)` is as good, but small values of it are not.
    Short,
}

impl Erf {
    /// Not this one.
    pub const fn other(self) -> Self {
        match self {
            Self::Library => Self::Short,
            Self::Short => Self::Library,
        }
    }
}

impl Exp {
    /// Not this one.
    pub const fn other(self) -> Self {
        match self {
            Self::Library => Self::Base2,
            Self::Base2 => Self::Library,
        }
    }
}

/// What loads say about the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hints {
    /// Nothing.
    None,
    /// What is read for the last time may leave it first; what other programs or a later pass read again stays.
    Reuse,
    /// Everything that streams through may leave it first, a row that is read again too: it is longer than the cache.
    Stream,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            shape: Shape::Flat,
            x_block: 1024,
            r_block: 1,
            warps: 4,
            resident: None,
            splits: None,
            stages: 1,
            unroll: 1,
            tail: Tail::Peel,
            statistics: Statistics::TwoPass,
            softmax: Softmax::Lanes,
            exp: Exp::Base2,
            erf: Erf::Library,
            factors: true,
            hints: Hints::Reuse,
            streaming_stores: false,
            early_loads: true,
        }
    }
}

impl Schedule {
    /// A few words for people: `rows of 4 x 1024 whole, 8 warps, exp2, row factors joined`.
    pub fn note(&self) -> String {
        let mut note = match self.shape {
            Shape::Flat => format!("blocks of {}", self.x_block),
            Shape::Tile(number) => format!("tiles of {} x {}, tiling {number}", self.x_block, self.r_block),
            Shape::Row => format!("whole rows, {} x {}", self.x_block, self.r_block),
            Shape::Loop => format!("rows in a loop, {} x {}", self.x_block, self.r_block),
        };
        let _ = write!(note, ", {} warps", self.warps);
        if let Some(programs) = self.resident {
            let _ = write!(note, ", {programs} resident programs");
        }
        if let Some(splits) = self.splits {
            let _ = write!(note, ", {splits} parts of a row, combined by a second launch");
        }
        let looped = self.shape == Shape::Loop;
        let words = [
            (looped && self.stages > 1, "pipelined loads"),
            (looped && self.unroll > 1, "unrolled"),
            (looped && self.tail == Tail::Peel, "tail apart"),
            (looped && self.softmax == Softmax::TwoPass, "maximum before sum"),
            (looped && self.softmax == Softmax::Block, "maximum of the row so far"),
            (looped && self.statistics == Statistics::Shifted, "shifted statistics"),
            (looped && self.statistics == Statistics::Running, "running statistics"),
            (self.exp == Exp::Library, "library exp"),
            (self.erf == Erf::Short, "short erf"),
            (self.factors && matches!(self.shape, Shape::Row | Shape::Loop), "row factors joined"),
            (self.hints == Hints::Reuse, "cache hints"),
            (self.hints == Hints::Stream, "everything streams"),
            (self.streaming_stores, "streaming stores"),
            (!self.early_loads && self.shape == Shape::Row, "late loads"),
        ];
        for (_, word) in words.iter().filter(|(on, _)| *on) {
            let _ = write!(note, ", {word}");
        }
        note
    }
}
