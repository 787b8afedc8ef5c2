//! A meaning taken apart into regions.

use std::collections::BTreeSet;

use kernelopt_shared::meaning::{Expr, Meaning, Node};

use super::Unsupported;
use super::graph::Graph;
use super::index::Ranges;
use super::loops::{Loops, cover, extents};
use super::region::{Builder, Region};
use super::space::{Schedule, Statistics, Vector};
use super::storage::Storage;

/// Most nodes of a meaning: the work of grouping them grows with their square.
const MAX_NODES: usize = 256;

/// The regions of a meaning, in order: each takes as many nodes as fit its rows.
///
/// # Errors
/// Where a node fits no region at all.
pub fn regions(
    meaning: &Meaning,
    storage: &Storage<'_>,
    scratch: &BTreeSet<String>,
    schedule: &Schedule,
) -> Result<Vec<Region>, Unsupported> {
    let (ranges, nodes) = (ranges(meaning), checked_loops(meaning)?);
    let mut regions = Vec::new();
    let mut rest = nodes.as_slice();
    while !rest.is_empty() {
        let (region, taken) = longest(rest, storage, &ranges, schedule)?;
        regions.push(region);
        rest = &rest[taken..];
    }
    drop_dead_stores(&mut regions, storage, scratch);
    Ok(regions)
}

/// The one region that holds all of a meaning over these loops; no columns are one dimension.
///
/// # Errors
/// Where some node does not fit.
pub fn whole(
    meaning: &Meaning,
    storage: &Storage<'_>,
    scratch: &BTreeSet<String>,
    statistics: Statistics,
    (rows, columns): (&[Expr], Option<&[Expr]>),
) -> Result<Region, Unsupported> {
    let mut graph = Graph::new(rows, ranges(meaning));
    if let Some(columns) = columns {
        graph.add_domain(columns);
    }
    let mut builder = Builder::new(storage, graph, statistics);
    for (node, loops) in checked_loops(meaning)? {
        builder.add(node, &loops)?;
    }
    let mut regions = [builder.finish()];
    drop_dead_stores(&mut regions, storage, scratch);
    let [region] = regions;
    Ok(region)
}

/// The loops of each node, as fine as its index expressions ask; none where there are too many nodes.
pub fn loops(meaning: &Meaning) -> Vec<(&Node, Loops)> {
    checked_loops(meaning).unwrap_or_default()
}

fn checked_loops(meaning: &Meaning) -> Result<Vec<(&Node, Loops)>, Unsupported> {
    if meaning.nodes.len() > MAX_NODES {
        return Err(Unsupported::new(format!("{} nodes", meaning.nodes.len())));
    }
    let ranges = ranges(meaning);
    Ok(meaning.nodes.iter().map(|node| (node, Loops::of(node, &ranges))).collect())
}

fn ranges(meaning: &Meaning) -> Ranges {
    let mut ranges = Ranges::default();
    meaning.symbols.keys().for_each(|symbol| ranges.add_symbol(symbol));
    ranges
}

/// The region that takes the most of `nodes`, and how many.
fn longest(nodes: &[(&Node, Loops)], storage: &Storage<'_>, ranges: &Ranges, schedule: &Schedule) -> Result<(Region, usize), Unsupported> {
    let mut best: Option<(Region, usize)> = None;
    let mut refused = Unsupported::new("no loops");
    for rows in row_choices(nodes, schedule) {
        let mut graph = Graph::new(&rows, ranges.clone());
        for domain in domain_choices(nodes, &graph) {
            graph.add_domain(&domain);
        }
        let mut builder = Builder::new(storage, graph, schedule.statistics);
        let mut taken = 0;
        for (node, loops) in nodes {
            match builder.add(node, loops) {
                Ok(()) => taken += 1,
                Err(why) => {
                    refused = why;
                    break;
                }
            }
        }
        if taken > best.as_ref().map_or(0, |(_, most)| *most) {
            best = Some((builder.finish(), taken));
        }
    }
    best.ok_or(refused)
}

/// Rows that a region of the first nodes may have, most natural first.
fn row_choices(nodes: &[(&Node, Loops)], schedule: &Schedule) -> Vec<Vec<Expr>> {
    let mut choices: Vec<Vec<Expr>> = Vec::new();
    let mut offer = |rows: Vec<Expr>| {
        if !choices.contains(&rows) {
            choices.push(rows);
        }
    };
    nodes.iter().filter(|(_, loops)| !loops.reduce.is_empty()).for_each(|(_, loops)| offer(extents(&loops.iter)));
    if let Some((_, loops)) = nodes.first() {
        let iter = extents(&loops.iter);
        if let Some((last, others)) = iter.split_last() {
            let split = [others.to_vec(), vec![last.clone()]];
            let order = if schedule.vector == Vector::Rows { [1, 0] } else { [0, 1] };
            order.into_iter().for_each(|k| offer(split[k].clone()));
        }
        offer(iter);
    }
    choices
}

/// Inner loops that the nodes will want, finest first, so that coarser ones are laid over them.
fn domain_choices(nodes: &[(&Node, Loops)], graph: &Graph) -> Vec<Vec<Expr>> {
    let mut choices: Vec<Vec<Expr>> = Vec::new();
    for (_, loops) in nodes {
        let inner = if !loops.reduce.is_empty() {
            cover(&loops.iter, &graph.rows).map(|_| extents(&loops.reduce))
        } else {
            (0..loops.iter.len()).find(|k| cover(&loops.iter[..*k], &graph.rows).is_some()).map(|k| extents(&loops.iter[k..]))
        };
        choices.extend(inner.filter(|inner| !inner.is_empty() && !choices.contains(inner)));
    }
    choices.sort_by_key(|choice| std::cmp::Reverse(choice.len()));
    choices
}

/// Drops the stores that nobody will see: to scratch arguments, to memory inside the kernel and to what a later store of
/// the same pointer replaces, unless a later region reads them.
fn drop_dead_stores(regions: &mut [Region], storage: &Storage<'_>, scratch: &BTreeSet<String>) {
    let mut read_later: BTreeSet<String> = BTreeSet::new();
    for region in regions.iter_mut().rev() {
        region.stores.retain(|store| {
            let buffer = &store.target.buffer;
            let seen = storage.written_through(buffer).is_some_and(|argument| !scratch.contains(&argument.name));
            read_later.contains(storage.of(buffer)) || (seen && !storage.is_overwritten(buffer))
        });
        read_later.extend(region.reads.iter().map(|read| storage.of(&read.buffer).to_owned()));
    }
}
