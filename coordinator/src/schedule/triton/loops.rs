//! How the loops of a meaning may be divided into rows and columns.

use std::collections::BTreeSet;

use kernelopt_shared::meaning::{Axis, Expr, Meaning, Operation, Statement};

use super::super::index::{Ranges, canonical, coefficient};
use super::super::loops::{extents, iterations, substitute};
use super::super::partition;
use super::space::Shape;

/// Most divisions that are tried for one shape: the nodes of a meaning may have many extents.
const MAX_DIVISIONS: usize = 16;
/// Most divisions in three.
const MAX_SHARED: usize = 3;

/// Extents of the loops that become rows, and of those that become columns; all outermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// Loops around the rows, of which a program has one iteration each.
    pub outer: Vec<Expr>,
    /// Along the first dimension.
    pub rows: Vec<Expr>,
    /// Along the second dimension; none where there is one only.
    pub columns: Option<Vec<Expr>>,
}

/// True where some node reduces.
pub fn reduces(meaning: &Meaning) -> bool {
    meaning.nodes.iter().any(|node| !node.reduce.is_empty())
}

/// Divisions that suit a shape, the best first: the first that holds all nodes is taken.
pub fn divisions(meaning: &Meaning, shape: Shape) -> Vec<Division> {
    match (shape, reduces(meaning)) {
        (Shape::Flat, false) => flat(meaning),
        (Shape::Tile(number), false) => tilings(meaning).into_iter().nth(number).into_iter().collect(),
        (Shape::Row | Shape::Loop, true) => rows_and_columns(meaning),
        _ => Vec::new(),
    }
}

/// All loops along one dimension, the finest first: coarser ones are laid over them.
fn flat(meaning: &Meaning) -> Vec<Division> {
    let mut choices = Choices::default();
    partition::loops(meaning).iter().for_each(|(_, loops)| choices.offer(extents(&loops.iter)));
    choices.finest_first().into_iter().map(|rows| Division { outer: Vec::new(), rows, columns: None }).collect()
}

/// Ways to divide the loops of an element-wise kernel, in this order:
/// - in three, where some access is the same for all rows between the outer loops and the columns: it and what follows from it
///   alone is done once for all of them; the most rows first;
/// - with the loop along which some access is contiguous beside the innermost one, where another access is;
/// - in two, after each loop, the innermost first.
pub fn tilings(meaning: &Meaning) -> Vec<Division> {
    let nodes = partition::loops(meaning);
    let Some((node, loops)) = nodes.iter().rev().max_by_key(|(_, loops)| loops.iter.len()) else { return Vec::new() };
    let mut accesses = Vec::new();
    collect(&node.body, &mut accesses);
    let mut ranges = Ranges::default();
    loops.iter.iter().for_each(|axis| ranges.add_loop(&axis.var, &axis.extent));
    let accesses: Vec<Expr> = accesses.into_iter().map(|index| canonical(&substitute(index, &loops.original), &ranges)).collect();
    let all = extents(&loops.iter);
    let mut tilings = shared(&loops.iter, &accesses);
    tilings.truncate(MAX_SHARED);
    let two = (1..all.len()).rev().map(|k| divided(&all, 0, k));
    for division in transposed(&loops.iter, &accesses).into_iter().chain(two) {
        if !tilings.contains(&division) {
            tilings.push(division);
        }
    }
    tilings.truncate(MAX_DIVISIONS);
    tilings
}

/// Rows for all of which some access is the same.
fn shared(axes: &[Axis], accesses: &[Expr]) -> Vec<Division> {
    let varies = |index: &Expr, axes: &[Axis]| axes.iter().any(|axis| index.variables().contains(axis.var.as_str()));
    let all = extents(axes);
    let mut divisions = Vec::new();
    for from in 1..all.len() {
        for to in from + 1..all.len() {
            let (outer, rows, columns) = (&axes[..from], &axes[from..to], &axes[to..]);
            if accesses.iter().any(|index| varies(index, outer) && !varies(index, rows) && varies(index, columns)) {
                divisions.push(divided(&all, from, to));
            }
        }
    }
    let rows = |division: &Division| if let Expr::Int(rows) = iterations(&division.rows) { rows } else { 0 };
    divisions.sort_by_key(|division| std::cmp::Reverse(rows(division)));
    divisions
}

/// The loop along which some access is contiguous as the last of the rows, beside the innermost loop.
fn transposed(axes: &[Axis], accesses: &[Expr]) -> Vec<Division> {
    let contiguous = |axis: &Axis| accesses.iter().any(|index| coefficient(index, &axis.var) == Some(Expr::Int(1)));
    let Some((last, others)) = axes.split_last() else { return Vec::new() };
    let beside = |(at, axis): (usize, &Axis)| {
        let around = others.iter().enumerate().filter(|(k, _)| *k != at).map(|(_, axis)| axis.extent.clone());
        Division { outer: Vec::new(), rows: around.chain([axis.extent.clone()]).collect(), columns: Some(vec![last.extent.clone()]) }
    };
    others.iter().enumerate().filter(|(_, axis)| contiguous(axis)).map(beside).collect()
}

/// Rows are the loops from `from` to `to`, columns those behind them.
fn divided(all: &[Expr], from: usize, to: usize) -> Division {
    Division { outer: all[..from].to_vec(), rows: all[from..to].to_vec(), columns: Some(all[to..].to_vec()) }
}

fn collect<'a>(body: &'a [Statement], into: &mut Vec<&'a Expr>) {
    for statement in body {
        match &statement.operation {
            Operation::Load { index, .. } | Operation::Store { index, .. } => into.push(index),
            Operation::Masked { body, .. } => collect(body, into),
            _ => {}
        }
    }
}

/// Rows are what the reductions leave, columns what they take; as fine as any node has them.
fn rows_and_columns(meaning: &Meaning) -> Vec<Division> {
    let nodes = partition::loops(meaning);
    let (mut rows, mut columns) = (Choices::default(), Choices::default());
    for (_, loops) in nodes.iter().filter(|(_, loops)| !loops.reduce.is_empty()) {
        rows.offer(extents(&loops.iter));
        columns.offer(extents(&loops.reduce));
    }
    let counts: BTreeSet<Expr> = rows.0.iter().map(|extents| count(extents)).collect();
    for (_, loops) in nodes.iter().filter(|(_, loops)| loops.reduce.is_empty()) {
        let iter = extents(&loops.iter);
        for k in (0..=iter.len()).filter(|k| counts.contains(&count(&iter[..*k]))) {
            rows.offer(iter[..k].to_vec());
            columns.offer(iter[k..].to_vec());
        }
    }
    let (rows, columns) = (rows.finest_first(), columns.finest_first());
    let pairs = rows
        .iter()
        .flat_map(|rows| columns.iter().map(|columns| Division { outer: Vec::new(), rows: rows.clone(), columns: Some(columns.clone()) }));
    pairs.filter(|division| division.columns.as_ref().is_some_and(|columns| !columns.is_empty())).take(MAX_DIVISIONS).collect()
}

fn count(extents: &[Expr]) -> Expr {
    canonical(&iterations(extents), &Ranges::default())
}

/// Distinct lists of extents, in the order in which they came.
#[derive(Default)]
struct Choices(Vec<Vec<Expr>>);

impl Choices {
    fn offer(&mut self, extents: Vec<Expr>) {
        if !self.0.contains(&extents) {
            self.0.push(extents);
        }
    }

    fn finest_first(mut self) -> Vec<Vec<Expr>> {
        self.0.sort_by_key(|extents| std::cmp::Reverse(extents.len()));
        self.0
    }
}
