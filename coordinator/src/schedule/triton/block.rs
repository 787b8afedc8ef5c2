//! The block of a program: its two dimensions, their sizes, masks and indices.

use kernelopt_shared::meaning::Expr;

use super::index::Direction;

/// Dimensions along which a value varies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// From row to row.
    pub x: bool,
    /// Along a row.
    pub r: bool,
}

impl Extent {
    /// Along one dimension.
    pub fn along(direction: Direction) -> Self {
        Self { x: direction == Direction::X, r: direction == Direction::R }
    }

    /// Along either's.
    pub const fn or(self, other: Self) -> Self {
        Self { x: self.x || other.x, r: self.r || other.r }
    }

    /// Along both's.
    pub const fn and(self, other: Self) -> Self {
        Self { x: self.x && other.x, r: self.r && other.r }
    }
}

/// One dimension of a block.
#[derive(Clone, Debug)]
pub struct Dimension {
    /// Elements in all.
    pub count: Expr,
    /// Elements in a block; a power of two.
    pub block: i64,
    /// Indices need 64 bits.
    pub is_wide: bool,
}

impl Dimension {
    /// True where a whole number of blocks gives the count.
    pub fn divides(&self) -> bool {
        matches!(self.count, Expr::Int(count) if count % self.block == 0)
    }

    /// Number of blocks.
    pub fn blocks(&self) -> Expr {
        match &self.count {
            Expr::Int(count) => Expr::Int((count - 1).div_euclid(self.block) + 1),
            other if self.block == 1 => other.clone(),
            other => Expr::FloorDiv(Box::new(Expr::add(vec![Expr::Int(self.block - 1), other.clone()])), Box::new(Expr::Int(self.block))),
        }
    }
}

/// The work of a program: rows and columns of a block. A dimension of one element is none.
#[derive(Clone, Debug)]
pub struct Block {
    /// What each program has one of.
    pub y: Option<Dimension>,
    /// Rows, or everything.
    pub x: Option<Dimension>,
    /// Along a row.
    pub r: Option<Dimension>,
}

impl Block {
    /// True where values of the row are tensors: there are several rows in a block, or nothing but rows.
    pub fn has_rows(&self) -> bool {
        self.x.as_ref().is_some_and(|x| x.block > 1 || self.r.is_none())
    }

    /// True where a block has two dimensions.
    pub fn is_square(&self) -> bool {
        self.has_rows() && self.r.is_some()
    }

    /// Everything along which a value of an element varies.
    pub fn extent(&self) -> Extent {
        Extent { x: self.has_rows(), r: self.r.is_some() }
    }

    /// Shape of a value of an element.
    pub fn shape(&self) -> &'static str {
        match (self.has_rows(), self.r.is_some()) {
            (true, true) => "[XBLOCK, RBLOCK]",
            (true, false) => "[XBLOCK]",
            _ => "[RBLOCK]",
        }
    }

    /// Names of the block sizes that the kernel takes, and their values.
    pub fn constants(&self) -> Vec<(&'static str, i64)> {
        let x = self.x.as_ref().filter(|_| self.has_rows()).map(|x| ("XBLOCK", x.block));
        x.into_iter().chain(self.r.as_ref().map(|r| ("RBLOCK", r.block))).collect()
    }

    /// `tl.arange` along a dimension, in the shape of the block.
    pub fn arange(&self, direction: Direction) -> String {
        let name = if direction == Direction::X { "XBLOCK" } else { "RBLOCK" };
        let axis = match (self.is_square(), direction) {
            (false, _) | (true, Direction::Y) => "",
            (true, Direction::X) => "[:, None]",
            (true, Direction::R) => "[None, :]",
        };
        format!("tl.arange(0, {name}){axis}")
    }

    /// The axis that a reduction along a row takes, and how its result becomes a value of the row again.
    pub fn reduction(&self) -> (usize, &'static str) {
        if self.is_square() { (1, "[:, None]") } else { (0, "") }
    }
}
