//! What is known of a target before any schedule is chosen.

use std::collections::BTreeSet;

use kernelopt_shared::meaning::{Expr, Function, Meaning};

use super::super::graph::{Fold, Graph, Level, Op};
use super::super::index::coefficient;
use super::super::loops::{extents, iterations};
use super::super::region::Region;
use super::super::storage::Storage;
use super::kernel;
use super::loops::{self, Division};
use super::space::{Schedule, Shape};

/// Multiprocessors of the device where the compiler's text does not say: those of an H200.
const MULTIPROCESSORS: u32 = 132;

/// What a portfolio depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How the work lies; none where no region holds it all.
    pub work: Option<Work>,
    /// There is an exponential.
    pub has_exp: bool,
    /// There is an error function.
    pub has_erf: bool,
    /// An output is stored in the width that it is computed in: the error of a function is not lost in its rounding.
    pub stores_wide: bool,
    /// There is a sum of exponentials below a maximum.
    pub has_softmax: bool,
    /// There are mean and variance.
    pub has_statistics: bool,
    /// Something is divided by a value of the row.
    pub has_row_factors: bool,
    /// Multiprocessors of the device.
    pub multiprocessors: u32,
}

/// How the work lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Element by element.
    Elements {
        /// Elements in all.
        count: i64,
        /// Ways to divide them into rows and columns, in the order of [`loops::tilings`].
        tilings: Vec<Tiling>,
    },
    /// Rows that are reduced.
    Rows {
        /// Number of rows.
        rows: i64,
        /// Elements of a row.
        length: i64,
        /// All rows that there will ever be have this length.
        is_fixed: bool,
        /// Neighbours in memory are elements of neighbouring rows.
        across: bool,
    },
}

/// A way to divide elements into rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Iterations around the rows.
    pub outer: i64,
    /// Number of rows.
    pub rows: i64,
    /// Elements of a row.
    pub columns: i64,
    /// Some access is contiguous along rows, another along columns.
    pub transposes: bool,
    /// Some access is the same for all elements of a row or of a column.
    pub shares: bool,
}

impl Facts {
    /// Of a meaning; `multiprocessors` of the device that the compiler wrote for.
    pub fn of(meaning: &Meaning, scratch: &BTreeSet<String>, multiprocessors: Option<u32>) -> Self {
        let storage = Storage::new(meaning);
        let shape = if loops::reduces(meaning) { Shape::Row } else { Shape::Flat };
        let plain = |shape| Schedule { shape, factors: false, ..Schedule::default() };
        let region = kernel::region(meaning, &storage, scratch, &plain(shape)).ok().map(|(region, _)| region);
        let has = |holds: &dyn Fn(&Graph, &Op) -> bool| {
            region.as_ref().is_some_and(|region| region.graph.ids().any(|id| holds(&region.graph, &region.graph.value(id).op)))
        };
        let work = region.as_ref().map(|region| match shape {
            Shape::Row => rows(meaning, region),
            _ => {
                let tilings = loops::tilings(meaning);
                let tiling = |(k, division): (usize, &Division)| {
                    let region = kernel::region(meaning, &storage, scratch, &plain(Shape::Tile(k))).ok().map(|(region, _)| region);
                    tiling(meaning, division, region.as_ref())
                };
                Work::Elements {
                    count: number(meaning, &extents(&region.graph.rows)),
                    tilings: tilings.iter().enumerate().map(tiling).collect(),
                }
            }
        });
        let statistics = meaning.nodes.iter().flat_map(|node| &node.body).any(|statement| {
            use kernelopt_shared::meaning::{Operation, ReductionKind::*};
            matches!(statement.operation, Operation::Reduction { kind: WelfordReduce | WelfordCombine, .. })
        });
        let stores_wide = region.as_ref().is_some_and(|region| {
            region.stores.iter().any(|store| {
                let stored = meaning.buffers.get(&store.target.buffer).map(|buffer| buffer.dtype);
                stored.is_some_and(|dtype| dtype.is_float() && dtype.size_bytes() >= 4)
            })
        });
        Self {
            work,
            stores_wide,
            has_exp: has(&|_, op| *op == Op::Call(Function::Exp)),
            has_erf: has(&|_, op| *op == Op::Call(Function::Erf)),
            has_softmax: has(&|_, op| *op == Op::Call(Function::Exp)) && has(&|_, op| matches!(op, Op::Reduce { fold: Fold::Max, .. })),
            has_statistics: statistics,
            has_row_factors: has(&|_, op| *op == Op::Call(Function::Truediv)) && shape == Shape::Row,
            multiprocessors: multiprocessors.unwrap_or(MULTIPROCESSORS),
        }
    }
}

/// Elements of loops together, at the sizes of the capture.
fn number(meaning: &Meaning, extents: &[Expr]) -> i64 {
    iterations(extents).eval(&|name| meaning.symbols.get(name).copied()).unwrap_or(i64::MAX).max(1)
}

fn rows(meaning: &Meaning, region: &Region) -> Work {
    let graph = &region.graph;
    let columns = graph.domains.first().map_or_else(Vec::new, |axes| extents(axes));
    let is_fixed = columns.iter().all(|extent| matches!(extent, Expr::Int(_)));
    let (along_rows, along_columns) = contiguous(region);
    Work::Rows {
        rows: number(meaning, &extents(&graph.rows)),
        length: number(meaning, &columns),
        is_fixed,
        across: along_rows > along_columns,
    }
}

fn tiling(meaning: &Meaning, division: &Division, region: Option<&Region>) -> Tiling {
    let columns = division.columns.as_deref().unwrap_or_default();
    let (along_rows, along_columns) = region.map_or((0, 0), contiguous);
    let shares = region.is_some_and(|region| {
        let graph = &region.graph;
        let rows = &graph.rows[division.outer.len()..];
        let varies =
            |index: &Expr, axes: &[kernelopt_shared::meaning::Axis]| axes.iter().any(|axis| index.variables().contains(axis.var.as_str()));
        region.reads.iter().any(|read| {
            let (rows, columns) = (varies(&read.index, rows), graph.domains.iter().any(|axes| varies(&read.index, axes)));
            rows != columns
        })
    });
    Tiling {
        outer: number(meaning, &division.outer),
        rows: number(meaning, &division.rows),
        columns: number(meaning, columns),
        transposes: along_rows > 0 && along_columns > 0,
        shares,
    }
}

/// Accesses of elements that are contiguous along the rows, and along the columns.
fn contiguous(region: &Region) -> (usize, usize) {
    let graph = &region.graph;
    let accesses =
        || region.reads.iter().chain(region.stores.iter().map(|store| &store.target)).filter(|access| access.level != Level::Row);
    let along = |index: &Expr, axes: &[kernelopt_shared::meaning::Axis]| {
        axes.last().is_some_and(|axis| coefficient(index, &axis.var) == Some(Expr::Int(1)))
    };
    let by_rows = accesses().filter(|access| along(&access.index, &graph.rows)).count();
    let by_columns = accesses().filter(|access| graph.domains.iter().any(|axes| along(&access.index, axes))).count();
    (by_rows, by_columns)
}
