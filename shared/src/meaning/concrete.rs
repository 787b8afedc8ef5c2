//! A node at its captured sizes: symbols bound, loops split where that turns a division into a plain sum.
//!
//! Inductor merges loops, and so writes `256*ModularIndexing(p0, 1, 64) + FloorDiv(p0, 64)` for a transposed read. Split `p0`
//! into `64*a + b` and it is `256*b + a`: affine, so that its elements can be counted without walking over them and
//! a row of them needs no division. The order of iterations stays the same.

use std::collections::{BTreeMap, BTreeSet};

use super::affine::Affine;
use super::{Axis, Expr, Meaning, Node, walk};

/// Most loops after splitting.
const MAX_LOOPS: usize = 32;

/// `node` with every symbol at its captured value, loops split and index expressions simplified. Loops of one iteration
/// are gone; split loops are named `p0.1`, `p0.0`, outermost first, which no parsed name can be.
pub fn concrete(meaning: &Meaning, node: &Node) -> Node {
    let mut node = node.clone();
    node.iter.iter_mut().chain(&mut node.reduce).for_each(|axis| axis.extent = meaning.bind(&axis.extent));
    rewrite(&mut node, &|expr| meaning.bind(expr));
    let extents = extents(&node);
    let mut cuts: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
    walk::each(&node.body, false, &mut |statement, _| {
        if let Some(expr) = statement.operation.expr() {
            collect_cuts(expr, &mut cuts);
        }
    });
    let mut values = BTreeMap::new();
    node.iter = split(&node.iter, &cuts, &mut values);
    node.reduce = split(&node.reduce, &cuts, &mut values);
    let split_extents = self::extents(&node);
    let extent = |name: &str| split_extents.get(name).or_else(|| extents.get(name)).copied();
    let parts = |name: &str| values.get(name).cloned().unwrap_or_else(|| Expr::var(name));
    rewrite(&mut node, &|expr| simplify(&expr.map_vars(&mut |name| parts(name)), &extent));
    node
}

/// Trip counts by loop variable, of those that are plain integers.
pub fn extents(node: &Node) -> BTreeMap<String, i64> {
    let extent = |axis: &Axis| Some((axis.var.clone(), axis.extent.eval(&|_| None)?));
    node.iter.iter().chain(&node.reduce).filter_map(extent).collect()
}

fn rewrite(node: &mut Node, change: &impl Fn(&Expr) -> Expr) {
    walk::each_mut(&mut node.body, &mut |statement| {
        if let Some(expr) = statement.operation.expr_mut() {
            *expr = change(expr);
        }
    });
}

/// Notes by which factors a loop must be split for the divisions in `expr` to vanish.
fn collect_cuts(expr: &Expr, cuts: &mut BTreeMap<String, BTreeSet<i64>>) {
    if let Expr::FloorDiv(inner, by) | Expr::Mod(inner, by) = expr
        && let Expr::Int(by) = **by
    {
        cut(inner, by, cuts);
    }
    expr.children().into_iter().for_each(|child| collect_cuts(child, cuts));
}

/// `expr` is divided by `by`.
fn cut(expr: &Expr, by: i64, cuts: &mut BTreeMap<String, BTreeSet<i64>>) {
    if let Expr::FloorDiv(inner, again) = expr
        && let Expr::Int(again) = **again
        && let Some(both) = by.checked_mul(again)
    {
        return cut(inner, both, cuts);
    }
    for (name, factor) in Affine::of(expr).into_iter().flat_map(|affine| affine.terms) {
        if factor > 0 && by > factor && by % factor == 0 {
            cuts.entry(name).or_default().insert(by / factor);
        }
    }
}

/// Splits loops; `values` gets what each old variable is in terms of the new ones.
fn split(axes: &[Axis], cuts: &BTreeMap<String, BTreeSet<i64>>, values: &mut BTreeMap<String, Expr>) -> Vec<Axis> {
    let mut new = Vec::new();
    for axis in axes {
        let extent = axis.extent.eval(&|_| None);
        if extent == Some(1) {
            values.insert(axis.var.clone(), Expr::Int(0));
            continue;
        }
        let wanted = cuts.get(&axis.var);
        let (Some(extent), Some(wanted), true) = (extent.filter(|n| *n > 0), wanted, new.len() < MAX_LOOPS) else {
            new.push(axis.clone());
            continue;
        };
        let mut factors = vec![1];
        for cut in wanted {
            if cut % factors[factors.len() - 1] == 0 && extent % cut == 0 && *cut < extent {
                factors.push(*cut);
            }
        }
        let mut terms = Vec::new();
        let mut outer = extent;
        for (position, factor) in factors.iter().enumerate().rev() {
            let var = if factors.len() == 1 { axis.var.clone() } else { format!("{}.{position}", axis.var) };
            terms.push(Expr::mul(vec![Expr::Int(*factor), Expr::var(&var)]));
            new.push(Axis { var, extent: Expr::Int(outer / factor) });
            outer = *factor;
        }
        values.insert(axis.var.clone(), Expr::add(terms));
    }
    new
}

/// Removes divisions whose operands are known well enough: `extent` gives the trip count of a loop variable.
fn simplify(expr: &Expr, extent: &impl Fn(&str) -> Option<i64>) -> Expr {
    let part = |e: &Expr| simplify(e, extent);
    match expr {
        Expr::Int(_) | Expr::Var(_) => expr.clone(),
        Expr::Add(items) => Expr::add(items.iter().map(part).collect()),
        Expr::Mul(items) => Expr::mul(items.iter().map(part).collect()),
        Expr::Min(items) => Expr::Min(items.iter().map(part).collect()),
        Expr::Max(items) => Expr::Max(items.iter().map(part).collect()),
        Expr::FloorDiv(a, b) => {
            let (a, b) = (part(a), part(b));
            let whole = parted(&a, &b, extent).map(|(quotient, _)| quotient.to_expr());
            whole.unwrap_or_else(|| Expr::FloorDiv(Box::new(a), Box::new(b)))
        }
        Expr::Mod(a, b) => {
            let (a, b) = (part(a), part(b));
            let rest = parted(&a, &b, extent).map(|(_, rest)| rest.to_expr());
            rest.unwrap_or_else(|| Expr::Mod(Box::new(a), Box::new(b)))
        }
        Expr::Where(condition, yes, no) => {
            let mut condition = condition.clone();
            (condition.left, condition.right) = (part(&condition.left), part(&condition.right));
            Expr::Where(condition, Box::new(part(yes)), Box::new(part(no)))
        }
    }
}

/// `a = by · quotient + rest` with the rest in `0..by` throughout, where `a` is affine and that can be seen.
fn parted(a: &Expr, by: &Expr, extent: &impl Fn(&str) -> Option<i64>) -> Option<(Affine, Affine)> {
    let (a, by) = (Affine::of(a)?, by.eval(&|_| None).filter(|by| *by > 0)?);
    let (mut quotient, mut rest) = (Affine::constant(a.constant.div_euclid(by)), Affine::constant(a.constant.rem_euclid(by)));
    for (name, factor) in a.terms {
        let (part, factor) = if factor % by == 0 { (&mut quotient, factor / by) } else { (&mut rest, factor) };
        part.terms.insert(name, factor);
    }
    let (low, high) = rest.range(extent)?;
    (low >= 0 && high < by).then_some((quotient, rest))
}
