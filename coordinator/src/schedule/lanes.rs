//! What fills a vector, and what threads share out.

use std::collections::BTreeSet;

use kernelopt_shared::meaning::{Axis, Expr};

use super::graph::{Graph, Level};
use super::index::coefficient;
use super::loops::iterations;
use super::region::{Region, Store};
use super::space::{Schedule, Threads, Vector};

/// Most rows for which threads may be used within each: they meet after every pass.
const MAX_ROWS_WITHIN: i64 = 16;
/// How many times less traffic of stride one than the other way still makes a way to fill vectors worth a try.
const MAX_TRAFFIC_RATIO: usize = 4;

/// What fills a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// So many elements along the last loop of a domain.
    Inner(i64),
    /// So many neighbouring rows, along the row loop of that number.
    Rows {
        /// Number of the row loop.
        axis: usize,
        /// Rows in one vector.
        lanes: i64,
    },
}

/// Traffic of stride one along each loop decides, unless the schedule asks for one of two ways that are not far apart. In
/// each domain, the loop with the most of it becomes the last.
pub fn choose(graph: &mut Graph, region: &Region, schedule: &Schedule) -> Lanes {
    let want = i64::from(schedule.lanes.max(1));
    let accesses: Vec<(&Expr, usize)> = region
        .reads
        .iter()
        .chain(region.stores.iter().map(|store| &store.target))
        .filter_map(|access| if let Level::Inner(domain) = access.level { Some((&access.index, domain)) } else { None })
        .collect();
    // What moves with the row and within it is most of the traffic; what only moves within it stays in the cache.
    let row_vars: BTreeSet<String> = graph.rows.iter().map(|axis| axis.var.clone()).collect();
    let traffic = |index: &Expr| if row_vars.is_empty() || index.variables().iter().any(|var| row_vars.contains(*var)) { 8 } else { 1 };
    let along = |index: &Expr, axis: &Axis| if coefficient(index, &axis.var) == Some(Expr::Int(1)) { traffic(index) } else { 0 };
    let along_rows: Vec<usize> = graph.rows.iter().map(|axis| accesses.iter().map(|(index, _)| along(index, axis)).sum()).collect();
    let best_row = (0..along_rows.len()).max_by_key(|k| (along_rows[*k], *k));
    let mut by_inner = 0;
    for (domain, axes) in graph.domains.iter_mut().enumerate() {
        let count = |axis: &Axis| accesses.iter().filter(|(_, d)| *d == domain).map(|(index, _)| along(index, axis)).sum::<usize>();
        if let Some(best) = (0..axes.len()).max_by_key(|k| (count(&axes[*k]), *k)) {
            by_inner += count(&axes[best]);
            let last = axes.remove(best);
            axes.push(last);
        }
    }
    let Some(axis) = best_row else { return Lanes::Inner(want) };
    let by_rows = along_rows[axis];
    let rows = match schedule.vector {
        Vector::Inner if by_inner * MAX_TRAFFIC_RATIO >= by_rows => false,
        Vector::Rows if by_rows * MAX_TRAFFIC_RATIO >= by_inner => true,
        _ => by_rows > by_inner || accesses.is_empty(),
    };
    if rows { Lanes::Rows { axis, lanes: block(&graph.rows[axis].extent, want) } } else { Lanes::Inner(want) }
}

/// The length of a block of `want` elements in a loop of that extent: all of a short one, and a half where that leaves no rest.
pub fn block(extent: &Expr, want: i64) -> i64 {
    match extent {
        Expr::Int(extent) if *extent <= want => (*extent).max(1),
        Expr::Int(extent) if extent % want != 0 && want >= 64 && extent % (want / 2) == 0 => want / 2,
        _ => want,
    }
}

/// Stores to computed places go in order, so that of two to one place the later wins: one thread.
pub fn threads(graph: &Graph, region: &Region, lanes: Lanes, threads: Threads) -> Threads {
    if region.stores.iter().any(Store::is_scatter) {
        return Threads::One;
    }
    let outer = graph.rows.iter().enumerate().map(|(k, axis)| match (lanes, &axis.extent) {
        (Lanes::Rows { axis, lanes }, Expr::Int(extent)) if axis == k => Expr::Int((extent + lanes - 1) / lanes),
        (_, extent) => extent.clone(),
    });
    let rows = match iterations(&outer.collect::<Vec<_>>()) {
        Expr::Int(rows) => rows,
        _ => i64::MAX,
    };
    match threads {
        Threads::Rows if rows < 2 => Threads::Within,
        Threads::Within if rows > MAX_ROWS_WITHIN => Threads::Rows,
        other => other,
    }
}
