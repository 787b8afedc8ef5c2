//! Loops of a meaning node brought to the loops of a region.

use std::collections::BTreeMap;

use kernelopt_shared::meaning::{Axis, Expr, Node, Operation, Statement};

use super::index::{Ranges, canonical};

/// What each loop variable of a node is in the region's variables.
pub type Substitution = BTreeMap<String, Expr>;

/// A node whose loops are as fine as its index expressions ask: no loop of one iteration, and none that is taken apart
/// again by `FloorDiv` or `Mod`.
#[derive(Clone, Debug)]
pub struct Loops {
    /// Output loops, outermost first.
    pub iter: Vec<Axis>,
    /// Reduction loops, outermost first.
    pub reduce: Vec<Axis>,
    /// The node's own variables in terms of these.
    pub original: Substitution,
}

impl Loops {
    /// Loops of `node`, symbols from `ranges`.
    pub fn of(node: &Node, ranges: &Ranges) -> Self {
        let original = node.iter.iter().chain(&node.reduce).map(|axis| (axis.var.clone(), Expr::var(axis.var.as_str()))).collect();
        let mut loops = Self { iter: node.iter.clone(), reduce: node.reduce.clone(), original };
        let mut indices = Vec::new();
        collect_indices(&node.body, &mut indices);
        while let Some((var, inner)) = indices.iter().find_map(|index| loops.find_split(index, ranges)) {
            loops.split(&var, inner);
        }
        let units: Vec<String> = loops.axes().filter(|axis| axis.extent == Expr::Int(1)).map(|axis| axis.var.clone()).collect();
        for var in units {
            loops.replace(&var, &Expr::Int(0));
            loops.iter.retain(|axis| axis.var != var);
            loops.reduce.retain(|axis| axis.var != var);
        }
        loops
    }

    fn axes(&self) -> impl Iterator<Item = &Axis> {
        self.iter.iter().chain(&self.reduce)
    }

    fn replace(&mut self, var: &str, by: &Expr) {
        for expr in self.original.values_mut() {
            *expr = expr.map_vars(&mut |name| if name == var { by.clone() } else { Expr::var(name) });
        }
    }

    /// A loop and the extent that its inner part must have for a quotient in `index` to be resolved.
    fn find_split(&self, index: &Expr, ranges: &Ranges) -> Option<(String, i64)> {
        let mut ranges = ranges.clone();
        self.axes().for_each(|axis| ranges.add_loop(&axis.var, &axis.extent));
        let index = canonical(&substitute(index, &self.original), &ranges);
        let mut quotients = Vec::new();
        collect_quotients(&index, &mut quotients);
        quotients.into_iter().find_map(|(numerator, divisor)| {
            self.axes().find_map(|axis| {
                let (Expr::Int(extent), Expr::Int(stride)) = (&axis.extent, super::index::coefficient(numerator, &axis.var)?) else {
                    return None;
                };
                let inner = if stride > 0 && divisor % stride == 0 { divisor / stride } else { return None };
                (inner > 1 && inner < *extent && extent % inner == 0).then(|| (axis.var.clone(), inner))
            })
        })
    }

    fn split(&mut self, var: &str, inner: i64) {
        let (high, low) = (format!("{var}h"), format!("{var}l"));
        self.replace(var, &Expr::add(vec![Expr::mul(vec![Expr::Int(inner), Expr::var(high.as_str())]), Expr::var(low.as_str())]));
        for axes in [&mut self.iter, &mut self.reduce] {
            if let Some(at) = axes.iter().position(|axis| axis.var == var) {
                let Expr::Int(extent) = axes[at].extent else { continue };
                let parts = [(&high, extent / inner), (&low, inner)];
                axes.splice(at..=at, parts.map(|(name, extent)| Axis { var: name.clone(), extent: Expr::Int(extent) }));
            }
        }
    }
}

fn collect_indices<'a>(body: &'a [Statement], into: &mut Vec<&'a Expr>) {
    for statement in body {
        match &statement.operation {
            Operation::Load { index, .. } | Operation::Store { index, .. } | Operation::Index { index, .. } => into.push(index),
            Operation::Masked { body, .. } => collect_indices(body, into),
            _ => {}
        }
    }
}

fn collect_quotients<'a>(expr: &'a Expr, into: &mut Vec<(&'a Expr, i64)>) {
    if let Expr::FloorDiv(a, b) | Expr::Mod(a, b) = expr
        && let Expr::Int(divisor @ 1..) = **b
    {
        into.push((a, divisor));
    }
    expr.children().into_iter().for_each(|child| collect_quotients(child, into));
}

/// `expr` with the variables of `map` replaced.
pub fn substitute(expr: &Expr, map: &Substitution) -> Expr {
    expr.map_vars(&mut |name| map.get(name).cloned().unwrap_or_else(|| Expr::var(name)))
}

/// Expresses `axes` by `targets`, in order: an axis may span several targets, and all targets are used.
pub fn cover(axes: &[Axis], targets: &[Axis]) -> Option<Substitution> {
    let mut map = Substitution::new();
    let mut rest = targets;
    for axis in axes {
        let (expr, taken) = span(&axis.extent, rest)?;
        map.insert(axis.var.clone(), expr);
        rest = &rest[taken..];
    }
    rest.is_empty().then_some(map)
}

/// The first targets whose extents multiply to `extent`: the position in them, row-major, and their number.
fn span(extent: &Expr, targets: &[Axis]) -> Option<(Expr, usize)> {
    if let Some(first) = targets.first().filter(|t| t.extent == *extent) {
        return Some((Expr::var(first.var.as_str()), 1));
    }
    let Expr::Int(extent) = extent else { return None };
    let (mut product, mut position) = (1i64, Expr::Int(0));
    for (k, target) in targets.iter().enumerate() {
        let Expr::Int(size) = target.extent else { return None };
        product = product.checked_mul(size)?;
        position = Expr::add(vec![Expr::mul(vec![position, Expr::Int(size)]), Expr::var(target.var.as_str())]);
        if product == *extent {
            return Some((position, k + 1));
        }
        if product > *extent {
            return None;
        }
    }
    None
}

/// Number of iterations of all loops together.
pub fn iterations(extents: &[Expr]) -> Expr {
    Expr::mul(extents.to_vec())
}

/// Extents of loops.
pub fn extents(axes: &[Axis]) -> Vec<Expr> {
    axes.iter().map(|axis| axis.extent.clone()).collect()
}
